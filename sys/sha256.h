// SHA-256, by OpenSSL's libcrypto: the hash for content that comes from others. For our own files' damage base/hash.h does.
//
// Fails only where libcrypto has no memory, or was set up by its administrator without SHA-256.
// A stream belongs to one thread at a time; kin_sha256 may be called from any.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

#define KIN_SHA256_BYTES 32

// All at once.
int kin_sha256(const void *data, size_t n, uint8_t hash[KIN_SHA256_BYTES], kin_err *err);

// Piece by piece: open, add as often as needed, end. After end the stream begins anew.
typedef struct kin_sha256_stream kin_sha256_stream;

int kin_sha256_open(kin_sha256_stream **out, kin_err *err);
void kin_sha256_close(kin_sha256_stream *stream);
int kin_sha256_add(kin_sha256_stream *stream, const void *data, size_t n, kin_err *err);
int kin_sha256_end(kin_sha256_stream *stream, uint8_t hash[KIN_SHA256_BYTES], kin_err *err);
