#include "engine/border_log.h"

#include <stdlib.h>
#include <string.h>

enum {
    PART_BLOCKS = 16,       // partly filled blocks of the sequences being written
    STALE_ROWS = 16384,     // after this many rows of other blocks, a full block that was not kept belongs to a sequence that is
                            // not kept at all
    STALE_PART_ROWS = 2048, // and a partly filled block to a sequence that has ended
};

// The rows of a block of the KV cache at a border.
typedef struct block_rows {
    int il, block;
    int n;                  // filled cells, from the first on
    bool has_name, is_kept; // is_kept: it was seen on the disk
    kin_page_key name;
    uint64_t added; // rows added to all blocks when this block got its last one
    float *rows;    // f32 [64, n_embd]
} block_rows;

struct kin_border_log {
    kin_kv_store *store;
    kin_kv_peers peers; // as for the KV cache's pages, but without copies
    size_t n_embd;
    kin_activation_type wire;
    uint8_t *encoded;   // a row as sent, and
    float *decoded;     // the same row as received: f32 [n_embd]
    block_rows *blocks; // [most], of which n are used
    int n, most;
    uint64_t n_added;
};

static void keep_no_copy(void *user, const kin_page_name *name, size_t n) {
    (void)user, (void)name, (void)n;
}

static void fetch(void *user, const kin_page_name *names, int n, size_t bytes, int timeout_ms) {
    const kin_kv_peers *of = user;
    of->fetch(of->user, names, n, bytes, timeout_ms);
}

static size_t page_bytes(int n_embd) {
    return (size_t)n_embd * KIN_KV_CELLS * sizeof(float);
}

static int most_blocks(int n_batch) {
    return (n_batch + KIN_KV_CELLS - 1) / KIN_KV_CELLS + PART_BLOCKS;
}

uint64_t kin_border_log_most_bytes(int n_embd, int n_batch) {
    return (uint64_t)most_blocks(n_batch) * page_bytes(n_embd);
}

static void free_log(kin_border_log *log) {
    for (int i = 0; i < log->n; i++) free(log->blocks[i].rows);
    free(log->blocks);
    free(log->encoded);
    free(log->decoded);
    free(log);
}

int kin_border_log_open(kin_border_log **out, const kin_border_rows *rows, const kin_kv_disk *disk,
                        const uint8_t variant[KIN_KV_VARIANT_BYTES], kin_err *err) {
    uint8_t own[KIN_KV_VARIANT_BYTES];
    kin_kv_disk own_disk = *disk;
    kin_border_log *log = *out = calloc(1, sizeof *log);
    if (!log) return kin_err_set(err, "out of memory");
    log->n_embd = (size_t)rows->n_embd;
    log->wire = rows->wire;
    log->encoded = malloc((size_t)kin_activations_bytes(log->n_embd, log->wire));
    log->decoded = malloc(log->n_embd * sizeof *log->decoded);
    log->peers = (kin_kv_peers){.written = keep_no_copy, .fetch = fetch, .user = (void *)disk->peers};
    if (disk->peers) own_disk.peers = &log->peers;
    log->most = most_blocks(rows->n_batch);
    log->blocks = calloc((size_t)log->most, sizeof *log->blocks);
    memcpy(own, variant, sizeof own);
    own[sizeof own - 1] ^= 1;
    bool has_memory = log->blocks && log->encoded && log->decoded;
    if (has_memory && kin_kv_store_open(&log->store, &own_disk, own, page_bytes(rows->n_embd), err) == 0) return 0;
    if (!has_memory) kin_err_set(err, "out of memory");
    free_log(log);
    *out = NULL;
    return KIN_FAIL;
}

void kin_border_log_close(kin_border_log *log) {
    if (!log) return;
    kin_kv_store_close(log->store);
    free_log(log);
}

// ---- rows in memory

