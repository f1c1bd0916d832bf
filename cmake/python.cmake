# What a wheel holds besides the Python sources: python -m pip install .  (pyproject.toml; component "python").
#
#   weir/lib/libweir.so.0, libggml-weir.so, libweir-mmap-preload.so     weir/bin/weir
#
# Wheels hold no links, so each library is there once, under the name that it is loaded by.  Backend and program are there when
# an engine was found; the program then looks for the engine's libraries where they were, and where llama-cpp-python has them.
set(WEIR_PYTHON_LIB weir/lib)
install(FILES $<TARGET_FILE:weir_shared> DESTINATION ${WEIR_PYTHON_LIB} RENAME libweir.so.0 COMPONENT python)
foreach(target weir_backend weir_preload)
  if(TARGET ${target})
    install(TARGETS ${target} LIBRARY DESTINATION ${WEIR_PYTHON_LIB} COMPONENT python)
  endif()
endforeach()
if(TARGET weir_program)
  set_target_properties(weir_program PROPERTIES INSTALL_RPATH "$ORIGIN/../../llama_cpp/lib;${WEIR_ENGINE_RUN_PATH}")
  install(TARGETS weir_program RUNTIME DESTINATION weir/bin COMPONENT python)
endif()
