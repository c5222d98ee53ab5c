// Functions that the module imports from the page around it (web/engine.js). Sizes and file offsets are doubles: JavaScript's
// numbers.
#pragma once

#include <stddef.h>
#include <stdint.h>

#ifdef __wasm__
#define KIN_HOST(name) __attribute__((import_module("kin"), import_name(name)))
#else
#define KIN_HOST(name)
#endif

KIN_HOST("log") void kin_host_log(const char *line, size_t n);
KIN_HOST("now") double kin_host_now(void); // milliseconds, monotonic

// Access to the model's files by name. size: -1 if there is no such file. read: true if all n bytes were present.
KIN_HOST("size") double kin_host_size(const char *name, size_t n);
KIN_HOST("read") int kin_host_read(const char *name, size_t n, double at, void *to, size_t n_to);

// ---- a GPU (web/engine/gpu.h). Each call returns when its work is done. Buffers are numbered from 1; bytes NULL: zeros. A
// weight of an unsupported type, a lack of memory, and any failure of the GPU throw a JavaScript error.

typedef struct kin_gpu_transfer {
    uint32_t at, n; // range in the arena, in bytes
} kin_gpu_transfer;

typedef struct kin_gpu_job { // layout shared with web/gpu_worker.js
    const void *commands, *numbers;
    void *arena;
    const kin_gpu_transfer *up;
    uint32_t n_commands, n_numbers, n_arena, n_up;
    kin_gpu_transfer down;
} kin_gpu_job;

KIN_HOST("gpu_refuse") _Noreturn void kin_host_gpu_refuse(const char *sentence, size_t n); // throws such an error
KIN_HOST("gpu_clear") void kin_host_gpu_clear(void);                                       // frees all buffers
KIN_HOST("gpu_put") int kin_host_gpu_put(int type, const void *bytes, size_t n);
KIN_HOST("gpu_get") void kin_host_gpu_get(int buffer, double at, void *to, size_t n);
KIN_HOST("gpu_set") void kin_host_gpu_set(int buffer, double at, const void *from, size_t n);
KIN_HOST("gpu_run") void kin_host_gpu_run(const kin_gpu_job *job);
