# penstock-train, -eval and -generate as users run them: alone, as threads, under mpirun (tests/apps/programs/*_test.py).
include(PenstockMpiTest)
find_package(Python3 REQUIRED COMPONENTS Interpreter)

file(GLOB program_tests CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/apps/programs/*_test.py)
foreach(script IN LISTS program_tests)
  get_filename_component(name ${script} NAME_WE)
  string(REPLACE "_test" "" name ${name})
  add_test(NAME apps.${name} COMMAND ${Python3_EXECUTABLE} ${script})
  set(labels quick)
  if(name STREQUAL malformed)  # some 400 starts
    set(labels programs)
  endif()
  string(REPLACE ";" "\;" launch "${PENSTOCK_MPI_LAUNCH}")
  set_tests_properties(apps.${name} PROPERTIES LABELS ${labels} TIMEOUT 600 ENVIRONMENT
    "${PENSTOCK_MPI_ENVIRONMENT};PYTHONDONTWRITEBYTECODE=1;PENSTOCK_REFERENCE_DIR=${PENSTOCK_REFERENCE_DIR};PENSTOCK_BIN=$<TARGET_FILE_DIR:penstock-train>;PENSTOCK_MPI_LAUNCH=${launch}")
endforeach()
