# Options, and the functions that the directories' CMakeLists.txt call.

set(CTRAIN_ONEDNN AUTO CACHE STRING "CPU engine on oneDNN: ON, OFF, or AUTO (where oneDNN is installed)")
set(CTRAIN_GLOO AUTO CACHE STRING "CPU collectives across hosts on gloo: ON, OFF, or AUTO (where gloo is installed)")
set(CTRAIN_HWLOC AUTO CACHE STRING "Binding of ranks to cores and NUMA nodes with hwloc: ON, OFF, or AUTO (where hwloc is installed)")
set(CTRAIN_MPI AUTO CACHE STRING "Collectives on MPI: ON, OFF, or AUTO (where Open MPI or MPICH is installed)")
set(CTRAIN_TESTS AUTO CACHE STRING "Build the tests: ON, OFF, or AUTO (where cmocka is installed)")
option(CTRAIN_BENCH "Build the programs of bench/" ON)
option(CTRAIN_FUZZ "Build the fuzz targets (needs clang)" OFF)
option(CTRAIN_HARDEN "Hardening flags in builds that are not Debug and have no sanitizers" ON)
set(CTRAIN_NATIVE "" CACHE FILEPATH "A ctrain that runs on this machine, to make man page and completions when cross-compiling")
option(CTRAIN_WERROR "Warnings are errors" OFF)
set(CTRAIN_SANITIZE "" CACHE STRING "address;undefined or thread")
option(CTRAIN_COVERAGE "Count which lines run (needs gcc; see scripts/coverage.py)" OFF)

# Where files are installed (CMAKE_INSTALL_LIBDIR and the like choose other directories). The program finds its modules and configs relative to
# itself, so that the installed tree can be moved.
include(GNUInstallDirs)
set(CT_MODULE_DESTINATION ${CMAKE_INSTALL_LIBDIR}/ctrain)
set(CT_SHARE_DESTINATION ${CMAKE_INSTALL_DATADIR}/ctrain)
file(RELATIVE_PATH CT_MODULE_PLACE ${CMAKE_INSTALL_FULL_BINDIR} ${CMAKE_INSTALL_FULL_LIBDIR}/ctrain)
file(RELATIVE_PATH CT_SHARE_PLACE ${CMAKE_INSTALL_FULL_BINDIR} ${CMAKE_INSTALL_FULL_DATADIR}/ctrain)

# The program that makes man page and completions; empty: they are left out. Nothing that was built for another machine runs here.
set(CT_PAGES_PROGRAM ctrain)
if(CTRAIN_NATIVE)
  set(CT_PAGES_PROGRAM ${CTRAIN_NATIVE})
elseif(CMAKE_CROSSCOMPILING)
  message(STATUS "no man page and no completions: cross-compiling (-DCTRAIN_NATIVE=PATH names a ctrain that runs here and makes them)")
  set(CT_PAGES_PROGRAM "")
endif()

# AUTO becomes ON or OFF here. The cache keeps AUTO, so that a later configuration decides again.
if(CTRAIN_TESTS STREQUAL "AUTO")
  find_package(PkgConfig REQUIRED)
  pkg_check_modules(CMOCKA QUIET cmocka)
  set(CTRAIN_TESTS OFF)
  if(CMOCKA_FOUND)
    set(CTRAIN_TESTS ON)
  endif()
endif()

