# Run inside ggml's own project while the engine is built (CMAKE_PROJECT_ggml_INCLUDE): installs the headers that a ggml
# backend outside ggml's tree needs and that ggml does not install.
install(FILES
  ${CMAKE_CURRENT_SOURCE_DIR}/src/ggml-backend-impl.h
  ${CMAKE_CURRENT_SOURCE_DIR}/src/ggml-impl.h
  DESTINATION include/ggml-internal)
