# A .deb by CPack: tools/deb configures with KIN_PACKAGE and the prefix /usr. shlibdeps finds the libraries' packages.
#
# Besides the program, its manual page and its completions it has the documents, and a unit of systemd that `systemctl enable` starts
# with the machine. `kin service install --system` writes another unit of that name to /etc, which precedes it.
option(KIN_PACKAGE "configure for a .deb" OFF)
if(NOT KIN_PACKAGE)
    return()
endif()

# kin_unit(TARGET): the unit of `kin serve`, as the program itself writes it, but with the path of the installed program and without the
# groups of the machine that builds it.
function(kin_unit target)
    set(unit ${PROJECT_BINARY_DIR}/kin-serve.service)
    add_custom_command(OUTPUT ${unit} VERBATIM DEPENDS ${target}
        COMMAND ${target} service install --system --dry-run serve > ${unit}.written
        COMMAND sed -e "1d" -e "s|^ExecStart=.*|ExecStart=${CMAKE_INSTALL_FULL_BINDIR}/${target} serve|" -e "/^SupplementaryGroups=/d"
            ${unit}.written > ${unit})
    add_custom_target(${target}_unit ALL DEPENDS ${unit})
    install(FILES ${unit} DESTINATION lib/systemd/system)
endfunction()
kin_unit(kin)

install(FILES README.md CHANGELOG.md DESTINATION ${CMAKE_INSTALL_DOCDIR})
install(FILES LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR} RENAME copyright)
install(DIRECTORY docs DESTINATION ${CMAKE_INSTALL_DOCDIR} FILES_MATCHING PATTERN "*.md" PATTERN "*.png" PATTERN "*.svg")

set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME kin)
set(CPACK_PACKAGE_CONTACT "kin's authors <kin@localhost>")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "one large language model over the computers of a home")
string(CONCAT CPACK_DEBIAN_PACKAGE_DESCRIPTION
    "kin runs one large language model over several computers, or on one, at the speed that the hardware allows, even\n"
    "if the model is larger than their memory. It reads GGUF files and serves the APIs of OpenAI, Anthropic, Ollama and llama.cpp.")
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION science)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_RECOMMENDS ca-certificates)
set(CPACK_STRIP_FILES ON)
set(CPACK_PACKAGING_INSTALL_PREFIX ${CMAKE_INSTALL_PREFIX})
include(CPack)
