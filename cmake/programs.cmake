# The ggml backend (libggml-weir.so), the preloaded object that keeps stock programs from reading a whole model at start, and
# the program.
file(GLOB WEIR_PRELOAD_SOURCES CONFIGURE_DEPENDS src/ggml/preload/*.c)
file(GLOB WEIR_BACKEND_SOURCES CONFIGURE_DEPENDS src/ggml/*.c)
file(GLOB WEIR_ENGINE_SOURCES CONFIGURE_DEPENDS src/engine/*.c src/engine/*.cpp)
file(GLOB WEIR_PROGRAM_SOURCES CONFIGURE_DEPENDS programs/*.c)

if(WEIR_PRELOAD_SOURCES)
  add_library(weir_preload MODULE ${WEIR_PRELOAD_SOURCES})
  set_target_properties(weir_preload PROPERTIES OUTPUT_NAME weir-mmap-preload)
  target_link_libraries(weir_preload PRIVATE ${CMAKE_DL_LIBS})
endif()

if(WEIR_ENGINE_FOUND AND WEIR_BACKEND_SOURCES)
  add_library(weir_backend_objects OBJECT ${WEIR_BACKEND_SOURCES})
  target_link_libraries(weir_backend_objects PUBLIC weir_engine weir_objects)

  add_library(weir_backend MODULE $<TARGET_OBJECTS:weir_backend_objects> $<TARGET_OBJECTS:weir_objects>)
  set_target_properties(weir_backend PROPERTIES
    OUTPUT_NAME ggml-weir INSTALL_RPATH "${WEIR_ENGINE_RUN_PATH}" LINK_DEPENDS ${PROJECT_SOURCE_DIR}/packaging/libggml-weir.map)
  target_link_libraries(weir_backend PRIVATE weir_engine ${WEIR_CORE_LIBRARIES})
  target_link_options(weir_backend PRIVATE -Wl,--version-script=${PROJECT_SOURCE_DIR}/packaging/libggml-weir.map)
endif()

if(TARGET weir_backend AND WEIR_ENGINE_SOURCES)
  add_library(weir_engine_objects OBJECT ${WEIR_ENGINE_SOURCES})
  target_link_libraries(weir_engine_objects PUBLIC weir_backend_objects)
endif()

# Without the engine, the program lacks the commands whose source includes its headers, itself or by a header of programs/.
if(NOT TARGET weir_engine_objects)
  file(GLOB headers CONFIGURE_DEPENDS programs/*.h)
  set(needs "engine/|ggml|llama")
  foreach(file ${headers} ${headers} ${WEIR_PROGRAM_SOURCES})
    file(STRINGS ${file} found REGEX "^#include [<\"](${needs})")
    if(found)
      get_filename_component(name ${file} NAME)
      string(APPEND needs "|${name}")
      list(REMOVE_ITEM WEIR_PROGRAM_SOURCES ${file})
    endif()
  endforeach()
endif()

if(WEIR_PROGRAM_SOURCES)
  add_executable(weir_program ${WEIR_PROGRAM_SOURCES} $<TARGET_OBJECTS:weir_objects>)
  set_target_properties(weir_program PROPERTIES OUTPUT_NAME weir LINKER_LANGUAGE CXX)
  target_include_directories(weir_program PRIVATE include src)
  target_link_libraries(weir_program PRIVATE ${WEIR_CORE_LIBRARIES})
  target_compile_definitions(weir_program PRIVATE WEIR_INSTALL_LIB_DIR="${CMAKE_INSTALL_FULL_LIBDIR}")
endif()
if(TARGET weir_program AND WEIR_ENGINE_FOUND)
  target_compile_definitions(weir_program PRIVATE
    WEIR_ENGINE_BIN_DIR="${WEIR_ENGINE_BIN_DIR}" WEIR_ENGINE_LIB_DIR="${WEIR_ENGINE_LIB_DIR}")
endif()
if(TARGET weir_program AND TARGET weir_engine_objects)
  # ENABLE_EXPORTS: the program's own mmap and posix_madvise must win over libc's in libllama's calls.
  set_target_properties(weir_program PROPERTIES ENABLE_EXPORTS ON INSTALL_RPATH "${WEIR_ENGINE_RUN_PATH}")
  target_sources(weir_program PRIVATE $<TARGET_OBJECTS:weir_engine_objects> $<TARGET_OBJECTS:weir_backend_objects>)
  target_link_libraries(weir_program PRIVATE weir_engine)
  add_dependencies(weir_program weir_backend)
  if(TARGET weir_preload)
    add_dependencies(weir_program weir_preload)
  endif()
endif()
