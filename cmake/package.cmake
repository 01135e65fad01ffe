# Run by cpack: the version is that of the last build, and all packages have the same.
file(STRINGS ${CPACK_CTRAIN_VERSION_FILE} CPACK_PACKAGE_VERSION LIMIT_COUNT 1)
set(CPACK_DEBIAN_GLOO_PACKAGE_DEPENDS "ctrain (= ${CPACK_PACKAGE_VERSION})")
set(CPACK_DEBIAN_MPI_PACKAGE_DEPENDS "ctrain (= ${CPACK_PACKAGE_VERSION})")
