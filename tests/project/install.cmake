# Installs a build below PREFIX and checks the package that find_package(Penstock) reads. -DBUILD= -DSOURCE= -DPREFIX=
file(REMOVE_RECURSE ${PREFIX})
execute_process(COMMAND ${CMAKE_COMMAND} --install ${BUILD} --prefix ${PREFIX} OUTPUT_QUIET COMMAND_ERROR_IS_FATAL ANY)

# Nothing may refer back to the source or build tree.
file(GLOB_RECURSE package ${PREFIX}/lib/cmake/*.cmake ${PREFIX}/lib/*/cmake/*.cmake)
if(NOT package)
  message(FATAL_ERROR "no package files below ${PREFIX}/lib")
endif()
foreach(file IN LISTS package)
  file(STRINGS ${file} leaks REGEX "${BUILD}/(lib|bin)|${SOURCE}/")
  list(FILTER leaks EXCLUDE REGEX "${PREFIX}")
  if(leaks)
    message(FATAL_ERROR "${file} refers to the build or source tree: ${leaks}")
  endif()
endforeach()
