# Compiler settings, and the kin_* functions that CMakeLists.txt calls.
set(CMAKE_C_STANDARD 11)
set(CMAKE_C_STANDARD_REQUIRED ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
include(GNUInstallDirs)
enable_testing() # inside a function it would have no effect after the function's end
if(NOT CMAKE_BUILD_TYPE)
    set(CMAKE_BUILD_TYPE RelWithDebInfo)
endif()

set(KIN_SANITIZE "" CACHE STRING "sanitizers for all code, for example address,undefined or thread")
option(KIN_WERROR "warnings are errors" OFF)
option(KIN_FUZZ "build the fuzz targets (clang only)" OFF)
option(KIN_TESTS "build the tests and tools, which need cmocka" ON)

add_compile_options(-Wall -Wextra -Wpointer-arith -Wstrict-prototypes -Wmissing-prototypes -Wvla -Wformat=2)
add_compile_options(-UNDEBUG) # assertions stay in every build
add_compile_options(-ffp-contract=off) # for the same bits from every compiler and processor
add_compile_definitions(_GNU_SOURCE KIN_VERSION="${PROJECT_VERSION}")
if(KIN_WERROR)
    add_compile_options(-Werror)
endif()
if(KIN_SANITIZE)
    add_compile_options(-fsanitize=${KIN_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all)
    add_link_options(-fsanitize=${KIN_SANITIZE})
    find_program(KIN_FAST_LINKER ld.lld)
    if(KIN_FAST_LINKER AND CMAKE_C_COMPILER_ID STREQUAL "Clang")
        add_link_options(-fuse-ld=lld) # links the two hundred large programs in a fifth of the time
    endif()
endif()
# Code that parses untrusted bytes is instrumented, so that the fuzzers see which branches an input takes. Other code is not: its
# branches tell a fuzzer nothing, and kernels, planners and simulations would become slower by as much again as AddressSanitizer makes
# them.
set(KIN_FUZZED "base|model|observe|serve|pure/(text|tokenizer|grammar|chat|jinja|sampling|proto|pull)|pure/plan/expert_counts|engine/kv/page")

# kin_layer(NAME LINK ... [WITHOUT FOLDER]): builds all .c files below NAME/, except those in FOLDER, as the static library kin_NAME.
function(kin_layer name)
    cmake_parse_arguments(ARG "" "" "LINK;WITHOUT" ${ARGN})
    file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/${name}/*.c)
    if(ARG_WITHOUT)
        list(FILTER sources EXCLUDE REGEX "/${ARG_WITHOUT}/")
    endif()
    add_library(kin_${name} STATIC ${sources})
    foreach(source ${sources})
        file(RELATIVE_PATH path ${PROJECT_SOURCE_DIR} ${source})
        if(KIN_FUZZ AND path MATCHES "^(${KIN_FUZZED})[/.]")
            set_source_files_properties(${source} PROPERTIES COMPILE_OPTIONS -fsanitize=fuzzer-no-link)
        endif()
    endforeach()
    # -iquote applies to "sys/file.h" but not to <sys/file.h>, which is the system's.
    target_compile_options(kin_${name} PUBLIC -iquote ${PROJECT_SOURCE_DIR})
    target_link_libraries(kin_${name} PUBLIC ${ARG_LINK})
endfunction()

# kin_kernels(LAYER FOLDER): compiles the .c files of FOLDER into the layer once per back-end of this processor's family. A back-end is
# "BACKEND FLAGS...", with the vectors of kernels/simd/simd_BACKEND.h, or "BACKEND=HEADER FLAGS..." with those of simd_HEADER.h, which
# checks the flags. The list must match kernels/backends.h.
function(kin_kernels layer folder)
    set(backends "scalar")
    if(CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|AMD64|amd64)$")
        set(avx2 "-mavx2 -mf16c")
        set(avx512 "${avx2} -mavx512f -mavx512bw -mavx512vl -mavx512dq -mavx512vnni")
        list(APPEND backends "avx2 ${avx2}" "avxvnni=avx2 ${avx2} -mavxvnni"
            "avx512 ${avx512}" "avx512vbmi=avx512 ${avx512} -mavx512vbmi")
    elseif(CMAKE_SYSTEM_PROCESSOR MATCHES "^(aarch64|arm64)$")
        list(APPEND backends "neon -march=armv8.2-a+dotprod")
    endif()
    set(optimized -O3)
    if(KIN_SANITIZE) # otherwise clang takes half a minute for some files; AddressSanitizer still finds accesses outside of objects
        set(optimized -O1 -fno-sanitize=null,object-size,pointer-overflow)
    endif()
    file(GLOB sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/${folder}/*.c)
    foreach(backend ${backends})
        separate_arguments(words UNIX_COMMAND "${backend}")
        list(POP_FRONT words name)
        string(REGEX REPLACE ".*=" "" header ${name})
        string(REGEX REPLACE "=.*" "" id ${name})
        if(KIN_SANITIZE AND NOT id STREQUAL "scalar")
            # In vector code its checks cost clang three times as much as all else. The scalar back-end, which has them, is made of the
            # same source.
            list(APPEND words -fno-sanitize=undefined)
        endif()
        add_library(kin_${layer}_${id} OBJECT ${sources})
        target_compile_options(kin_${layer}_${id} PRIVATE -iquote ${PROJECT_SOURCE_DIR} ${optimized} -ffp-contract=off ${words})
        target_compile_definitions(kin_${layer}_${id} PRIVATE SIMD_ID=${id} SIMD_HEADER="kernels/simd/simd_${header}.h")
        target_sources(kin_${layer} PRIVATE $<TARGET_OBJECTS:kin_${layer}_${id}>)
    endforeach()
endfunction()

# kin_program(NAME FOLDER LINK ...): builds all .c files below FOLDER as one program.
function(kin_program name folder)
    cmake_parse_arguments(ARG "" "" "LINK" ${ARGN})
    if(NOT TARGET ${folder}_objects)
        file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/${folder}/*.c)
        add_library(${folder}_objects OBJECT ${sources})
        target_link_libraries(${folder}_objects PRIVATE ${ARG_LINK})
    endif()
    add_executable(${name} $<TARGET_OBJECTS:${folder}_objects>)
    target_link_libraries(${name} PRIVATE ${ARG_LINK})
    if(CMAKE_SYSTEM_NAME STREQUAL "Linux")
        # musl's threads have 128 KiB of stack unless the program asks for more; kernels keep tiles of 190 KiB there.
        target_link_options(${name} PRIVATE -Wl,-z,stack-size=1048576)
    endif()
endfunction()

# kin_tests(FOLDER LINK ... FIRST ... WAITING ... LONG ...): makes every test_*.c a program and a CTest, and every test_*.sh a CTest named test_*_sh.
# Exit status 77 means skipped. The tests of FIRST start first, in this order, because they take longest. A test takes two places of
# those that ctest -j names, and one of WAITING one: it computes for less than a third of its time. The tests of LONG get the label `long`;
# make test omits them. OpenMP's threads, which ggml uses, do not spin: with several tests at once on few cores that took
# half of the time of some tests.
function(kin_tests folder)
    cmake_parse_arguments(ARG "" "" "LINK;FIRST;WAITING;LONG" ${ARGN})
    file(GLOB sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/${folder}/test_*.c)
    foreach(source ${sources})
        get_filename_component(test ${source} NAME_WE)
        if(test MATCHES "^test_no_memory_" AND APPLE) # Apple's linker has no --wrap
            continue()
        endif()
        add_executable(${test} ${source})
        target_link_libraries(${test} PRIVATE ${ARG_LINK} cmocka::cmocka)
        target_compile_definitions(${test} PRIVATE KIN_SOURCE_DIR="${PROJECT_SOURCE_DIR}" KIN_BINARY_DIR="${PROJECT_BINARY_DIR}")
        if(test MATCHES "^test_no_memory_") # their allocations can be made to fail: tests/failing_malloc.h
            foreach(function malloc calloc realloc free posix_memalign strdup strndup)
                target_link_options(${test} PRIVATE -Wl,--wrap=${function})
            endforeach()
        endif()
        add_test(NAME ${test} COMMAND ${test})
        list(APPEND tests ${test})
    endforeach()
    file(GLOB scripts CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/${folder}/test_*.sh)
    foreach(script ${scripts})
        get_filename_component(test ${script} NAME_WE)
        add_test(NAME ${test}_sh COMMAND sh ${script} $<TARGET_FILE:kin>)
        list(APPEND tests ${test}_sh)
    endforeach()
    set_tests_properties(${tests} PROPERTIES SKIP_RETURN_CODE 77 TIMEOUT 600 PROCESSORS 2 ENVIRONMENT OMP_WAIT_POLICY=passive)
    set_tests_properties(${ARG_WAITING} PROPERTIES PROCESSORS 1)
    set(cost 1000)
    foreach(test ${ARG_FIRST})
        set_tests_properties(${test} PROPERTIES COST ${cost})
        math(EXPR cost "${cost} - 1")
    endforeach()
    set_tests_properties(${ARG_LONG} PROPERTIES LABELS long)
endfunction()

# kin_fuzzers(FOLDER LINK ...): builds every fuzz_*.c as a libFuzzer program, with KIN_FUZZ only.
function(kin_fuzzers folder)
    cmake_parse_arguments(ARG "" "" "LINK" ${ARGN})
    if(NOT KIN_FUZZ)
        return()
    endif()
    file(GLOB sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/${folder}/fuzz_*.c)
    foreach(source ${sources})
        get_filename_component(target ${source} NAME_WE)
        add_executable(${target} ${source})
        target_link_libraries(${target} PRIVATE ${ARG_LINK})
        target_compile_options(${target} PRIVATE -fsanitize=fuzzer-no-link)
        target_link_options(${target} PRIVATE -fsanitize=fuzzer)
    endforeach()
endfunction()

# kin_tools(FOLDER LINK ...): builds every .c file of FOLDER as a program (model generators, benchmarks).
function(kin_tools folder)
    cmake_parse_arguments(ARG "" "" "LINK" ${ARGN})
    file(GLOB sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/${folder}/*.c)
    foreach(source ${sources})
        get_filename_component(tool ${source} NAME_WE)
        add_executable(${tool} ${source})
        target_link_libraries(${tool} PRIVATE ${ARG_LINK})
    endforeach()
endfunction()

# kin_preloads(FOLDER HEADERS ...): builds every .c file of FOLDER as a library for LD_PRELOAD, without sanitizers, whose runtime would
# have to be loaded first. It sees the headers of the targets HEADERS, and uses those of their libraries that the program has loaded.
function(kin_preloads folder)
    cmake_parse_arguments(ARG "" "" "HEADERS" ${ARGN})
    file(GLOB sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/${folder}/*.c)
    foreach(source ${sources})
        get_filename_component(preload ${source} NAME_WE)
        add_library(${preload} MODULE ${source})
        target_link_libraries(${preload} PRIVATE ${CMAKE_DL_LIBS})
        foreach(target ${ARG_HEADERS})
            target_include_directories(${preload} PRIVATE $<TARGET_PROPERTY:${target},INTERFACE_INCLUDE_DIRECTORIES>)
        endforeach()
        target_compile_options(${preload} PRIVATE -fno-sanitize=all)
        target_link_options(${preload} PRIVATE -fno-sanitize=all -Wl,-z,lazy) # not every program has loaded those libraries
        set_target_properties(${preload} PROPERTIES PREFIX "")
    endforeach()
endfunction()

# kin_commit(): a library that holds the commit, looked up at each build; a new one compiles a line and links the programs again.
function(kin_commit)
    set(source ${PROJECT_BINARY_DIR}/commit.c)
    add_custom_target(kin_find_commit BYPRODUCTS ${source} VERBATIM
        COMMAND ${CMAKE_COMMAND} -D SOURCE=${PROJECT_SOURCE_DIR} -D OUTPUT=${source} -P ${PROJECT_SOURCE_DIR}/tools/cmake/commit.cmake)
    add_library(kin_commit STATIC ${source})
    add_dependencies(kin_commit kin_find_commit)
endfunction()

# kin_embed(MACRO SOURCE FILE_OR_FOLDER): defines MACRO as the path of the file or folder for SOURCE, which embeds its bytes in the
# program (base/embed.h).
function(kin_embed macro source file)
    set(files ${PROJECT_SOURCE_DIR}/${file})
    if(IS_DIRECTORY ${files})
        file(GLOB_RECURSE files CONFIGURE_DEPENDS ${files}/*)
    endif()
    set_source_files_properties(${source} PROPERTIES
        COMPILE_DEFINITIONS ${macro}="${PROJECT_SOURCE_DIR}/${file}"
        OBJECT_DEPENDS "${files}")
endfunction()

# kin_web(FOLDER SOURCE): builds the engine for browsers in BUILD/FOLDER, if clang-19 and its lld are installed. It is a separate CMake
# build because its target is WebAssembly. SOURCE embeds the compressed modules; KIN_WEB_MODULES is their folder.
function(kin_web folder source)
    find_program(KIN_WEB_COMPILER clang-19)
    find_program(KIN_WEB_LINKER wasm-ld-19)
    if(NOT KIN_WEB_COMPILER OR NOT KIN_WEB_LINKER OR KIN_SANITIZE OR KIN_FUZZ)
        return()
    endif()
    set(build ${PROJECT_BINARY_DIR}/${folder})
    set(modules ${build}/engine_relaxed.wasm ${build}/engine_relaxed_threads.wasm ${build}/engine_simd128.wasm ${build}/engine_simd128_threads.wasm)
    add_custom_target(kin_${folder} ALL
        COMMAND ${CMAKE_COMMAND} -S ${PROJECT_SOURCE_DIR}/${folder} -B ${build} -G ${CMAKE_GENERATOR} -DCMAKE_C_COMPILER=${KIN_WEB_COMPILER} > ${build}.log
        COMMAND ${CMAKE_COMMAND} --build ${build}
        BYPRODUCTS ${build}/build.ninja ${modules} VERBATIM USES_TERMINAL)
    foreach(module ${modules})
        add_custom_command(OUTPUT ${module}.gz COMMAND gzip -9 -n -k -f ${module} DEPENDS kin_${folder} ${module} VERBATIM)
        list(APPEND compressed ${module}.gz)
    endforeach()
    set_property(SOURCE ${source} APPEND PROPERTY COMPILE_DEFINITIONS KIN_WEB_MODULES="${build}")
    set_property(SOURCE ${source} APPEND PROPERTY OBJECT_DEPENDS "${compressed}")
endfunction()

# kin_manual(TARGET): makes and installs the manual page and the shell completions, which the program itself prints. Omitted where the
# program cannot run here, and for sanitizers and fuzzers, where it needs special settings.
function(kin_manual target)
    if(KIN_SANITIZE OR KIN_FUZZ OR (CMAKE_CROSSCOMPILING AND NOT CMAKE_CROSSCOMPILING_EMULATOR))
        return()
    endif()
    set(folder ${PROJECT_BINARY_DIR}/manual)
    file(MAKE_DIRECTORY ${folder})
    foreach(form man=${target}.1 bash=${target} zsh=_${target})
        string(REGEX MATCH "^([a-z]*)=(.*)$" all ${form})
        add_custom_command(OUTPUT ${folder}/${CMAKE_MATCH_2}
            COMMAND ${target} help --${CMAKE_MATCH_1} > ${folder}/${CMAKE_MATCH_2} DEPENDS ${target} VERBATIM)
        list(APPEND files ${folder}/${CMAKE_MATCH_2})
    endforeach()
    add_custom_target(${target}_manual ALL DEPENDS ${files})
    install(FILES ${folder}/${target}.1 DESTINATION ${CMAKE_INSTALL_MANDIR}/man1)
    install(FILES ${folder}/${target} DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions)
    install(FILES ${folder}/_${target} DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/site-functions)
endfunction()
