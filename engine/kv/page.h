// A page of the KV cache as encrypted bytes on a disk (engine/kv/file.h): the keys and values of 64 tokens in one layer (or, at
// the head, the tokens themselves).
//
//     byte  0  8    magic "kinpage1"
//           8  16   key of the page
//          24  u64  n, bytes of the content
//          32  12   nonce, random
//          44  u32  0
//          48  n    content, encrypted with AES-256-GCM
//      48 + n  16   tag, over the bytes 0 to 47, the variant and the content
//
// Numbers are little-endian. The variant identifies what else the content depends on (model, layout). It is not stored in the
// file, and a page of another variant fails to unseal.
//
// Plain functions: any thread.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

enum {
    KIN_KV_PAGE_HEAD = 48,
    KIN_KV_PAGE_TAG = 16,
    KIN_KV_PAGE_FRAME = KIN_KV_PAGE_HEAD + KIN_KV_PAGE_TAG, // bytes around the content
    KIN_KV_PAGE_MAX = (1 << 26) - KIN_KV_PAGE_FRAME,        // bytes of content
    KIN_KV_VARIANT_BYTES = 32,
    KIN_KV_PARTS_MAX = UINT16_MAX, // of a layer's states, so that kin_page_key_of_part gives each a key of its own
};

// The name of a page: a keyed hash of its tokens and of all before them (pipeline/prefix_pages.h), so that it reveals nothing of
// the text.
typedef struct kin_page_key {
    uint8_t bytes[16];
} kin_page_key;

// Returns the key of the tokens' page in one layer. Pages of a GPU differ in their bits from those of a CPU, so they get
// different keys. Keys are hashes: the keys of different tokens never differ in these bytes alone.
static inline kin_page_key kin_page_key_of_layer(const kin_page_key *key, int il, bool on_gpu) {
    kin_page_key of = *key;
    of.bytes[13] ^= on_gpu;
    of.bytes[14] ^= (uint8_t)(il >> 8);
    of.bytes[15] ^= (uint8_t)il;
    return of;
}

// Returns the key of a part of what a layer needs, besides pages, to continue after the named tokens (kin_kv_n_parts).
static inline kin_page_key kin_page_key_of_part(const kin_page_key *key, int il, int i) {
    kin_page_key of = kin_page_key_of_layer(key, il, false);
    of.bytes[10] ^= (uint8_t)(i >> 8);
    of.bytes[11] ^= (uint8_t)i;
    of.bytes[12] ^= 1;
    return of;
}

typedef struct kin_kv_page_seal {
    uint8_t secret[32];
    uint8_t variant[KIN_KV_VARIANT_BYTES];
} kin_kv_page_seal;

// Encrypts n bytes at page + KIN_KV_PAGE_HEAD in place; the buffer has room for the whole frame.
int kin_kv_page_seal_up(const kin_kv_page_seal *seal, const kin_page_key *key, uint8_t *page, size_t n, kin_err *err);

// Decrypts page [n_page] in place; the content, which must have n bytes, is at page + KIN_KV_PAGE_HEAD. The error says what is
// wrong.
int kin_kv_page_unseal(const kin_kv_page_seal *seal, const kin_page_key *key, uint8_t *page, size_t n_page, size_t n,
                       kin_err *err);
