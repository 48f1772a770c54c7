# SPDX-License-Identifier: MIT
# What `cmake --install` puts where: header, both libraries, a CMake package, a pkg-config file, the command with its pages.
install(FILES include/qsa/qsa.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/qsa)
install(TARGETS qsa_static qsa_shared EXPORT qsa_targets)

set(qsa_package ${CMAKE_INSTALL_LIBDIR}/cmake/qsa)
install(EXPORT qsa_targets NAMESPACE qsa:: FILE qsaTargets.cmake DESTINATION ${qsa_package})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/qsaConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES packaging/qsaConfig.cmake ${PROJECT_BINARY_DIR}/qsaConfigVersion.cmake DESTINATION ${qsa_package})

# Paths relative to the .pc file, so that a moved installation is still found.
file(RELATIVE_PATH qsa_pc_prefix /prefix/${CMAKE_INSTALL_LIBDIR}/pkgconfig /prefix)
configure_file(packaging/qsa.pc.in ${PROJECT_BINARY_DIR}/qsa.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/qsa.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)

if(TARGET qsa_command)
  install(TARGETS qsa_command)
  if(NOT CMAKE_CROSSCOMPILING)
    set(qsa_pages ${PROJECT_BINARY_DIR}/pages)
    add_custom_command(OUTPUT ${qsa_pages}/qsa.1 ${qsa_pages}/qsa.bash ${qsa_pages}/_qsa ${qsa_pages}/qsa.fish
      COMMAND ${CMAKE_COMMAND} -E make_directory ${qsa_pages}
      COMMAND qsa_command completion man > ${qsa_pages}/qsa.1
      COMMAND qsa_command completion bash > ${qsa_pages}/qsa.bash
      COMMAND qsa_command completion zsh > ${qsa_pages}/_qsa
      COMMAND qsa_command completion fish > ${qsa_pages}/qsa.fish
      DEPENDS qsa_command VERBATIM)
    add_custom_target(qsa_pages ALL DEPENDS ${qsa_pages}/qsa.1)
    install(FILES ${qsa_pages}/qsa.1 DESTINATION ${CMAKE_INSTALL_MANDIR}/man1)
    install(FILES ${qsa_pages}/qsa.bash DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions RENAME qsa)
    install(FILES ${qsa_pages}/_qsa DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/site-functions)
    install(FILES ${qsa_pages}/qsa.fish DESTINATION ${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d)
  endif()
endif()
