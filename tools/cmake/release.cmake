# Toolchain file of tools/release: a program that needs no library of the system it runs on.
#
# KIN_RELEASE: a folder with zig's compiler behind bin/cc, bin/c++, bin/ar and bin/ranlib, and with the libraries, built for the same
# system. KIN_RELEASE_SYSTEM: linux-x86_64, linux-aarch64 or macos-aarch64.
list(APPEND CMAKE_TRY_COMPILE_PLATFORM_VARIABLES KIN_RELEASE KIN_RELEASE_SYSTEM)
string(REGEX MATCH "^([a-z]*)-(.*)$" matched "${KIN_RELEASE_SYSTEM}")
set(CMAKE_SYSTEM_PROCESSOR ${CMAKE_MATCH_2})
if(CMAKE_MATCH_1 STREQUAL "macos")
    set(CMAKE_SYSTEM_NAME Darwin)
    set(CMAKE_INSTALL_NAME_TOOL true) # of Apple; libraries here are static
else()
    set(CMAKE_SYSTEM_NAME Linux)
    set(CMAKE_EXE_LINKER_FLAGS_INIT -static)
endif()
set(CMAKE_C_COMPILER ${KIN_RELEASE}/bin/cc)
set(CMAKE_CXX_COMPILER ${KIN_RELEASE}/bin/c++)
set(CMAKE_AR ${KIN_RELEASE}/bin/ar CACHE FILEPATH "")
set(CMAKE_RANLIB ${KIN_RELEASE}/bin/ranlib CACHE FILEPATH "")
set(CMAKE_FIND_ROOT_PATH ${KIN_RELEASE})
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_PACKAGE ONLY)
set(ENV{PKG_CONFIG_LIBDIR} ${KIN_RELEASE}/lib/pkgconfig)
