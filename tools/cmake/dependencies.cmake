# Third-party libraries, unmodified. tools/setup installs them.
find_package(Threads REQUIRED)
find_package(PkgConfig REQUIRED)
pkg_check_modules(PCRE2 REQUIRED IMPORTED_TARGET libpcre2-8)
pkg_check_modules(JANSSON REQUIRED IMPORTED_TARGET jansson)
pkg_check_modules(LIBUV REQUIRED IMPORTED_TARGET libuv>=1.44)
pkg_check_modules(OPENSSL REQUIRED IMPORTED_TARGET libssl>=3.0 libcrypto>=3.0)
add_library(PCRE2::8BIT ALIAS PkgConfig::PCRE2)
add_library(jansson::jansson ALIAS PkgConfig::JANSSON)
add_library(libuv::uv ALIAS PkgConfig::LIBUV)
add_library(OpenSSL::SSL ALIAS PkgConfig::OPENSSL)
if(KIN_TESTS)
    pkg_check_modules(CMOCKA REQUIRED IMPORTED_TARGET cmocka)
    add_library(cmocka::cmocka ALIAS PkgConfig::CMOCKA)
endif()

# llhttp: the HTTP parser of serve/. It is in build/llhttp if tools/setup built it from source.
find_path(LLHTTP_INCLUDE_DIR llhttp.h HINTS ${PROJECT_SOURCE_DIR}/build/llhttp/include REQUIRED)
find_library(LLHTTP_LIBRARY llhttp HINTS ${PROJECT_SOURCE_DIR}/build/llhttp/lib REQUIRED)
add_library(llhttp::llhttp UNKNOWN IMPORTED)
set_target_properties(llhttp::llhttp PROPERTIES IMPORTED_LOCATION ${LLHTTP_LIBRARY} INTERFACE_INCLUDE_DIRECTORIES ${LLHTTP_INCLUDE_DIR})

# wslay: the WebSocket protocol for serve/.
find_path(WSLAY_INCLUDE_DIR wslay/wslay.h REQUIRED)
find_library(WSLAY_LIBRARY wslay REQUIRED)
add_library(wslay::wslay UNKNOWN IMPORTED)
set_target_properties(wslay::wslay PROPERTIES IMPORTED_LOCATION ${WSLAY_LIBRARY} INTERFACE_INCLUDE_DIRECTORIES ${WSLAY_INCLUDE_DIR})

# HiGHS: solves the integer programs of the published scheduler (sys/highs.c). Optional: without it that scheduler reports an error.
find_path(HIGHS_INCLUDE_DIR interfaces/highs_c_api.h PATH_SUFFIXES highs)
find_library(HIGHS_LIBRARY highs)
add_library(kin_highs INTERFACE)
add_library(highs::highs ALIAS kin_highs)
if(HIGHS_INCLUDE_DIR AND HIGHS_LIBRARY)
    target_include_directories(kin_highs SYSTEM INTERFACE ${HIGHS_INCLUDE_DIR})
    target_link_libraries(kin_highs INTERFACE ${HIGHS_LIBRARY})
    target_compile_definitions(kin_highs INTERFACE KIN_HAVE_HIGHS)
endif()

# libcurl: downloads of models (pull/). Optional: without it `kin pull` reports an error.
pkg_check_modules(LIBCURL IMPORTED_TARGET libcurl>=7.85)
add_library(kin_curl INTERFACE)
add_library(curl::curl ALIAS kin_curl)
if(LIBCURL_FOUND)
    target_link_libraries(kin_curl INTERFACE PkgConfig::LIBCURL)
    target_compile_definitions(kin_curl INTERFACE KIN_HAVE_CURL)
endif()

# ggml: the tensor library (ggml-base) and the registry that loads its CPU variants and GPUs at run time (ggml).
# KIN_GGML_DIR: the installation prefix of another ggml; tools/setup builds one into build/ggml where no package exists.
set(KIN_GGML_DIR "" CACHE PATH "prefix of a ggml built from source")
find_path(GGML_INCLUDE_DIR ggml-backend.h HINTS ${KIN_GGML_DIR}/include ${PROJECT_SOURCE_DIR}/build/ggml/include REQUIRED)
find_library(GGML_LIBRARY ggml HINTS ${KIN_GGML_DIR}/lib ${PROJECT_SOURCE_DIR}/build/ggml/lib REQUIRED)
find_library(GGML_BASE_LIBRARY ggml-base HINTS ${KIN_GGML_DIR}/lib ${PROJECT_SOURCE_DIR}/build/ggml/lib REQUIRED)
add_library(ggml::base UNKNOWN IMPORTED)
set_target_properties(ggml::base PROPERTIES IMPORTED_LOCATION ${GGML_BASE_LIBRARY} INTERFACE_INCLUDE_DIRECTORIES ${GGML_INCLUDE_DIR})
add_library(ggml::ggml UNKNOWN IMPORTED)
set_target_properties(ggml::ggml PROPERTIES IMPORTED_LOCATION ${GGML_LIBRARY} INTERFACE_INCLUDE_DIRECTORIES ${GGML_INCLUDE_DIR} INTERFACE_LINK_LIBRARIES ggml::base)

# A static ggml is C++, and has its CPU back-end in a separate library. KIN_CXX_LIBRARY: the runtime of the compiler that built it.
if(GGML_LIBRARY MATCHES "\\.a$")
    set(KIN_CXX_LIBRARY stdc++ CACHE STRING "the C++ runtime of a static ggml")
    find_library(GGML_CPU_LIBRARY ggml-cpu HINTS ${KIN_GGML_DIR}/lib REQUIRED)
    set_property(TARGET ggml::ggml APPEND PROPERTY INTERFACE_LINK_LIBRARIES ${GGML_CPU_LIBRARY} ${GGML_BASE_LIBRARY} ${KIN_CXX_LIBRARY})
    set_property(TARGET ggml::base APPEND PROPERTY INTERFACE_LINK_LIBRARIES ${KIN_CXX_LIBRARY})
endif()

# ggml's CMake package names the folder of its loadable modules. Empty if the backends are built in.
get_filename_component(GGML_LIBRARY_DIR ${GGML_LIBRARY} DIRECTORY)
find_file(GGML_CONFIG ggml-config.cmake HINTS ${GGML_LIBRARY_DIR}/cmake/ggml NO_DEFAULT_PATH)
if(GGML_CONFIG)
    file(STRINGS ${GGML_CONFIG} GGML_BACKEND_DIR_LINE REGEX "GGML_BACKEND_DIR ")
    string(REGEX REPLACE ".*\"(.*)\".*" "\\1" KIN_GGML_BACKEND_DIR "${GGML_BACKEND_DIR_LINE}")
endif()
set_property(TARGET ggml::ggml PROPERTY INTERFACE_COMPILE_DEFINITIONS KIN_GGML_BACKEND_DIR="${KIN_GGML_BACKEND_DIR}")
