// What the module asks of the page around it (web/engine.js gives it). Sizes and places in files are doubles: JavaScript's
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

// Files of the model by name. size: -1 if there is none. read: whether all n bytes were there.
KIN_HOST("size") double kin_host_size(const char *name, size_t n);
KIN_HOST("read") int kin_host_read(const char *name, size_t n, double at, void *to, size_t n_to);
