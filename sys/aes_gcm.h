// AES-256-GCM, with OpenSSL's libcrypto: authenticated encryption; only a holder of the key can read or modify the data.
//
// Stateless functions. Thread: any.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

enum { KIN_AES_KEY_BYTES = 32, KIN_AES_NONCE_BYTES = 12, KIN_AES_TAG_BYTES = 16 };

// Additional authenticated data: not encrypted, but covered by the tag. Up to two pieces; a NULL piece is skipped.
typedef struct kin_aes_extra {
    const void *bytes[2];
    size_t n[2];
} kin_aes_extra;

// Encrypts bytes [n], at most 2^30, in place. Never use a nonce twice with one key; random nonces are safe for 2^32 messages.
int kin_aes_gcm_seal(const uint8_t key[KIN_AES_KEY_BYTES], const uint8_t nonce[KIN_AES_NONCE_BYTES], const kin_aes_extra *extra,
                     uint8_t *bytes, size_t n, uint8_t tag[KIN_AES_TAG_BYTES], kin_err *err);

// Decrypts in place. Fails if key, nonce, extra, bytes or tag differ from those of sealing; the bytes are then unusable.
int kin_aes_gcm_open(const uint8_t key[KIN_AES_KEY_BYTES], const uint8_t nonce[KIN_AES_NONCE_BYTES], const kin_aes_extra *extra,
                     uint8_t *bytes, size_t n, const uint8_t tag[KIN_AES_TAG_BYTES], kin_err *err);
