#include "pipeline/prefix_pages.h"

#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "sys/sha256.h"

// i32 tokens, little-endian, then the borders of the ring that computed them.
enum { TOKENS = 4 * KIN_KV_CELLS, CONTENT = TOKENS + sizeof(kin_border_set) };

struct kin_prefix_pages {
    uint8_t seed[KIN_SHA256_BYTES]; // hash of the secret and the context
    kin_kv_store *store;
};

int kin_prefix_pages_open(kin_prefix_pages **out, const kin_prefix_pages_options *o, kin_err *err) {
    static const uint8_t variant[32] = "tokens, borders";
    kin_sha256_stream *hash = NULL;
    kin_prefix_pages *p = *out = calloc(1, sizeof *p);
    if (!p) return kin_err_set(err, "out of memory");
    bool ok = kin_sha256_open(&hash, err) == 0 && kin_sha256_add(hash, o->disk.secret, sizeof o->disk.secret, err) == 0 &&
              kin_sha256_add(hash, o->context, o->n_context, err) == 0 && kin_sha256_end(hash, p->seed, err) == 0 &&
              kin_kv_store_open(&p->store, &o->disk, variant, CONTENT, err) == 0;
    kin_sha256_close(hash);
    if (ok) return 0;
    free(p);
    *out = NULL;
    return KIN_FAIL;
}

void kin_prefix_pages_close(kin_prefix_pages *p) {
    if (!p) return;
    kin_kv_store_close(p->store);
    free(p);
}

static void put_tokens(uint8_t *to, const int32_t *tokens) {
    for (int i = 0; i < KIN_KV_CELLS; i++) kin_put_u32(to + 4 * i, (uint32_t)tokens[i]);
}

// Computes a link of the chain: *key of the block before (zeros: none) -> *key of this one
static bool name_next(const kin_prefix_pages *p, const int32_t *tokens, kin_page_key *key) {
    uint8_t of[sizeof p->seed + sizeof *key + TOKENS], hash[KIN_SHA256_BYTES];
    memcpy(of, p->seed, sizeof p->seed);
    memcpy(of + sizeof p->seed, key, sizeof *key);
    put_tokens(of + sizeof p->seed + sizeof *key, tokens);
    if (kin_sha256(of, sizeof of, hash, NULL) != 0) return false;
    memcpy(key, hash, sizeof *key);
    return true;
}

// Returns the key under which the tokens of the block that followed the named one are stored. Two sequences' names never differ
// in these bits alone.
static kin_page_key key_of_next(const kin_page_key *key) {
    kin_page_key next = *key;
    next.bytes[0] ^= 1;
    return next;
}

// The same for the kind of a checkpoint after the named block.
static kin_page_key key_of_checkpoint(const kin_page_key *key) {
    kin_page_key of = *key;
    of.bytes[0] ^= 2;
    return of;
}

bool kin_prefix_pages_name(kin_prefix_pages *p, const int32_t *tokens, int first, int n, kin_page_key *keys) {
    kin_page_key key = {{0}};
    for (int i = 0; i < first + n; i++) {
        if (!name_next(p, tokens + (size_t)i * KIN_KV_CELLS, &key)) return false;
        if (i >= first) keys[i - first] = key;
    }
    return true;
}

int kin_prefix_pages_find(kin_prefix_pages *p, const int32_t *tokens, int first, int n_blocks) {
    kin_page_key key = {{0}};
    uint8_t wanted[TOKENS];
    for (int i = 0; i < n_blocks; i++) {
        const int32_t *block = tokens + (size_t)i * KIN_KV_CELLS;
        if (!name_next(p, block, &key)) return i;
        if (i < first) continue;
        const uint8_t *kept = kin_kv_store_read(p->store, &key);
        put_tokens(wanted, block);
        if (!kept || memcmp(kept, wanted, sizeof wanted) != 0) return i;
    }
    return n_blocks;
}

void kin_prefix_pages_checkpoints(kin_prefix_pages *p, const int32_t *tokens, int n_blocks, uint8_t *kinds) {
    kin_page_key key = {{0}};
    memset(kinds, KIN_STATES_NONE, (size_t)n_blocks);
    for (int i = 0; i < n_blocks && name_next(p, tokens + (size_t)i * KIN_KV_CELLS, &key); i++) {
        const kin_page_key of = key_of_checkpoint(&key);
        const uint8_t *kept = kin_kv_store_read(p->store, &of);
        if (kept) kinds[i] = kept[0];
    }
}

