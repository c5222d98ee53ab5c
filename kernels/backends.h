// The back-ends that are compiled in, best first: KIN_BACKENDS(X) is X(name) for each. cmake/options.cmake has their flags.
//
// A module of WebAssembly has those that its whole code was compiled for: an engine refuses all of a module for one instruction
// that it does not know, so there is nothing to choose at run time.
#pragma once

#if defined(__x86_64__)
#define KIN_BACKENDS(X) X(avx512) X(avxvnni) X(avx2) X(scalar)
#elif defined(__aarch64__)
#define KIN_BACKENDS(X) X(neon) X(scalar)
#elif defined(__wasm_relaxed_simd__)
#define KIN_BACKENDS(X) X(relaxed) X(scalar)
#elif defined(__wasm_simd128__)
#define KIN_BACKENDS(X) X(simd128) X(scalar)
#else
#define KIN_BACKENDS(X) X(scalar)
#endif
