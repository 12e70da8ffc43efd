# `cmake --install BUILD --prefix DIR`: the programs, the library and find_package(Penstock).
#
# Another project says find_package(Penstock) and links Penstock::models, or any folder above it in the house
# (Penstock::core, kernels, autograd, nn, data, schedule, parallel); it includes headers as the library itself does:
# #include "models/gpt2.h".
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

get_property(programs GLOBAL PROPERTY PENSTOCK_PROGRAMS)
if(programs)
  install(TARGETS ${programs} RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
endif()

# What the programs share is not part of the library.
get_property(libraries GLOBAL PROPERTY PENSTOCK_LIBRARIES)
list(REMOVE_ITEM libraries penstock_apps_common)
set_target_properties(penstock_onednn PROPERTIES EXPORT_NAME onednn)
set_property(TARGET ${libraries} APPEND PROPERTY INTERFACE_COMPILE_FEATURES cxx_std_20)
install(TARGETS ${libraries} penstock_onednn EXPORT PenstockTargets ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})

# Headers keep their folders, below include/penstock.
foreach(folder core kernels autograd nn data parallel models)
  file(GLOB_RECURSE headers CONFIGURE_DEPENDS RELATIVE ${CMAKE_SOURCE_DIR} ${CMAKE_SOURCE_DIR}/${folder}/*.h)
  foreach(header IN LISTS headers)
    get_filename_component(place ${header} DIRECTORY)
    install(FILES ${CMAKE_SOURCE_DIR}/${header} DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/penstock/${place})
  endforeach()
endforeach()

set(package ${CMAKE_INSTALL_LIBDIR}/cmake/Penstock)
install(EXPORT PenstockTargets NAMESPACE Penstock:: DESTINATION ${package})
configure_package_config_file(${CMAKE_CURRENT_LIST_DIR}/PenstockConfig.cmake.in
  ${CMAKE_BINARY_DIR}/PenstockConfig.cmake INSTALL_DESTINATION ${package})
# Before 1.0 a new minor version may change the interface.
write_basic_package_version_file(${CMAKE_BINARY_DIR}/PenstockConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_BINARY_DIR}/PenstockConfig.cmake ${CMAKE_BINARY_DIR}/PenstockConfigVersion.cmake
        DESTINATION ${package})
install(FILES ${CMAKE_SOURCE_DIR}/README.md ${CMAKE_SOURCE_DIR}/LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR})
