# The build type, the flags of all code, the compiler cache and the sanitizers. ct_flags is the target that has the flags.

set(CMAKE_C_STANDARD 17)
set(CMAKE_C_EXTENSIONS ON) # gnu17: POSIX and Linux calls
set(CMAKE_CXX_STANDARD 17)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_ENABLE_EXPORTS ON) # programs export their functions to the shared objects of ct_add_shared_object
if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "" FORCE)
endif()

# Objects do not contain the path of this directory, so that builds in different directories are the same byte for byte. A debugger that
# runs in this directory finds the sources. Where the compiler lacks the flag, paths remain.
include(CheckCCompilerFlag)
check_c_compiler_flag(-ffile-prefix-map=a=b CT_HAS_FILE_PREFIX_MAP)
set(CT_PREFIX_MAP)
if(CT_HAS_FILE_PREFIX_MAP AND NOT CTRAIN_COVERAGE) # gcov looks for counters and sources where the build was
  set(CT_PREFIX_MAP -ffile-prefix-map=${CMAKE_SOURCE_DIR}=.)
  string(FIND "${CMAKE_BINARY_DIR}/" "${CMAKE_SOURCE_DIR}/" inside)
  if(NOT inside EQUAL 0)
    list(APPEND CT_PREFIX_MAP -ffile-prefix-map=${CMAKE_BINARY_DIR}=./build)
  endif()
endif()

# The compiler cache knows a file again in another checkout, because it does not look at the directory either.
find_program(CTRAIN_CCACHE ccache)
find_program(CTRAIN_ENV env)
set(CT_LAUNCHER)
if(CTRAIN_CCACHE AND CTRAIN_ENV AND CT_HAS_FILE_PREFIX_MAP)
  set(CT_LAUNCHER ${CTRAIN_ENV} CCACHE_BASEDIR=${CMAKE_SOURCE_DIR} CCACHE_NOHASHDIR=1 ${CTRAIN_CCACHE})
elseif(CTRAIN_CCACHE)
  set(CT_LAUNCHER ${CTRAIN_CCACHE})
endif()
foreach(language C CXX)
  if(CT_LAUNCHER AND NOT CMAKE_${language}_COMPILER_LAUNCHER)
    set(CMAKE_${language}_COMPILER_LAUNCHER ${CT_LAUNCHER})
  endif()
endforeach()

add_library(ct_flags INTERFACE)
target_include_directories(ct_flags INTERFACE ${CMAKE_SOURCE_DIR})
target_compile_definitions(ct_flags INTERFACE _GNU_SOURCE)
target_compile_options(ct_flags INTERFACE
  -Wall -Wextra -Wshadow -Wvla -Wformat=2 -Wundef -Wpointer-arith
  $<$<COMPILE_LANGUAGE:C>:-Wstrict-prototypes -Wmissing-prototypes -Wold-style-definition>
  -fno-omit-frame-pointer -ffp-contract=off ${CT_PREFIX_MAP})
if(CTRAIN_WERROR)
  target_compile_options(ct_flags INTERFACE -Werror)
endif()
foreach(san IN LISTS CTRAIN_SANITIZE)
  target_compile_options(ct_flags INTERFACE -fsanitize=${san} -fno-sanitize-recover=all)
  target_link_options(ct_flags INTERFACE -fsanitize=${san})
endforeach()
if("thread" IN_LIST CTRAIN_SANITIZE AND CMAKE_C_COMPILER_ID STREQUAL GNU)
  # gcc warns that ThreadSanitizer does not support fences. Ours order atomics between processes, which it does not check anyway.
  target_compile_options(ct_flags INTERFACE -Wno-tsan)
endif()
if(CTRAIN_COVERAGE)
  # Counters are written by exit. Our tests and ranks also end in other ways: see tests/coverage_exit.c.
  add_library(ct_coverage STATIC ${CMAKE_SOURCE_DIR}/tests/coverage_exit.c)
  target_compile_options(ct_flags INTERFACE --coverage)
  target_link_options(ct_flags INTERFACE --coverage -Wl,--wrap=_exit,--wrap=raise,--wrap=__gcov_fork)
  target_link_libraries(ct_flags INTERFACE ct_coverage)
endif()

# Hardening, in all builds but Debug: checked copies, guards on the stack, and tables of the linker that are read-only once the program
# runs. Sanitizers check more, and do not see the calls that checked copies replace.
if(CTRAIN_HARDEN AND NOT CTRAIN_SANITIZE AND NOT CMAKE_BUILD_TYPE STREQUAL "Debug")
  include(CtHarden)
endif()
