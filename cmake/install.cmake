# `cmake --install`: program, library, backend, headers, pkg-config file, CMake package, manual pages.
include(CMakePackageConfigHelpers)
set(WEIR_CMAKE_DIR ${CMAKE_INSTALL_LIBDIR}/cmake/weir)

install(TARGETS weir_shared EXPORT weir-targets)
install(TARGETS weir_static EXPORT weir-static-targets)
install(EXPORT weir-targets NAMESPACE weir:: DESTINATION ${WEIR_CMAKE_DIR})
install(EXPORT weir-static-targets NAMESPACE weir:: DESTINATION ${WEIR_CMAKE_DIR})
install(DIRECTORY include/weir DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} FILES_MATCHING PATTERN *.h)

foreach(target weir_backend weir_preload)
  if(TARGET ${target})
    install(TARGETS ${target} LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
  endif()
endforeach()
if(TARGET weir_program)
  install(TARGETS weir_program RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
endif()
# An engine that was built along goes with the program, in a folder of its own.
if(WEIR_ENGINE_FOUND AND WEIR_LLAMA_SOURCE)
  foreach(target llama ggml ggml-base ggml-cpu)
    install(FILES $<TARGET_FILE:${target}> DESTINATION ${CMAKE_INSTALL_LIBDIR}/weir RENAME $<TARGET_SONAME_FILE_NAME:${target}>)
  endforeach()
endif()

# The pkg-config file finds its prefix from where it lies, so that an installed tree can be moved.
file(RELATIVE_PATH WEIR_PC_TO_PREFIX ${CMAKE_INSTALL_FULL_LIBDIR}/pkgconfig ${CMAKE_INSTALL_PREFIX})
string(REGEX REPLACE "/$" "" WEIR_PC_TO_PREFIX "${WEIR_PC_TO_PREFIX}")
configure_file(packaging/weir.pc.in ${CMAKE_BINARY_DIR}/weir.pc @ONLY)
install(FILES ${CMAKE_BINARY_DIR}/weir.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)

configure_package_config_file(packaging/weir-config.cmake.in ${CMAKE_BINARY_DIR}/weir-config.cmake
  INSTALL_DESTINATION ${WEIR_CMAKE_DIR} NO_SET_AND_CHECK_MACRO NO_CHECK_REQUIRED_COMPONENTS_MACRO)
write_basic_package_version_file(${CMAKE_BINARY_DIR}/weir-config-version.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_BINARY_DIR}/weir-config.cmake ${CMAKE_BINARY_DIR}/weir-config-version.cmake DESTINATION ${WEIR_CMAKE_DIR})

foreach(section 1 3 7)
  file(GLOB pages CONFIGURE_DEPENDS man/*.${section})
  if(pages)
    install(FILES ${pages} DESTINATION ${CMAKE_INSTALL_MANDIR}/man${section})
  endif()
endforeach()
install(FILES LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR})
