# Run by cpack: the version is that of the last build, and all packages have the same.
file(STRINGS ${CPACK_CTRAIN_VERSION_FILE} CPACK_PACKAGE_VERSION LIMIT_COUNT 1)
set(CPACK_DEBIAN_GLOO_PACKAGE_DEPENDS "ctrain (= ${CPACK_PACKAGE_VERSION})")
set(CPACK_DEBIAN_MPI_PACKAGE_DEPENDS "ctrain (= ${CPACK_PACKAGE_VERSION})")
# pkg-config needs the .pc files of the libraries that the static library uses, also to link the shared one.
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_DEPENDS "libctrain-infer0 (= ${CPACK_PACKAGE_VERSION}), libjansson-dev, nettle-dev")
if(CPACK_CTRAIN_ONEDNN)
  string(APPEND CPACK_DEBIAN_DEVELOPMENT_PACKAGE_DEPENDS ", libdnnl-dev")
endif()