static block_rows *find(kin_border_log *log, int il, int block) {
    for (int i = 0; i < log->n; i++) {
        if (log->blocks[i].il == il && log->blocks[i].block == block) return &log->blocks[i];
    }
    return NULL;
}

// Returns how much a block's memory is needed. 0: its rows are on the disk, or never will be; 1: they were given to the disk; 2:
// they have no name yet.
static int need_of(const kin_border_log *log, const block_rows *b) {
    uint64_t stale = b->n < KIN_KV_CELLS ? STALE_PART_ROWS : STALE_ROWS;
    if (b->is_kept || b->n == 0 || log->n_added - b->added > stale) return 0;
    return b->has_name ? 1 : 2;
}

// Returns the block whose memory can be reused: the oldest of those that are needed least. NULL: none.
static block_rows *find_idle(kin_border_log *log) {
    block_rows *idle = NULL;
    for (int i = 0; i < log->n; i++) {
        block_rows *b = &log->blocks[i];
        int need = need_of(log, b), least = idle ? need_of(log, idle) : 2;
        if (need < least || (idle && need == least && b->added < idle->added)) idle = b;
    }
    return idle;
}

// Returns a block with memory for rows, and no rows yet. NULL: no room, so the block is left out.
static block_rows *begin(kin_border_log *log, int il, int block) {
    block_rows *b = find(log, il, block);
    if (!b && log->n < log->most) {
        float *rows = malloc(log->n_embd * KIN_KV_CELLS * sizeof *rows);
        if (rows) {
            b = &log->blocks[log->n++];
            b->rows = rows;
        }
    }
    if (!b) b = find_idle(log);
    if (b) *b = (block_rows){.il = il, .block = block, .added = log->n_added, .rows = b->rows};
    return b;
}

// x // f32 [n, n_embd] -> to, rounded as the next device receives them
static void round_sent(kin_border_log *log, void *to, const float *x, size_t n) {
    size_t bytes = log->n_embd * sizeof *x;
    if (log->wire == KIN_ACTIVATION_F32) memcpy(to, x, n * bytes);
    for (size_t i = 0; i < n && log->wire != KIN_ACTIVATION_F32; i++) {
        kin_activations_encode(log->encoded, x + i * log->n_embd, log->n_embd, log->wire);
        kin_activations_decode(log->decoded, log->encoded, log->n_embd, log->wire);
        memcpy((uint8_t *)to + i * bytes, log->decoded, bytes);
    }
}

void kin_border_log_add(kin_border_log *log, int il, const int64_t *cells, int n, const float *x) {
    log->n_added += (uint64_t)n;
    block_rows *b = NULL;
    for (int i = 0; i < n; i++) {
        int block = (int)(cells[i] / KIN_KV_CELLS), at = (int)(cells[i] % KIN_KV_CELLS);
        if (!b || b->il != il || b->block != block) b = at == 0 ? begin(log, il, block) : find(log, il, block);
        if (!b || at > b->n) continue; // rows before it are missing
        round_sent(log, b->rows + (size_t)at * log->n_embd, x + (size_t)i * log->n_embd, 1);
        b->n = at + 1; // later rows are discarded
        b->has_name = b->is_kept = false;
        b->added = log->n_added;
    }
}

void kin_border_log_copy(kin_border_log *log, int from, int to) {
    kin_border_log_forget(log, to);
    for (int i = 0, n = log->n; i < n; i++) {
        const block_rows of = log->blocks[i];
        if (of.block != from || of.n == 0) continue;
        block_rows *b = begin(log, of.il, to);
        if (!b || b->rows == of.rows) continue;
        memcpy(b->rows, of.rows, (size_t)of.n * log->n_embd * sizeof *b->rows);
        b->n = of.n;
    }
}

void kin_border_log_forget(kin_border_log *log, int block) {
    for (int i = 0; i < log->n; i++) {
        if (log->blocks[i].block != block) continue;
        log->blocks[i].n = 0;
        log->blocks[i].has_name = false;
    }
}