void kin_prefix_pages_set_checkpoint(kin_prefix_pages *p, const int32_t *tokens, int n_blocks, kin_states_kind kind) {
    kin_page_key key;
    kin_assert(n_blocks > 0);
    if (!kin_prefix_pages_name(p, tokens, n_blocks - 1, 1, &key)) return;
    key = key_of_checkpoint(&key);
    if (kind == KIN_STATES_NONE) {
        kin_kv_store_remove(p->store, &key);
        return;
    }
    uint8_t *content = kin_kv_store_begin(p->store);
    if (!content) return;
    memset(content, 0, CONTENT);
    content[0] = (uint8_t)kind;
    kin_kv_store_keep(p->store, &key, content);
}

static void forget_block(kin_prefix_pages *p, const kin_page_key *key) {
    const kin_page_key next = key_of_next(key), checkpoint = key_of_checkpoint(key);
    kin_kv_store_remove(p->store, key);
    kin_kv_store_remove(p->store, &next);
    kin_kv_store_remove(p->store, &checkpoint);
}

void kin_prefix_pages_forget(kin_prefix_pages *p, const int32_t *tokens, int n_blocks) {
    kin_page_key key = {{0}};
    kin_kv_store_settle(p->store);
    for (int i = 0; i < n_blocks && name_next(p, tokens + (size_t)i * KIN_KV_CELLS, &key); i++) forget_block(p, &key);
}

// Overwrites an earlier follower.
static void keep_next(kin_prefix_pages *p, const kin_page_key *before, const int32_t *block) {
    kin_page_key key = key_of_next(before);
    uint8_t wanted[CONTENT] = {0};
    const uint8_t *kept = kin_kv_store_read(p->store, &key);
    put_tokens(wanted, block);
    uint8_t *content = kept && memcmp(kept, wanted, sizeof wanted) == 0 ? NULL : kin_kv_store_begin(p->store);
    if (!content) return;
    memcpy(content, wanted, sizeof wanted);
    kin_kv_store_keep(p->store, &key, content);
}

bool kin_prefix_pages_next(kin_prefix_pages *p, const int32_t *tokens, int n_blocks, int32_t *next) {
    kin_page_key key;
    kin_assert(n_blocks > 0);
    if (!kin_prefix_pages_name(p, tokens, n_blocks - 1, 1, &key)) return false;
    key = key_of_next(&key);
    const uint8_t *kept = kin_kv_store_read(p->store, &key);
    for (int i = 0; kept && i < KIN_KV_CELLS; i++) next[i] = (int32_t)kin_get_u32(kept + 4 * i);
    return kept != NULL;
}

void kin_prefix_pages_keep(kin_prefix_pages *p, const int32_t *tokens, int first, int n, const kin_page_key *keys,
                           const kin_border_set *borders) {
    kin_page_key before;
    bool has_before = first > 0 && kin_prefix_pages_name(p, tokens, first - 1, 1, &before);
    for (int i = 0; i < n; i++, has_before = true) {
        if (has_before) keep_next(p, i > 0 ? &keys[i - 1] : &before, tokens + (size_t)(first + i) * KIN_KV_CELLS);
        uint8_t *content = kin_kv_store_has(p->store, &keys[i]) ? NULL : kin_kv_store_begin(p->store);
        if (!content) continue;
        put_tokens(content, tokens + (size_t)(first + i) * KIN_KV_CELLS);
        memcpy(content + TOKENS, borders, sizeof *borders);
        kin_kv_store_keep(p->store, &keys[i], content);
    }
}

int kin_prefix_pages_borders(kin_prefix_pages *p, const kin_page_key *keys, int n, kin_border_set *borders) {
    *borders = (kin_border_set){0};
    for (int i = 0; i < n; i++) {
        const uint8_t *kept = kin_kv_store_read(p->store, &keys[i]);
        if (i == 0 && kept) memcpy(borders, kept + TOKENS, sizeof *borders);
        if (i > 0 && (!kept || memcmp(borders, kept + TOKENS, sizeof *borders) != 0)) return i;
    }
    return n;
}
