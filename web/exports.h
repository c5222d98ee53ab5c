// What the module gives to the page around it (web/engine.js). Pointers are into the module's memory; memory that is handed over
// comes from kin_web_alloc.
//
// Thread: the module's main one, but for kin_web_thread.
#pragma once

#include <stddef.h>
#include <stdint.h>

#ifdef __wasm__
#define KIN_EXPORT(name) __attribute__((export_name(name)))
#else
#define KIN_EXPORT(name)
#endif

KIN_EXPORT("alloc") void *kin_web_alloc(size_t n); // NULL: out of memory
KIN_EXPORT("free") void kin_web_free(void *p);

// The sentence of the last call that failed, until the next one.
KIN_EXPORT("error") const char *kin_web_error(void);

// The vector unit that this module was compiled for: "relaxed".
KIN_EXPORT("kernels") const char *kin_web_kernels(void);

// A helper: computes its share of every job, for ever. Its stack (__stack_pointer) is its own.
KIN_EXPORT("thread") void kin_web_thread(int ith);

// Opens what a plan asks for: `plan` is the payload of a PLAN frame [n], `name` the model's file as the page's functions know it.
// gpu: on the host's GPU. 0, or -1.
KIN_EXPORT("open") int kin_web_open(const uint8_t *plan, size_t n, const char *name, int n_threads, int gpu);
KIN_EXPORT("close") void kin_web_close(void);

// Where to put the payload of a STEP or PAGES frame of n bytes. NULL: out of memory.
KIN_EXPORT("payload") uint8_t *kin_web_payload(size_t n);
// Computes this member's layers of the step that was put there, or looks for the pages (type: the frame's, KIN_FRAME_STEP or
// KIN_FRAME_PAGES): its payload is then the next member's, of so many bytes. -1: it failed, and the step is over.
KIN_EXPORT("take") int kin_web_take(size_t n, int type);

// Before anything is open: seconds per byte of weights of that type (the number of GGUF) times so many rows, in the shapes of a
// layer (of several rows, of one matrix). There are as many layers as `bytes`, so that they come from memory; of fewer bytes than
// a layer's it is one matrix again and again, which a processor's cache may hold. backend: 0, this module's own; 1, plain C. -1:
// there is no kernel, or no memory.
KIN_EXPORT("product_s") double kin_web_product_s(int type, int n_rows, int n_threads, size_t bytes, int backend);
// How a row is multiplied with a type's weights (kin_kernels_ways): what is fastest on this processor product_s tells.
KIN_EXPORT("set_way") void kin_web_set_way(int type, int way);
// Seconds per byte of the keys and values that so many tokens of one sequence see, 32 heads of 64 on 8; as many as `bytes`. -1:
// there is no memory.
KIN_EXPORT("attend_s") double kin_web_attend_s(int n_rows, int n_threads, size_t bytes);
// Seconds for an operation of a layer beside products and attention, with the threads' meeting after it: the mean of a layer's.
KIN_EXPORT("op_s") double kin_web_op_s(int n_threads);
// Nothing of what was used stays in the processor's caches.
KIN_EXPORT("cool") void kin_web_cool(void);

// What is open takes so many bytes: of the KV cache (0), of weights (1), of compute buffers (2).
KIN_EXPORT("bytes") double kin_web_bytes(int of);

// As after open: no step, an empty KV cache.
KIN_EXPORT("reset") void kin_web_reset(void);
