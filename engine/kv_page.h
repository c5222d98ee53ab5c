// A page of the KV cache as bytes: what 64 tokens have in one layer (or the tokens themselves, at the head), encrypted, as it
// lies on a disk (engine/kv_file.h).
//
//     byte  0  8    magic "kinpage1"
//           8  16   key of the page
//          24  u64  n, bytes of the content
//          32  12   nonce, random
//          44  u32  0
//          48  n    content, encrypted with AES-256-GCM
//      48 + n  16   tag, over the bytes 0 to 47, the variant and the content
//
// Numbers are little-endian. The variant says what else the content belongs to (model, layout): it is not in the file,
// and a page of another one does not open.
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
    KIN_KV_PAGE_FRAME = KIN_KV_PAGE_HEAD + KIN_KV_PAGE_TAG, // around the content
    KIN_KV_PAGE_MAX = (1 << 26) - KIN_KV_PAGE_FRAME,        // bytes of content
    KIN_KV_VARIANT_BYTES = 32,
};

// The name of a page: by a secret hash of its tokens and of all before them (pipeline/prefix_pages.h), so that it tells nothing
// of the text.
typedef struct kin_page_key {
    uint8_t bytes[16];
} kin_page_key;

// Of the page that the tokens have in one layer: a GPU's has other bits than a CPU's. Keys are hashes: those of two texts do not
// differ in these bytes alone.
static inline kin_page_key kin_page_key_of_layer(const kin_page_key *key, int il, bool on_gpu) {
    kin_page_key of = *key;
    of.bytes[13] ^= on_gpu;
    of.bytes[14] ^= (uint8_t)(il >> 8);
    of.bytes[15] ^= (uint8_t)il;
    return of;
}

typedef struct kin_kv_page_seal {
    uint8_t secret[32];
    uint8_t variant[KIN_KV_VARIANT_BYTES];
} kin_kv_page_seal;

// The content lies at page + KIN_KV_PAGE_HEAD, n bytes; there is room for all of the frame.
int kin_kv_page_seal_up(const kin_kv_page_seal *seal, const kin_page_key *key, uint8_t *page, size_t n, kin_err *err);

// page [n_page] -> its content in place, at page + KIN_KV_PAGE_HEAD, which must have n bytes. The sentence says what is wrong.
int kin_kv_page_unseal(const kin_kv_page_seal *seal, const kin_page_key *key, uint8_t *page, size_t n_page, size_t n,
                       kin_err *err);
