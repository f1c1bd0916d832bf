# The libraries that weir's core stands on.  liburing is optional: without it reads go through threads.
find_package(PkgConfig REQUIRED)
pkg_check_modules(JANSSON REQUIRED IMPORTED_TARGET jansson)
pkg_check_modules(XXHASH REQUIRED IMPORTED_TARGET libxxhash)
pkg_check_modules(URING IMPORTED_TARGET liburing)
find_package(Threads REQUIRED)

set(WEIR_CORE_LIBRARIES PkgConfig::JANSSON PkgConfig::XXHASH Threads::Threads m)
set(WEIR_CMAKE_MODULES JANSSON:jansson XXHASH:libxxhash) # for users of the static library: name:module
set(WEIR_PC_REQUIRES "jansson libxxhash")
if(URING_FOUND)
  list(APPEND WEIR_CORE_LIBRARIES PkgConfig::URING)
  list(APPEND WEIR_CMAKE_MODULES URING:liburing)
  string(APPEND WEIR_PC_REQUIRES " liburing")
endif()
