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

find_program(CTRAIN_CCACHE ccache)
if(CTRAIN_CCACHE AND NOT CMAKE_C_COMPILER_LAUNCHER)
  set(CMAKE_C_COMPILER_LAUNCHER ${CTRAIN_CCACHE})
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CTRAIN_CCACHE})
endif()

add_library(ct_flags INTERFACE)
target_include_directories(ct_flags INTERFACE ${CMAKE_SOURCE_DIR})
target_compile_definitions(ct_flags INTERFACE _GNU_SOURCE)
target_compile_options(ct_flags INTERFACE
  -Wall -Wextra -Wshadow -Wvla -Wformat=2 -Wundef -Wpointer-arith
  $<$<COMPILE_LANGUAGE:C>:-Wstrict-prototypes -Wmissing-prototypes -Wold-style-definition>
  -fno-omit-frame-pointer -ffp-contract=off)
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

# Hardening, in all builds but Debug: checked copies, guards on the stack, and tables of the linker that are read-only once the program
# runs. Sanitizers check more, and do not see the calls that checked copies replace.
if(CTRAIN_HARDEN AND NOT CTRAIN_SANITIZE AND NOT CMAKE_BUILD_TYPE STREQUAL "Debug")
  include(CtHarden)
endif()
