# Adds the flags for hardening that compiler and linker have to ct_flags. CT_HARDEN_FLAGS: those that the compiler of .cu files passes on.
include(CheckCSourceCompiles)
include(CheckCCompilerFlag)
include(CheckLinkerFlag)
include(CMakePushCheckState)

# ct_try_fortify(LEVEL VARIABLE): whether the library has this level and nobody has chosen one yet. Ubuntu's compiler and the flags of the user may
# define it. It needs optimization, without which headers warn.
string(TOUPPER "${CMAKE_BUILD_TYPE}" type)
function(ct_try_fortify level variable)
  cmake_push_check_state(RESET)
  set(CMAKE_REQUIRED_FLAGS "${CMAKE_C_FLAGS_${type}} -Werror")
  check_c_source_compiles("
    #if defined _FORTIFY_SOURCE || !defined __OPTIMIZE__
    #error chosen already, or of no use
    #endif
    #define _FORTIFY_SOURCE ${level}
    #include <string.h>
    int main(int argc, char **argv) { char a[8]; strncpy(a, argv[0], sizeof(a) - 1); return a[argc & 7]; }" ${variable})
  cmake_pop_check_state()
endfunction()

ct_try_fortify(3 CT_HAS_FORTIFY_3)
if(CT_HAS_FORTIFY_3)
  set(fortify 3)
else()
  ct_try_fortify(2 CT_HAS_FORTIFY_2)
  set(fortify 2)
endif()
if(CT_HAS_FORTIFY_3 OR CT_HAS_FORTIFY_2)
  target_compile_definitions(ct_flags INTERFACE $<$<NOT:$<CONFIG:Debug>>:_FORTIFY_SOURCE=${fortify}>)
endif()

set(CT_HARDEN_FLAGS)
check_c_compiler_flag(-fstack-protector-strong CT_HAS_STACK_PROTECTOR)
if(CT_HAS_STACK_PROTECTOR)
  set(CT_HARDEN_FLAGS -fstack-protector-strong)
  target_compile_options(ct_flags INTERFACE ${CT_HARDEN_FLAGS})
endif()

check_linker_flag(C -Wl,-z,relro,-z,now CT_HAS_RELRO)
if(CT_HAS_RELRO)
  target_link_options(ct_flags INTERFACE -Wl,-z,relro,-z,now)
endif()
