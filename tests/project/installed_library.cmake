# Installs a build below WORK, builds the consumer project against it, runs it.
# -DBUILD= -DSOURCE= (the consumer) -DWORK= -DCOMPILER= -DGENERATOR= -DFLAGS=
file(REMOVE_RECURSE ${WORK})
set(prefix ${WORK}/prefix)

function(run)
  execute_process(COMMAND ${ARGN} RESULT_VARIABLE status)
  if(NOT status EQUAL 0)
    list(JOIN ARGN " " command)
    message(FATAL_ERROR "exit status ${status}: ${command}")
  endif()
endfunction()

run(${CMAKE_COMMAND} --install ${BUILD} --prefix ${prefix})
run(${CMAKE_COMMAND} -S ${SOURCE} -B ${WORK}/build -G ${GENERATOR} -DCMAKE_PREFIX_PATH=${prefix}
    -DCMAKE_CXX_COMPILER=${COMPILER} -DCMAKE_CXX_FLAGS=${FLAGS} -DCMAKE_BUILD_TYPE=Release)
run(${CMAKE_COMMAND} --build ${WORK}/build)
run(${WORK}/build/consumer)

# Nothing may refer back to the source or build tree.
file(GLOB_RECURSE package ${prefix}/lib/cmake/*.cmake ${prefix}/lib/*/cmake/*.cmake)
if(NOT package)
  message(FATAL_ERROR "no package files below ${prefix}/lib")
endif()
foreach(file IN LISTS package)
  file(STRINGS ${file} leaks REGEX "${BUILD}/(lib|bin)|${SOURCE}/")
  list(FILTER leaks EXCLUDE REGEX "${prefix}")
  if(leaks)
    message(FATAL_ERROR "${file} refers to the build or source tree: ${leaks}")
  endif()
endforeach()
