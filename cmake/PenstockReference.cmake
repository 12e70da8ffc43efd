# `cmake --build BUILD --target reference`: the reference of the public headers, as BUILD/reference/html, where doxygen
# is installed.
find_program(PENSTOCK_DOXYGEN doxygen)
if(PENSTOCK_DOXYGEN)
  add_custom_target(reference
    COMMAND ${CMAKE_COMMAND} -E make_directory ${CMAKE_BINARY_DIR}/reference
    COMMAND ${CMAKE_COMMAND} -E env PENSTOCK_REFERENCE_OUTPUT=${CMAKE_BINARY_DIR}/reference
            ${PENSTOCK_DOXYGEN} docs/reference/Doxyfile
    COMMAND ${CMAKE_COMMAND} -E echo "the reference is ${CMAKE_BINARY_DIR}/reference/html/index.html"
    WORKING_DIRECTORY ${CMAKE_SOURCE_DIR} VERBATIM)
endif()
