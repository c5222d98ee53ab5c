// Pages of the KV cache on this machine's disk, encrypted: what was computed once need not be computed again after a restart.
//
// Pages are files (engine/kv_file.h) in a folder whose name is a hash of the secret and of the variant. A page is written by a
// thread of the store, once. If the disk is slower than what is to be written, pages are left out. What is damaged is removed and
// told in the log; what cannot be written is told once. All folders together stay within a cap: the least recently used pages
// leave. Several processes may share a folder.
//
// Owner and thread: who opened it, one.
#pragma once

#include <stdbool.h>

#include "engine/kv_file.h"

typedef struct kin_kv_store kin_kv_store;

// Other devices that have copies of pages, and keep copies. The callbacks may come from different threads at a time.
typedef struct kin_kv_peers {
    // A page was written, a file of n bytes: to be copied to another device. The store's thread.
    void (*written)(void *user, const kin_page_name *name, size_t n);
    // These pages, files of `bytes` each, are wanted on the disk: returns when they are there, or are not to be had in
    // patience_ms. The store's owner's thread.
    void (*fetch)(void *user, const kin_page_name *names, int n, size_t bytes, int patience_ms);
    void *user;
} kin_kv_peers;

// Where pages are kept, and what they are encrypted with.
typedef struct kin_kv_disk {
    const char *dir;    // of caches; NULL: no pages are kept
    uint64_t cap;       // bytes of all pages there; 0: a twentieth of the disk
    uint8_t secret[32]; // who has another one finds nothing and reads nothing
    uint64_t model;     // of a ring: the beginning of its content hash, the same at all members; 0: the shard's own identity
    const kin_kv_peers *peers; // borrowed until close; NULL: none
} kin_kv_disk;

// variant: of the content; n_page: bytes of each page's content. Nothing is written before the first page.
int kin_kv_store_open(kin_kv_store **out, const kin_kv_disk *disk, const uint8_t variant[KIN_KV_VARIANT_BYTES], size_t n_page,
                      kin_err *err);
// Waits until what was kept is written, for some seconds at most. NULL is allowed.
void kin_kv_store_close(kin_kv_store *store);

bool kin_kv_store_has(const kin_kv_store *store, const kin_page_key *key);
// Whether it is still to be written.
bool kin_kv_store_is_queued(kin_kv_store *store, const kin_page_key *key);

// To keep a page: room for its content, to be filled and then given to kin_kv_store_keep. NULL: it is left out, for the disk is
// behind or fails. It may wait for the disk, at most 100 ms until that has written all.
uint8_t *kin_kv_store_begin(kin_kv_store *store);
void kin_kv_store_keep(kin_kv_store *store, const kin_page_key *key, uint8_t *content);
// In place of kin_kv_store_keep: the content is not to be kept.
void kin_kv_store_give_up(kin_kv_store *store, uint8_t *content);

// Waits until what was to be kept is written, for some seconds at most.
void kin_kv_store_settle(kin_kv_store *store);
// The page is gone. One that is still to be written comes back: see kin_kv_store_settle.
void kin_kv_store_remove(kin_kv_store *store, const kin_page_key *key);

// Asks the peers, if there are any, for pages that are not here, and waits for them, so long at most.
void kin_kv_store_fetch(kin_kv_store *store, const kin_page_key *keys, int n, int patience_ms);

// The content of a page, until the next call. NULL: there is none, or none that can be used.
const uint8_t *kin_kv_store_read(kin_kv_store *store, const kin_page_key *key);

// What it has written and read since open.
typedef struct kin_kv_store_stats {
    uint64_t n_written, n_left_out, n_read, n_damaged;
} kin_kv_store_stats;

kin_kv_store_stats kin_kv_store_get_stats(kin_kv_store *store);
