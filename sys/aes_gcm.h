// AES-256-GCM, by OpenSSL's libcrypto: bytes that only who has the key can read, and that nobody else can change unseen.
//
// Plain functions. Thread: any.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

enum { KIN_AES_KEY_BYTES = 32, KIN_AES_NONCE_BYTES = 12, KIN_AES_TAG_BYTES = 16 };

// What is not encrypted but protected with it: up to two pieces. A piece of NULL is none.
typedef struct kin_aes_extra {
    const void *bytes[2];
    size_t n[2];
} kin_aes_extra;

// Encrypts bytes [n], at most 2^30, in place. A nonce must never be used twice with a key: random ones serve for 2^32 messages.
int kin_aes_gcm_seal(const uint8_t key[KIN_AES_KEY_BYTES], const uint8_t nonce[KIN_AES_NONCE_BYTES], const kin_aes_extra *extra,
                     uint8_t *bytes, size_t n, uint8_t tag[KIN_AES_TAG_BYTES], kin_err *err);

// Decrypts in place. Fails when key, nonce, extra, bytes or tag are not what they were; the bytes are then of no use.
int kin_aes_gcm_open(const uint8_t key[KIN_AES_KEY_BYTES], const uint8_t nonce[KIN_AES_NONCE_BYTES], const kin_aes_extra *extra,
                     uint8_t *bytes, size_t n, const uint8_t tag[KIN_AES_TAG_BYTES], kin_err *err);
