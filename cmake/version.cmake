# Writes the version of the program to ${OUT}/ct_version.c and ${OUT}/version.txt, if it has changed: VERSION for a release (tag vVERSION)
# and for sources without git, else VERSION+gCOMMIT. Run as a script: cmake -DSOURCE=DIR -DVERSION=X -DOUT=DIR -P version.cmake
cmake_minimum_required(VERSION 3.21) # a script has no policies otherwise, and CMake warns about them
set(version ${VERSION})
set(unreleased "")
find_program(git git)
if(git AND EXISTS ${SOURCE}/.git)
  execute_process(COMMAND ${git} -C ${SOURCE} rev-parse --short=9 HEAD OUTPUT_VARIABLE commit OUTPUT_STRIP_TRAILING_WHITESPACE
    RESULT_VARIABLE failed ERROR_QUIET)
  execute_process(COMMAND ${git} -C ${SOURCE} tag --points-at HEAD OUTPUT_VARIABLE tags ERROR_QUIET)
  if(NOT failed AND NOT "\n${tags}" MATCHES "\nv${VERSION}\n")
    string(APPEND version "+g${commit}")
    set(unreleased ${commit})
  endif()
endif()
file(CONFIGURE OUTPUT ${OUT}/ct_version.c @ONLY CONTENT "#include \"trainer/job/version.h\"

const char *ct_version(void)
{
	return \"@version@\";
}

const char *ct_version_commit(void)
{
	return \"@unreleased@\";
}
")
file(CONFIGURE OUTPUT ${OUT}/version.txt CONTENT "@version@\n" @ONLY)
