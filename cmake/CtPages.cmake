# The man page and the completions, which the program makes from its tables after each build. Include it in the directory of the target ctrain.
if(CT_PAGES_PROGRAM)
  set(pages ${CMAKE_BINARY_DIR}/pages)
  add_custom_command(TARGET ctrain POST_BUILD COMMAND ${CMAKE_COMMAND} -E make_directory ${pages}
    COMMAND ${CT_PAGES_PROGRAM} man --out ${pages}/ctrain.1
    COMMAND ${CT_PAGES_PROGRAM} completion bash --out ${pages}/ctrain
    COMMAND ${CT_PAGES_PROGRAM} completion zsh --out ${pages}/_ctrain
    COMMAND ${CT_PAGES_PROGRAM} completion fish --out ${pages}/ctrain.fish VERBATIM)
endif()
