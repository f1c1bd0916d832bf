# Tests, found by their place:
#   tests/unit/test_X.c       one cmocka program each, over libweir.a
#   tests/reference/X.c       programs over the engine alone, which results are compared with
#   tests/program/test_X.py   whole-program tests, run by Python with the build folder in WEIR_BUILD_DIR
#   tests/python/test_X.py    the Python package over libweir.so, run by the engine's Python, which has NumPy
#   tests/mlx/test_X.py       weir.mlx, run by the Python that tools/setup/mlx.sh set up
#   tests/torch/test_X.py     the Python package with PyTorch, run by WEIR_TORCH_PYTHON
#   fuzz/fuzz_X.c             run over fuzz/corpus/X by fuzz/replay.c
#   tests/install             a program built against the installed tree
#   tools/check/*.py          rules about the sources
pkg_check_modules(CMOCKA IMPORTED_TARGET cmocka)
find_program(WEIR_PYTHON NAMES python3 REQUIRED)
if(EXISTS ${WEIR_ENGINE_DIR}/../../../bin/python3)
  get_filename_component(WEIR_TEST_PYTHON ${WEIR_ENGINE_DIR}/../../../bin/python3 ABSOLUTE)
else()
  set(WEIR_TEST_PYTHON ${WEIR_PYTHON})
endif()
set(WEIR_TEST_ENVIRONMENT
  "WEIR_BUILD_DIR=${CMAKE_BINARY_DIR}" "WEIR_SOURCE_DIR=${PROJECT_SOURCE_DIR}"
  "WEIR_ENGINE_DIR=${WEIR_ENGINE_DIR}" "WEIR_PROGRAM=${CMAKE_BINARY_DIR}/weir" "WEIR_SANITIZE=${WEIR_SANITIZE}")

function(weir_add_cmocka_test source labels)
  get_filename_component(name ${source} NAME_WE)
  add_executable(${name} ${source})
  target_link_libraries(${name} PRIVATE weir_static PkgConfig::CMOCKA)
  add_test(NAME ${name} COMMAND ${name})
  set_tests_properties(${name} PROPERTIES TIMEOUT 300 LABELS "${labels}" ENVIRONMENT "${WEIR_TEST_ENVIRONMENT}")
endfunction()

# True when a test, or a header beside it that it includes, reaches for threads, reading or residency.
function(weir_uses_threads source result)
  get_filename_component(folder ${source} DIRECTORY)
  file(STRINGS ${source} lines REGEX "^#include \"")
  set(files ${source})
  foreach(line ${lines})
    string(REGEX REPLACE "^#include \"([^\"]*)\".*" "${folder}/\\1" header "${line}")
    if(EXISTS ${header})
      list(APPEND files ${header})
    endif()
  endforeach()
  set(${result} OFF PARENT_SCOPE)
  foreach(file ${files})
    file(STRINGS ${file} found REGEX "^#include [<\"](pthread|threads|io/|residency/|weir/store|weir/pack)")
    if(found)
      set(${result} ON PARENT_SCOPE)
    endif()
  endforeach()
endfunction()

if(CMOCKA_FOUND)
  file(GLOB WEIR_UNIT_TESTS CONFIGURE_DEPENDS tests/unit/test_*.c)
  foreach(source ${WEIR_UNIT_TESTS})
    weir_uses_threads(${source} threads)
    if(threads)
      weir_add_cmocka_test(${source} "unit;threads")
    else()
      weir_add_cmocka_test(${source} unit)
    endif()
  endforeach()
else()
  message(STATUS "weir: cmocka not found, the tests in C are not built")
endif()

# What the fuzzers start from, and what they found, run without libFuzzer; in every sanitized build too.
file(GLOB WEIR_FUZZERS CONFIGURE_DEPENDS fuzz/fuzz_*.c)
foreach(source ${WEIR_FUZZERS})
  get_filename_component(name ${source} NAME_WE)
  string(REPLACE fuzz_ "" corpus ${name})
  add_executable(${name}_replay ${source} fuzz/replay.c)
  target_link_libraries(${name}_replay PRIVATE weir_static)
  if(IS_DIRECTORY ${PROJECT_SOURCE_DIR}/fuzz/corpus/${corpus})
    add_test(NAME ${name} COMMAND ${name}_replay ${PROJECT_SOURCE_DIR}/fuzz/corpus/${corpus})
    set_tests_properties(${name} PROPERTIES TIMEOUT 120 LABELS fuzz)
  endif()
