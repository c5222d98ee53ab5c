// SHA-256, with OpenSSL's libcrypto: the hash for untrusted content. Damage to kin's own files is detected with base/hash.h.
//
// Fails only if libcrypto has no memory, or was configured without SHA-256.
// A stream belongs to one thread at a time; kin_sha256 may be called from any.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

#define KIN_SHA256_BYTES 32

// Hashes a block of memory.
int kin_sha256(const void *data, size_t n, uint8_t hash[KIN_SHA256_BYTES], kin_err *err);

// Hashes in pieces: open, add as often as needed, end. After end the stream starts over.
typedef struct kin_sha256_stream kin_sha256_stream;

int kin_sha256_open(kin_sha256_stream **out, kin_err *err);
void kin_sha256_close(kin_sha256_stream *stream);
int kin_sha256_add(kin_sha256_stream *stream, const void *data, size_t n, kin_err *err);
int kin_sha256_end(kin_sha256_stream *stream, uint8_t hash[KIN_SHA256_BYTES], kin_err *err);
