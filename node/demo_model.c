#include "node/demo_model.h"

// The assembler puts the file's bytes into the read-only data of the program (KIN_DEMO_MODEL: its path).
#ifdef __APPLE__
#define SECTION ".section __TEXT,__const"
#define SYMBOL(name) "_" name
#else
#define SECTION ".section .rodata"
#define SYMBOL(name) name
#endif

__asm__(SECTION "\n"
                ".balign 64\n"
                ".globl " SYMBOL("kin_demo_model_begin") "\n" SYMBOL(
                    "kin_demo_model_begin") ":\n"
                                            ".incbin \"" KIN_DEMO_MODEL "\"\n"
                                            ".globl " SYMBOL("kin_demo_model_end") "\n" SYMBOL("kin_demo_model_end") ":\n"
                                                                                                                     ".byte 0\n"
                                                                                                                     ".text\n");

extern const uint8_t kin_demo_model_begin[], kin_demo_model_end[];

const uint8_t *kin_demo_model_bytes(void) {
    return kin_demo_model_begin;
}

size_t kin_demo_model_size(void) {
    return (size_t)(kin_demo_model_end - kin_demo_model_begin);
}
