# What the distribution provides. A missing package is an error that names it; nothing is downloaded or vendored.
find_package(Threads REQUIRED)
find_package(PkgConfig REQUIRED)
find_package(ZLIB REQUIRED)
pkg_check_modules(YAML REQUIRED IMPORTED_TARGET yaml-0.1)
pkg_check_modules(JANSSON REQUIRED IMPORTED_TARGET jansson)
pkg_check_modules(NETTLE REQUIRED IMPORTED_TARGET nettle)
pkg_check_modules(DEFLATE REQUIRED IMPORTED_TARGET libdeflate)
pkg_check_modules(SPNG REQUIRED IMPORTED_TARGET spng)

find_package(JPEG)
if(NOT JPEG_FOUND)
  message(FATAL_ERROR "libjpeg-turbo not found: install libjpeg-dev (scripts/setup.sh)")
endif()
# The original libjpeg and others of its name cannot decode a part of an image.
include(CMakePushCheckState)
include(CheckCSourceCompiles)
cmake_push_check_state(RESET)
set(CMAKE_REQUIRED_LIBRARIES JPEG::JPEG)
check_c_source_compiles("
  #include <stdio.h>
  #include <jpeglib.h>
  int main(void) { (void)jpeg_crop_scanline; (void)jpeg_skip_scanlines; (void)jpeg_mem_src; return JCS_EXT_RGBX == 0; }"
  CT_JPEG_IS_TURBO)
cmake_pop_check_state()
if(NOT CT_JPEG_IS_TURBO)
  message(FATAL_ERROR "the libjpeg found (${JPEG_LIBRARIES}) is not libjpeg-turbo 1.5 or later, which decodes only the "
    "part of an image that is needed: install libjpeg-turbo's libjpeg-dev, or point CMAKE_PREFIX_PATH at it")
endif()

# The threads of base/parallel.c. oneDNN runs on the same ones.
find_package(OpenMP QUIET COMPONENTS C)

if(CTRAIN_ONEDNN)
  # CTRAIN_DNNL_ROOT: a oneDNN outside the distribution's directories (tests against another major version).
  find_path(DNNL_INCLUDE_DIR dnnl.h HINTS ${CTRAIN_DNNL_ROOT}/include)
  find_library(DNNL_LIBRARY dnnl HINTS ${CTRAIN_DNNL_ROOT}/lib)
  if(NOT DNNL_INCLUDE_DIR OR NOT DNNL_LIBRARY)
    message(FATAL_ERROR "oneDNN not found: install libdnnl-dev, or configure with -DCTRAIN_ONEDNN=OFF")
  endif()
  if(NOT OpenMP_C_FOUND)
    message(FATAL_ERROR "oneDNN needs OpenMP, which this C compiler lacks: configure with -DCTRAIN_ONEDNN=OFF")
  endif()
  add_library(ct_dnnl INTERFACE)
  target_include_directories(ct_dnnl SYSTEM INTERFACE ${DNNL_INCLUDE_DIR})
  target_link_libraries(ct_dnnl INTERFACE ${DNNL_LIBRARY} OpenMP::OpenMP_C)
endif()

if(CTRAIN_GLOO)
  find_path(GLOO_INCLUDE_DIR gloo/context.h)
  find_library(GLOO_LIBRARY gloo)
  if(NOT GLOO_INCLUDE_DIR OR NOT GLOO_LIBRARY)
    message(FATAL_ERROR "gloo not found: install libgloo-dev, or configure with -DCTRAIN_GLOO=OFF")
  endif()
  add_library(ct_gloo INTERFACE)
  target_include_directories(ct_gloo SYSTEM INTERFACE ${GLOO_INCLUDE_DIR})
  target_link_libraries(ct_gloo INTERFACE ${GLOO_LIBRARY})
endif()

if(CTRAIN_TESTS)
  pkg_check_modules(CMOCKA IMPORTED_TARGET cmocka)
  if(NOT CMOCKA_FOUND)
    message(FATAL_ERROR "cmocka not found: install libcmocka-dev (scripts/setup.sh --test), or configure with -DCTRAIN_TESTS=OFF")
  endif()
  add_library(ct_cmocka INTERFACE)
  target_link_libraries(ct_cmocka INTERFACE PkgConfig::CMOCKA)
endif()
