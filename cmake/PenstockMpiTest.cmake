# penstock_mpi_test(NAME RANKS COMMAND [ARGS...]): a ctest test that runs a command as RANKS ranks under mpirun. COMMAND may be a
# target. More ranks than cores are fine, also as root. Without mpirun the configuration fails: such tests are never skipped.
if(NOT MPIEXEC_EXECUTABLE)
  message(FATAL_ERROR "mpirun was not found: the tests of several processes need it (package openmpi-bin)")
endif()

# Ranks above cores must yield while they wait, and jobs must not all bind to core 0.
set(PENSTOCK_MPI_ENVIRONMENT
  OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1
  OMPI_MCA_mpi_yield_when_idle=1 OMP_NUM_THREADS=1)
set(PENSTOCK_MPI_LAUNCH ${MPIEXEC_EXECUTABLE} --bind-to none ${MPIEXEC_NUMPROC_FLAG})

function(penstock_mpi_test name ranks command)
  if(TARGET ${command})
    set(command $<TARGET_FILE:${command}>)
  endif()
  add_test(NAME ${name} COMMAND ${PENSTOCK_MPI_LAUNCH} ${ranks} ${command} ${ARGN})
  set_tests_properties(${name} PROPERTIES LABELS quick TIMEOUT 300 PROCESSORS ${ranks}
    ENVIRONMENT "${PENSTOCK_MPI_ENVIRONMENT}")
endfunction()
