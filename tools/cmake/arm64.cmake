# Toolchain file for arm64 Linux with Debian's cross compiler. The programs run under qemu-user.
#
#   tools/arm64-root FOLDER && cmake -S . -B build-arm64 -DCMAKE_TOOLCHAIN_FILE=tools/cmake/arm64.cmake -DKIN_ARM64_ROOT=FOLDER
#
# FOLDER holds the C library of an arm64 Debian and the libraries that tools/cmake/dependencies.cmake looks for.
list(APPEND CMAKE_TRY_COMPILE_PLATFORM_VARIABLES KIN_ARM64_ROOT)
set(triple aarch64-linux-gnu)
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_LIBRARY_ARCHITECTURE ${triple})
set(CMAKE_C_COMPILER ${triple}-gcc)
set(CMAKE_SYSROOT ${KIN_ARM64_ROOT})
# The cross compiler brings a C library that may be older than the one that FOLDER's libraries were linked with, so FOLDER's comes first.
set(CMAKE_C_FLAGS_INIT "-B${KIN_ARM64_ROOT}/usr/lib/${triple} -isystem ${KIN_ARM64_ROOT}/usr/include/${triple} -isystem ${KIN_ARM64_ROOT}/usr/include")
set(CMAKE_FIND_ROOT_PATH ${KIN_ARM64_ROOT})
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)
set(ENV{PKG_CONFIG_SYSROOT_DIR} ${KIN_ARM64_ROOT})
set(ENV{PKG_CONFIG_LIBDIR} ${KIN_ARM64_ROOT}/usr/lib/${triple}/pkgconfig)
set(CMAKE_CROSSCOMPILING_EMULATOR qemu-aarch64 -L ${KIN_ARM64_ROOT})
