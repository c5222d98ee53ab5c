// The back-ends compiled in, best first: KIN_BACKENDS(X) expands to X(name) for each. tools/cmake/options.cmake has their flags.
//
// A WebAssembly module has only the back-ends that all its code was compiled for: an engine rejects a module with a single
// instruction that it does not support, so there is no choice at run time.
#pragma once

#if defined(__x86_64__)
#define KIN_BACKENDS(X) X(avx512vbmi) X(avx512) X(avxvnni) X(avx2) X(scalar)
#elif defined(__aarch64__)
#define KIN_BACKENDS(X) X(neon) X(scalar)
#elif defined(__wasm_relaxed_simd__)
#define KIN_BACKENDS(X) X(relaxed) X(scalar)
#elif defined(__wasm_simd128__)
#define KIN_BACKENDS(X) X(simd128) X(scalar)
#else
#define KIN_BACKENDS(X) X(scalar)
#endif
