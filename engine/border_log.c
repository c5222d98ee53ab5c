#include "engine/border_log.h"

#include <stdlib.h>
#include <string.h>

enum {
    MAX_BYTES = 32 << 20, // of rows in memory
    MAX_BLOCKS = 512,
    STALE_ROWS = 16384,     // after so many rows of others a full block that was not kept is of a text that is kept nowhere
    STALE_PART_ROWS = 2048, // and one that is not full of a text that has ended
};

// The rows of a block of the KV cache at a border.
typedef struct block_rows {
    int il, block;
    int n;          // of the first cells
    bool is_kept;   // it is on the disk
    uint64_t added; // rows of all blocks, when it got its last one
    float *rows;    // f32 [64, n_embd]
} block_rows;

struct kin_border_log {
    kin_kv_store *store;
    kin_kv_peers peers; // as of the KV cache's pages, without copies
    size_t n_embd;
    block_rows blocks[MAX_BLOCKS]; // [n]
    int n, most;
    uint64_t n_added;
};

static void keep_no_copy(void *user, const kin_page_name *name, size_t n) {
    (void)user, (void)name, (void)n;
}

static void fetch(void *user, const kin_page_name *names, int n, size_t bytes, int patience_ms) {
    const kin_kv_peers *of = user;
    of->fetch(of->user, names, n, bytes, patience_ms);
}

int kin_border_log_open(kin_border_log **out, int n_embd, const kin_kv_disk *disk, const uint8_t variant[KIN_KV_VARIANT_BYTES],
                        kin_err *err) {
    uint8_t own[KIN_KV_VARIANT_BYTES];
    kin_kv_disk own_disk = *disk;
    kin_border_log *log = *out = calloc(1, sizeof *log);
    if (!log) return kin_err_set(err, "out of memory");
    log->n_embd = (size_t)n_embd;
    log->peers = (kin_kv_peers){.written = keep_no_copy, .fetch = fetch, .user = (void *)disk->peers};
    if (disk->peers) own_disk.peers = &log->peers;
    size_t n_page = log->n_embd * KIN_KV_CELLS * sizeof(float);
    log->most = MAX_BYTES / n_page < MAX_BLOCKS ? (int)(MAX_BYTES / n_page) : MAX_BLOCKS;
    memcpy(own, variant, sizeof own);
    own[sizeof own - 1] ^= 1;
    if (kin_kv_store_open(&log->store, &own_disk, own, n_page, err) == 0) return 0;
    free(log);
    *out = NULL;
    return KIN_FAIL;
}

void kin_border_log_close(kin_border_log *log) {
    if (!log) return;
    kin_kv_store_close(log->store);
    for (int i = 0; i < log->n; i++) free(log->blocks[i].rows);
    free(log);
}

// ---- rows in memory

static block_rows *find(kin_border_log *log, int il, int block) {
    for (int i = 0; i < log->n; i++) {
        if (log->blocks[i].il == il && log->blocks[i].block == block) return &log->blocks[i];
    }
    return NULL;
}

// The one whose room is needed least: kept, or never to be. NULL: none.
static block_rows *find_idle(kin_border_log *log) {
    block_rows *idle = NULL;
    for (int i = 0; i < log->n; i++) {
        block_rows *b = &log->blocks[i];
        uint64_t stale = b->n < KIN_KV_CELLS ? STALE_PART_ROWS : STALE_ROWS;
        bool is_idle = b->is_kept || b->n == 0 || log->n_added - b->added > stale;
        if (is_idle && (!idle || b->added < idle->added)) idle = b;
    }
    return idle;
}

// With room for rows, and none of them yet. NULL: it is left out.
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

void kin_border_log_add(kin_border_log *log, int il, const int64_t *cells, int n, const float *x) {
    log->n_added += (uint64_t)n;
    block_rows *b = NULL;
    for (int i = 0; i < n; i++) {
        int block = (int)(cells[i] / KIN_KV_CELLS), at = (int)(cells[i] % KIN_KV_CELLS);
        if (!b || b->il != il || b->block != block) b = at == 0 ? begin(log, il, block) : find(log, il, block);
        if (!b || at > b->n) continue; // rows before it are missing
        memcpy(b->rows + (size_t)at * log->n_embd, x + (size_t)i * log->n_embd, log->n_embd * sizeof *x);
        b->n = at + 1; // those behind it were forgotten
        b->is_kept = false;
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
        if (log->blocks[i].block == block) log->blocks[i].n = 0;
    }
}

void kin_border_log_keep(kin_border_log *log, int block, const kin_page_key *name) {
    for (int i = 0; i < log->n; i++) {
        block_rows *b = &log->blocks[i];
        if (b->block != block || b->n < KIN_KV_CELLS || b->is_kept) continue;
        kin_border_log_put(log, b->il, name, b->rows);
        b->is_kept = true;
    }
}

// ---- pages

static kin_page_key key_of(const kin_page_key *name, int il) {
    return kin_page_key_of_layer(name, il, false);
}

void kin_border_log_put(kin_border_log *log, int il, const kin_page_key *name, const float *rows) {
    kin_page_key key = key_of(name, il);
    uint8_t *content = kin_kv_store_has(log->store, &key) ? NULL : kin_kv_store_begin(log->store);
    if (!content) return;
    memcpy(content, rows, log->n_embd * KIN_KV_CELLS * sizeof *rows);
    kin_kv_store_keep(log->store, &key, content);
}

void kin_border_log_settle(kin_border_log *log) {
    kin_kv_store_settle(log->store);
}

void kin_border_log_fetch(kin_border_log *log, int il, const kin_page_key *names, int n, int patience_ms) {
    kin_page_key missing[KIN_BORDER_PAGES_MAX];
    int n_missing = 0;
    kin_assert(n <= KIN_BORDER_PAGES_MAX);
    for (int i = 0; i < n; i++) {
        missing[n_missing] = key_of(&names[i], il);
        n_missing += !kin_kv_store_has(log->store, &missing[n_missing]);
    }
    if (n_missing > 0 && patience_ms > 0) kin_kv_store_fetch(log->store, missing, n_missing, patience_ms);
}

bool kin_border_log_get(kin_border_log *log, int il, const kin_page_key *name, float *rows) {
    kin_page_key key = key_of(name, il);
    if (!rows) return kin_kv_store_has(log->store, &key);
    const uint8_t *content = kin_kv_store_read(log->store, &key);
    if (content) memcpy(rows, content, log->n_embd * KIN_KV_CELLS * sizeof *rows);
    return content != NULL;
}
