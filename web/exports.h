// Functions that the module exports to the page around it (web/engine.js). Pointers point into the module's memory; the page
// allocates memory that it passes in with kin_web_alloc.
//
// Thread: the module's main one, except for kin_web_thread.
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

// Returns the message of the last failed call, valid until the next failure.
KIN_EXPORT("error") const char *kin_web_error(void);

// Returns the vector unit that this module was compiled for: "relaxed".
KIN_EXPORT("kernels") const char *kin_web_kernels(void);

// Body of a helper thread: computes its share of every job and never returns. It runs on its own stack (__stack_pointer).
KIN_EXPORT("thread") void kin_web_thread(int ith);

// Opens a plan: `plan` is the payload of a PLAN frame [n], `name` the model's file as the page's functions know it. gpu: compute
// on the host's GPU. Returns 0, or -1.
KIN_EXPORT("open") int kin_web_open(const uint8_t *plan, size_t n, const char *name, int n_threads, int gpu);
KIN_EXPORT("close") void kin_web_close(void);

// Returns memory for the payload of a STEP or PAGES frame of n bytes. NULL: out of memory.
KIN_EXPORT("payload") uint8_t *kin_web_payload(size_t n);
// Computes this member's layers of the step in that memory, or looks up the pages (type: the frame's, KIN_FRAME_STEP or
// KIN_FRAME_PAGES). The payload is then the one for the next member; returns its bytes. -1: it failed, and the step ends.
KIN_EXPORT("take") int kin_web_handle(size_t n, int type);

// Call before anything is open. Measures seconds per byte of weights of that type (GGUF's number), multiplied with n_rows rows,
// in the shapes of a layer (for several rows: one matrix). It uses enough layers to fill `bytes`, so that they come from memory;
// if `bytes` is less than a layer, it multiplies one matrix repeatedly, which may stay in the processor's cache. backend: 0, this
// module's own; 1, plain C. Returns -1 if there is no kernel or no memory.
KIN_EXPORT("product_s") double kin_web_product_s(int type, int n_rows, int n_threads, size_t bytes, int backend);
// Selects the variant for multiplying one row with a type's weights (kin_kernels_variants); product_s shows which is fastest.
KIN_EXPORT("set_way") void kin_web_set_variant(int type, int variant);
// Measures seconds per byte of keys and values in the attention of n_rows tokens of one sequence, with 32 heads of 64 on 8 KV
// heads, over caches of `bytes`. Returns -1 if out of memory.
KIN_EXPORT("attend_s") double kin_web_attend_s(int n_rows, int n_threads, size_t bytes);
// Measures seconds per operation of a layer other than products and attention, including the barrier of the threads after it: the
// mean over a layer.
KIN_EXPORT("op_s") double kin_web_op_s(int n_threads);
// Evicts all data from the processor's caches.
KIN_EXPORT("cool") void kin_web_cool(void);

// Returns the bytes that the open plan uses: for the KV cache (0), weights (1), compute buffers (2).
KIN_EXPORT("bytes") double kin_web_bytes(int of);

// Resets to the state after open: no step, an empty KV cache.
KIN_EXPORT("reset") void kin_web_reset(void);
