# Build options and the flags that every target shares.
option(PENSTOCK_TESTS "Build the tests" ON)
option(PENSTOCK_WERROR "Treat warnings as errors" OFF)
set(PENSTOCK_SANITIZE "" CACHE STRING "Sanitizers to build with: address,undefined or thread")
set(PENSTOCK_REFERENCE_DIR "${CMAKE_CURRENT_SOURCE_DIR}/../shared/reference" CACHE PATH
    "Folder with reference values that some tests read when it is there")

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bin)
set(CMAKE_ARCHIVE_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/lib)
if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "Build type" FORCE)
endif()

add_library(penstock_flags INTERFACE)
target_compile_options(penstock_flags INTERFACE -Wall -Wextra -Wconversion -Wshadow -Wnon-virtual-dtor)
# a*b+c must round the same wherever it is written, so that two layouts of one run agree to the last bit.
target_compile_options(penstock_flags INTERFACE -ffp-contract=off)
if(PENSTOCK_WERROR)
  target_compile_options(penstock_flags INTERFACE -Werror)
endif()
if(PENSTOCK_SANITIZE)
  target_compile_options(penstock_flags INTERFACE -fsanitize=${PENSTOCK_SANITIZE} -fno-omit-frame-pointer)
  target_link_options(penstock_flags INTERFACE -fsanitize=${PENSTOCK_SANITIZE})
endif()

find_program(PENSTOCK_CCACHE ccache)
if(PENSTOCK_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${PENSTOCK_CCACHE})
endif()
