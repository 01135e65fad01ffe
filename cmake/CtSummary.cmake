message(STATUS "ctrain ${PROJECT_VERSION}: ${CMAKE_BUILD_TYPE}, oneDNN ${CTRAIN_ONEDNN}, gloo ${CTRAIN_GLOO}, "
  "hwloc ${CTRAIN_HWLOC}, MPI '${CT_MPI}', "
  "tests ${CTRAIN_TESTS}, fuzz ${CTRAIN_FUZZ}, sanitize '${CTRAIN_SANITIZE}'")