void kin_border_log_keep(kin_border_log *log, int block, const kin_page_key *name) {
    for (int i = 0; i < log->n; i++) {
        block_rows *b = &log->blocks[i];
        if (b->block == block && b->n == KIN_KV_CELLS && !b->has_name) {
            b->has_name = true;
            b->name = *name;
        }
        if (!b->has_name || b->is_kept) continue;
        kin_border_log_put(log, b->il, &b->name, b->rows, false);
        b->is_kept = kin_border_log_get(log, b->il, &b->name, NULL);
    }
}

// ---- pages

static kin_page_key key_of(const kin_page_key *name, int il) {
    return kin_page_key_of_layer(name, il, false);
}

// numbers // f32 [n]. Infinities and NaN have all exponent bits set, so the addition carries into the sign bit.
static bool are_finite(const uint8_t *numbers, size_t n) {
    uint32_t found = 0;
    for (size_t i = 0; i < n; i++) {
        uint32_t bits;
        memcpy(&bits, numbers + i * sizeof bits, sizeof bits);
        found |= (bits & UINT32_C(0x7f800000)) + UINT32_C(0x00800000);
    }
    return !(found >> 31);
}

void kin_border_log_put(kin_border_log *log, int il, const kin_page_key *name, const float *rows, bool is_sent) {
    kin_page_key key = key_of(name, il);
    bool is_there = kin_kv_store_has(log->store, &key) || kin_kv_store_is_queued(log->store, &key);
    uint8_t *content = is_there ? NULL : kin_kv_store_begin(log->store);
    if (!content) return;
    if (is_sent)
        round_sent(log, content, rows, KIN_KV_CELLS);
    else
        memcpy(content, rows, log->n_embd * KIN_KV_CELLS * sizeof *rows);
    if (are_finite(content, log->n_embd * KIN_KV_CELLS))
        kin_kv_store_keep(log->store, &key, content);
    else
        kin_kv_store_give_up(log->store, content);
}

static bool is_named(const block_rows *b, const kin_page_key *name) {
    return b->has_name && memcmp(&b->name, name, sizeof *name) == 0;
}

void kin_border_log_drop(kin_border_log *log, const kin_page_key *names, int n, int n_layer) {
    kin_kv_store_settle(log->store);
    for (int i = 0; i < n; i++) {
        for (int il = 0; il < n_layer; il++) {
            kin_page_key key = key_of(&names[i], il);
            kin_kv_store_remove(log->store, &key);
        }
        for (int k = 0; k < log->n; k++) {
            if (is_named(&log->blocks[k], &names[i])) kin_border_log_forget(log, log->blocks[k].block);
        }
    }
}

void kin_border_log_settle(kin_border_log *log) {
    kin_kv_store_settle(log->store);
}

void kin_border_log_fetch(kin_border_log *log, int il, const kin_page_key *names, int n, int timeout_ms) {
    kin_page_key missing[KIN_BORDER_PAGES_MAX];
    int n_missing = 0;
    kin_assert(n <= KIN_BORDER_PAGES_MAX);
    for (int i = 0; i < n; i++) {
        missing[n_missing] = key_of(&names[i], il);
        n_missing += !kin_kv_store_has(log->store, &missing[n_missing]);
    }
    if (n_missing > 0 && timeout_ms > 0) kin_kv_store_fetch(log->store, missing, n_missing, timeout_ms);
}

bool kin_border_log_get(kin_border_log *log, int il, const kin_page_key *name, float *rows) {
    kin_page_key key = key_of(name, il);
    if (!rows) return kin_kv_store_has(log->store, &key);
    const uint8_t *content = kin_kv_store_read(log->store, &key);
    if (content) memcpy(rows, content, log->n_embd * KIN_KV_CELLS * sizeof *rows);
    return content != NULL;
}

uint64_t kin_border_log_bytes(const kin_border_log *log) {
    return (uint64_t)log->n * log->n_embd * KIN_KV_CELLS * sizeof(float);
}
