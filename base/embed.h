// Embeds files in the program: the assembler puts their bytes into its read-only data.
//
//   KIN_EMBED(story, "/path/story.txt")     declares story_begin and story_end; a zero byte follows story_end
//
// CMake's kin_embed passes the paths of the files to the source file, and recompiles it when they change.
#pragma once

#include <stdint.h>

#ifdef __APPLE__
#define KIN_EMBED_SECTION ".section __TEXT,__const"
#define KIN_EMBED_SYMBOL(name) "_" name
#else
#define KIN_EMBED_SECTION ".section .rodata"
#define KIN_EMBED_SYMBOL(name) name
#endif

#define KIN_EMBED_LABEL(name) ".globl " KIN_EMBED_SYMBOL(name) "\n" KIN_EMBED_SYMBOL(name) ":\n"

#define KIN_EMBED(name, path)                                                                                                    \
    __asm__(KIN_EMBED_SECTION "\n.balign 64\n" KIN_EMBED_LABEL(#name "_begin") ".incbin \"" path "\"\n" KIN_EMBED_LABEL(         \
        #name "_end") ".byte 0\n.text\n");                                                                                       \
    extern const uint8_t name##_begin[], name##_end[];
