# libweir: the core compiled once, as libweir.so, as libweir.a, and into everything else that is built here.
file(GLOB WEIR_CORE_SOURCES CONFIGURE_DEPENDS src/base/*.c src/os/*.c src/io/*.c src/format/*.c src/pack/*.c src/residency/*.c src/plan/*.c)
add_library(weir_objects OBJECT ${WEIR_CORE_SOURCES})
target_include_directories(weir_objects PUBLIC include src)
target_link_libraries(weir_objects PUBLIC ${WEIR_CORE_LIBRARIES})
if(URING_FOUND)
  target_compile_definitions(weir_objects PUBLIC WEIR_HAVE_URING=1)
endif()

# What libweir.so exports is what the public headers declare, no more.
file(GLOB WEIR_PUBLIC_HEADERS CONFIGURE_DEPENDS include/weir/*.h)
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${WEIR_PUBLIC_HEADERS})
set(WEIR_PUBLIC_NAMES)
foreach(header ${WEIR_PUBLIC_HEADERS})
  file(STRINGS ${header} lines REGEX "^[a-z].*weir_[a-z0-9_]+\\(")
  foreach(line ${lines})
    string(REGEX REPLACE "^[^(]*[ *](weir_[a-z0-9_]+)\\(.*" "\\1" name "${line}")
    list(APPEND WEIR_PUBLIC_NAMES ${name})
  endforeach()
endforeach()
list(REMOVE_DUPLICATES WEIR_PUBLIC_NAMES)
list(JOIN WEIR_PUBLIC_NAMES ";\n\t\t" WEIR_PUBLIC_SYMBOLS)
configure_file(${PROJECT_SOURCE_DIR}/packaging/libweir.map.in ${CMAKE_BINARY_DIR}/libweir.map @ONLY)

add_library(weir_shared SHARED $<TARGET_OBJECTS:weir_objects>)
set_target_properties(weir_shared PROPERTIES
  OUTPUT_NAME weir VERSION ${PROJECT_VERSION} SOVERSION ${PROJECT_VERSION_MAJOR} EXPORT_NAME weir
  LINK_DEPENDS ${CMAKE_BINARY_DIR}/libweir.map)
target_include_directories(weir_shared INTERFACE
  $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include> $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
target_link_libraries(weir_shared PRIVATE ${WEIR_CORE_LIBRARIES})
target_link_options(weir_shared PRIVATE ${WEIR_GUARD_LINK})
target_link_options(weir_shared PRIVATE -Wl,--version-script=${CMAKE_BINARY_DIR}/libweir.map)

add_library(weir_static STATIC $<TARGET_OBJECTS:weir_objects>)
set_target_properties(weir_static PROPERTIES OUTPUT_NAME weir EXPORT_NAME static)
target_include_directories(weir_static PUBLIC
  $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include> $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/src>
  $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
target_link_libraries(weir_static PUBLIC ${WEIR_CORE_LIBRARIES})
target_link_options(weir_static INTERFACE $<BUILD_INTERFACE:${WEIR_GUARD_LINK}>)
if(URING_FOUND)
  target_compile_definitions(weir_static PUBLIC $<BUILD_INTERFACE:WEIR_HAVE_URING=1>)
endif()

add_library(weir::weir ALIAS weir_shared)
add_library(weir::static ALIAS weir_static)
