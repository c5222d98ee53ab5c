# Run at each build: writes OUTPUT, which defines kin_commit as the commit of the folder SOURCE, with "-dirty" if files differ from it; ""
# without git, or if the folder is not the top of a repository. Does not touch a file that says so already.
cmake_path(GET SOURCE PARENT_PATH above)
set(ENV{GIT_CEILING_DIRECTORIES} ${above})
set(ENV{GIT_OPTIONAL_LOCKS} 0)
execute_process(COMMAND git -C ${SOURCE} describe --always --dirty --abbrev=12 --exclude=* OUTPUT_VARIABLE commit
    OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET RESULT_VARIABLE failed)
if(failed)
    set(commit "")
endif()
file(CONFIGURE OUTPUT ${OUTPUT} CONTENT "extern const char kin_commit[];\nconst char kin_commit[] = \"${commit}\";\n")
