// Files in the program: the assembler puts their bytes into its read-only data.
//
//   KIN_EMBED(story, "/path/story.txt")     story_begin [story_end - story_begin]; a zero follows
//
// CMake's kin_embed tells the source file where its files are, and compiles it again when they change.
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