# ct_sources(var DIRECTORY...): the C files of these directories (not of their sub-directories).
function(ct_sources var)
  set(all)
  foreach(directory IN LISTS ARGN)
    file(GLOB found RELATIVE ${CMAKE_CURRENT_SOURCE_DIR} CONFIGURE_DEPENDS ${directory}/*.c)
    list(APPEND all ${found})
  endforeach()
  set(${var} ${all} PARENT_SCOPE)
endfunction()

# ct_set_flags("flag;..." FILE...): compile options of single files.
function(ct_set_flags flags)
  set_source_files_properties(${ARGN} PROPERTIES COMPILE_OPTIONS "${flags}")
endfunction()

# ct_add_module(name SOURCES... [LINK libs...]): a directory's static library `ct_<name>`.
function(ct_add_module name)
  cmake_parse_arguments(A "" "" "SOURCES;LINK" ${ARGN})
  add_library(ct_${name} STATIC ${A_SOURCES})
  target_link_libraries(ct_${name} PUBLIC ct_flags ${A_LINK})
endfunction()

# ct_add_backend(module NAME source... LINK libs...): compiles a back end into ct_<module> and defines CT_WITH_<NAME>
# there, or does nothing when the option CTRAIN_<NAME> is off. The registry array is the only reader of CT_WITH_<NAME>.
function(ct_add_backend module name)
  cmake_parse_arguments(A "" "" "SOURCES;LINK" ${ARGN})
  if(NOT DEFINED CTRAIN_${name})
    message(FATAL_ERROR "back end ${name}: cmake/CtOptions.cmake has no option CTRAIN_${name}")
  endif()
  if(NOT CTRAIN_${name})
    return()
  endif()
  target_sources(ct_${module} PRIVATE ${A_SOURCES})
  target_compile_definitions(ct_${module} PRIVATE CT_WITH_${name}=1)
  target_link_libraries(ct_${module} PRIVATE ${A_LINK})
endfunction()

# What a module and the program must have in common: the version and the headers that modules include.
file(GLOB_RECURSE ct_module_headers CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/base/*.h ${CMAKE_SOURCE_DIR}/nn/*.h
  ${CMAKE_SOURCE_DIR}/dist/*.h)
set_property(DIRECTORY ${CMAKE_SOURCE_DIR} APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${ct_module_headers})
set(ct_build_hash "")
foreach(header IN LISTS ct_module_headers)
  file(SHA256 ${header} hash)
  string(APPEND ct_build_hash ${hash})
endforeach()
string(SHA256 ct_build_hash "${ct_build_hash}")
string(SUBSTRING ${ct_build_hash} 0 16 ct_build_hash)
# ct_set_build_id(sources...): defines CT_BUILD_ID for them.
function(ct_set_build_id)
  set_property(SOURCE ${ARGN} APPEND PROPERTY COMPILE_DEFINITIONS CT_BUILD_ID="${PROJECT_VERSION}-${ct_build_hash}")
endfunction()

# ct_link_whole(target LIBRARY...): links every object of these static libraries, also those that the target does not refer to. For a
# program that opens shared objects: they use functions that the program exports, and the linker cannot know which.
function(ct_link_whole target)
  target_link_libraries(${target} PRIVATE -Wl,--whole-archive ${ARGN} -Wl,--no-whole-archive)
endfunction()

# ct_add_shared_object(name SOURCES... LINK libs...): NAME.so beside the program, opened by ct_module_open. It uses the functions of
# base/, nn/ and dist/ that the program exports (see ct_link_whole) and has no copies of its own.
function(ct_add_shared_object name)
  cmake_parse_arguments(A "" "" "SOURCES;LINK" ${ARGN})
  add_library(${name} MODULE ${A_SOURCES})
  target_link_libraries(${name} PRIVATE ct_flags ${A_LINK})
  set_target_properties(${name} PROPERTIES PREFIX "" SUFFIX .so LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR})
endfunction()

# ct_add_test(name LABEL unit|ops|dist|... SOURCES... LINK libs... [TIMEOUT s] [COST s] [ARGS...]): a cmocka program that ctest runs. COST:
# about how long a long test takes. ctest starts those that take longest first, so that none of them ends alone.
function(ct_add_test name)
  cmake_parse_arguments(A "" "LABEL;TIMEOUT;COST" "SOURCES;LINK;ARGS" ${ARGN})
  add_executable(${name} ${A_SOURCES})
  target_link_libraries(${name} PRIVATE ct_flags ${A_LINK} ct_cmocka)
  add_test(NAME ${name} COMMAND ${name} ${A_ARGS})
  if(NOT A_TIMEOUT)
    set(A_TIMEOUT 240)
  endif()
  if(CMAKE_CROSSCOMPILING) # the tests run in an emulator
    math(EXPR A_TIMEOUT "8 * ${A_TIMEOUT}")
  elseif(CTRAIN_SANITIZE OR CTRAIN_COVERAGE)
    math(EXPR A_TIMEOUT "2 * ${A_TIMEOUT}")
  endif()
  if(NOT A_COST)
    set(A_COST 0)
  endif()
  # Compute threads that spin while they wait are many times slower when other tests use the cores.
  set_tests_properties(${name} PROPERTIES LABELS "${A_LABEL}" TIMEOUT ${A_TIMEOUT} COST ${A_COST} SKIP_RETURN_CODE 77
    ENVIRONMENT "OMP_WAIT_POLICY=passive")
endfunction()
