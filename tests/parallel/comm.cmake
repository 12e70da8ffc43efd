# The communicator over processes: the scenarios of test_comm under mpirun, and failures of one process seen from outside.
include(PenstockMpiTest)
find_package(Python3 REQUIRED COMPONENTS Interpreter)

add_executable(test_comm_mpi
  ${CMAKE_CURRENT_SOURCE_DIR}/parallel/comm/comm_main.mpi.cpp
  ${CMAKE_CURRENT_SOURCE_DIR}/parallel/comm/scenarios_point_to_point.cpp
  ${CMAKE_CURRENT_SOURCE_DIR}/parallel/comm/scenarios_collective.cpp)
target_include_directories(test_comm_mpi PRIVATE ${CMAKE_SOURCE_DIR})
target_link_libraries(test_comm_mpi PRIVATE penstock_flags penstock::parallel)

foreach(ranks 1 2 3 4)
  penstock_mpi_test(comm.mpi_${ranks}_ranks ${ranks} test_comm_mpi ${ranks})
endforeach()

add_test(NAME comm.mpi_failures
  COMMAND ${Python3_EXECUTABLE} ${CMAKE_CURRENT_SOURCE_DIR}/parallel/comm/mpi_failures.py
          $<TARGET_FILE:test_comm_mpi> ${PENSTOCK_MPI_LAUNCH})
set_tests_properties(comm.mpi_failures PROPERTIES LABELS quick TIMEOUT 300 PROCESSORS 2
  ENVIRONMENT "${PENSTOCK_MPI_ENVIRONMENT}")
