# The CUDA toolkit, which is optional. Defines
#   CTRAIN_CUDA_WHY   empty: the headers of CUDA 13 were found; else why the CUDA parts are not built
#   ct_cuda           the headers of CUDA and cuDNN
#   CTRAIN_CUDART_LIBRARY, CTRAIN_CUDNN_LIBRARY
#   CTRAIN_NVCC       the compiler for GPU code; not needed for the software GPU of the tests
set(CTRAIN_CUDA AUTO CACHE STRING "Build what needs CUDA: ON, OFF, or AUTO (where a toolkit is installed)")
set(roots $ENV{CUDA_HOME} $ENV{CUDA_PATH})
find_path(CTRAIN_CUDA_INCLUDE_DIR cuda_runtime_api.h HINTS ${roots} PATHS /usr/local/cuda PATH_SUFFIXES include)
find_path(CTRAIN_CUDNN_INCLUDE_DIR cudnn_graph.h HINTS ${roots} PATHS /usr/local/cuda PATH_SUFFIXES include)
find_library(CTRAIN_CUDART_LIBRARY libcudart.so.13 HINTS ${roots} PATHS /usr/local/cuda PATH_SUFFIXES lib64 lib)
find_library(CTRAIN_CUDNN_LIBRARY libcudnn.so.9 HINTS ${roots} PATHS /usr/local/cuda PATH_SUFFIXES lib64 lib)
find_program(CTRAIN_NVCC nvcc HINTS ${roots} PATHS /usr/local/cuda PATH_SUFFIXES bin)

set(CTRAIN_CUDA_WHY "")
if(NOT CTRAIN_CUDA STREQUAL "AUTO" AND NOT CTRAIN_CUDA)
  set(CTRAIN_CUDA_WHY "switched off by CTRAIN_CUDA")
elseif(NOT CTRAIN_CUDA_INCLUDE_DIR)
  set(CTRAIN_CUDA_WHY "CUDA's headers were not found (set CUDA_HOME)")
elseif(NOT CTRAIN_CUDNN_INCLUDE_DIR)
  set(CTRAIN_CUDA_WHY "the headers of cuDNN 9 were not found (set CUDA_HOME)")
else()
  file(STRINGS ${CTRAIN_CUDA_INCLUDE_DIR}/cuda_runtime_api.h version REGEX "^#define CUDART_VERSION +[0-9]+")
  string(REGEX MATCH "[0-9]+$" version "${version}")
  if(NOT version GREATER_EQUAL 13000 OR NOT version LESS 14000)
    set(CTRAIN_CUDA_WHY "CUDA 13 is needed, and ${CTRAIN_CUDA_INCLUDE_DIR} has ${version}")
  endif()
endif()
if(CTRAIN_CUDA_WHY AND CTRAIN_CUDA AND NOT CTRAIN_CUDA STREQUAL "AUTO")
  message(FATAL_ERROR "CTRAIN_CUDA is ${CTRAIN_CUDA}, but ${CTRAIN_CUDA_WHY}")
elseif(CTRAIN_CUDA_WHY)
  message(STATUS "no CUDA: ${CTRAIN_CUDA_WHY}")
else()
  add_library(ct_cuda INTERFACE)
  target_include_directories(ct_cuda SYSTEM INTERFACE ${CTRAIN_CUDA_INCLUDE_DIR} ${CTRAIN_CUDNN_INCLUDE_DIR})
endif()

# ct_add_soft_kernels(name SOURCES FILE.cu...): an object library for the software GPU, compiled by the C++ compiler. Call it in the
# directory of the files.
function(ct_add_soft_kernels name)
  cmake_parse_arguments(A "" "" "SOURCES" ${ARGN})
  set_source_files_properties(${A_SOURCES} PROPERTIES LANGUAGE CXX)
  add_library(${name} OBJECT ${A_SOURCES})
  target_compile_definitions(${name} PRIVATE CT_DEVICE_HEADER="tests/soft_gpu/exec/device.hpp")
  target_compile_options(${name} PRIVATE -Wno-unknown-pragmas)
  if("address" IN_LIST CTRAIN_SANITIZE AND CMAKE_CXX_COMPILER_ID STREQUAL GNU)
    target_compile_options(${name} PRIVATE -fsanitize-sections=soft_shared) # guards between variables in shared memory
  endif()
  target_link_libraries(${name} PRIVATE ct_flags ct_cuda)
endfunction()

# ct_add_nvcc_objects(var SOURCES FILE.cu...): sets var to objects with code for all GPUs that ctrain supports.
function(ct_add_nvcc_objects var)
  cmake_parse_arguments(A "" "" "SOURCES" ${ARGN})
  set(flags -std=c++17 -O3 -Werror all-warnings -I${CMAKE_SOURCE_DIR} -Xcompiler=-fPIC,-Wall,-Wextra)
  foreach(arch 80 90 100)
    list(APPEND flags -gencode arch=compute_${arch},code=sm_${arch})
  endforeach()
  list(APPEND flags -gencode arch=compute_100,code=compute_100)
  set(objects)
  foreach(source IN LISTS A_SOURCES)
    set(object ${CMAKE_CURRENT_BINARY_DIR}/nvcc/${source}.o)
    get_filename_component(directory ${object} DIRECTORY)
    file(MAKE_DIRECTORY ${directory})
    add_custom_command(OUTPUT ${object}
      COMMAND ${CTRAIN_CCACHE} ${CTRAIN_NVCC} ${flags} -MD -MF ${object}.d -c ${CMAKE_CURRENT_SOURCE_DIR}/${source} -o ${object}
      DEPENDS ${source} DEPFILE ${object}.d COMMENT "nvcc ${source}" VERBATIM COMMAND_EXPAND_LISTS)
    set_source_files_properties(${object} PROPERTIES EXTERNAL_OBJECT TRUE GENERATED TRUE)
    list(APPEND objects ${object})
  endforeach()
  set(${var} ${objects} PARENT_SCOPE)
endfunction()