endforeach()

file(GLOB WEIR_REFERENCE_PROGRAMS CONFIGURE_DEPENDS tests/reference/*.c)
if(WEIR_ENGINE_FOUND)
  foreach(source ${WEIR_REFERENCE_PROGRAMS})
    get_filename_component(name ${source} NAME_WE)
    add_executable(${name} ${source})
    target_link_libraries(${name} PRIVATE weir_engine ${WEIR_CORE_LIBRARIES})
  endforeach()
endif()

file(GLOB WEIR_PROGRAM_TESTS CONFIGURE_DEPENDS tests/program/test_*.py)
if(TARGET weir_program)
  foreach(source ${WEIR_PROGRAM_TESTS})
    get_filename_component(name ${source} NAME_WE)
    string(REPLACE test_ program_ name ${name})
    add_test(NAME ${name} COMMAND ${WEIR_TEST_PYTHON} ${source} WORKING_DIRECTORY ${CMAKE_BINARY_DIR})
    set_tests_properties(${name} PROPERTIES
      TIMEOUT 900 PROCESSORS 2 LABELS program SKIP_RETURN_CODE 77 ENVIRONMENT "${WEIR_TEST_ENVIRONMENT}")
  endforeach()
endif()

# Tests of the Python package, labelled by their folder.
function(weir_add_python_tests label python seconds)
  file(GLOB sources CONFIGURE_DEPENDS tests/${label}/test_*.py)
  foreach(source ${sources})
    get_filename_component(name ${source} NAME_WE)
    string(REPLACE test_ ${label}_ name ${name})
    add_test(NAME ${name} COMMAND ${python} ${source} WORKING_DIRECTORY ${CMAKE_BINARY_DIR})
    set_tests_properties(${name} PROPERTIES TIMEOUT ${seconds} LABELS ${label} SKIP_RETURN_CODE 77
      ENVIRONMENT "${WEIR_TEST_ENVIRONMENT};PYTHONPATH=${PROJECT_SOURCE_DIR}/python;WEIR_LIBRARY=$<TARGET_FILE:weir_shared>")
  endforeach()
endfunction()

# PyTorch is large: its tests are there only when its Python is named (make check-torch).
set(WEIR_TORCH_PYTHON "" CACHE FILEPATH "a Python with PyTorch, for the tests in tests/torch; empty for none")
execute_process(COMMAND sh ${PROJECT_SOURCE_DIR}/tools/setup/mlx.sh --where
  OUTPUT_VARIABLE WEIR_MLX_PYTHON OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
if(NOT WEIR_SANITIZE) # an ordinary Python cannot load a sanitized library
  weir_add_python_tests(python ${WEIR_TEST_PYTHON} 300)
  if(WEIR_MLX_PYTHON)
    weir_add_python_tests(mlx ${WEIR_MLX_PYTHON} 900)
  endif()
  if(WEIR_TORCH_PYTHON)
    weir_add_python_tests(torch ${WEIR_TORCH_PYTHON} 300)
  endif()
endif()

# Sources and packaging; once, not again in the sanitized builds.
if(NOT WEIR_SANITIZE)
  add_test(NAME layers COMMAND ${WEIR_PYTHON} ${PROJECT_SOURCE_DIR}/tools/check/layers.py ${PROJECT_SOURCE_DIR})
  add_test(NAME limits COMMAND ${WEIR_PYTHON} ${PROJECT_SOURCE_DIR}/tools/check/limits.py ${PROJECT_SOURCE_DIR})
  add_test(NAME install COMMAND sh ${PROJECT_SOURCE_DIR}/tests/install/run.sh ${CMAKE_BINARY_DIR} ${PROJECT_SOURCE_DIR})
  set_tests_properties(layers limits install PROPERTIES LABELS sources TIMEOUT 120)
endif()
