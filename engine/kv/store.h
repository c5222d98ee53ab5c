// Stores pages of the KV cache on this machine's disk, encrypted, so that a restart need not recompute them.
//
// Pages are files (engine/kv/file.h) in a folder whose name is a hash of the secret and of the variant. The store's thread writes
// each page once. If the disk cannot keep up, pages are left out. Damaged pages are removed and logged; write failures are logged
// once. All folders together stay within a cap: the least recently used pages are removed. Several processes may share a folder.
//
// Owner and thread: the code that opened it, one thread.
#pragma once

#include <stdbool.h>

#include "engine/kv/file.h"

typedef struct kin_kv_store kin_kv_store;

// Other devices that hold copies of pages, and can store copies. The two callbacks may run on different threads at the same time.
typedef struct kin_kv_peers {
    // A page was written as a file of n bytes: copy it to another device. Called on the store's thread.
    void (*written)(void *user, const kin_page_name *name, size_t n);
    // Fetches these pages, files of `bytes` each, onto the disk. Returns when they are there, or cannot be had within
    // timeout_ms. Called on the thread of the store's owner.
    void (*fetch)(void *user, const kin_page_name *names, int n, size_t bytes, int timeout_ms);
    void *user;
} kin_kv_peers;

// Where pages are kept, and the key they are encrypted with.
typedef struct kin_kv_disk {
    const char *dir;    // the cache folder; NULL: no pages are kept
    uint64_t cap;       // bytes of all pages there; 0: a twentieth of the disk
    uint8_t secret[32]; // a store with another secret finds nothing and reads nothing
    uint64_t model;     // in a ring: the beginning of the model's content hash, the same at all members; 0: the shard's own
                        // identity
    const kin_kv_peers *peers; // borrowed until close; NULL: none
} kin_kv_disk;

// variant: of the content; n_page: content bytes of each page. Nothing is written before the first page.
int kin_kv_store_open(kin_kv_store **out, const kin_kv_disk *disk, const uint8_t variant[KIN_KV_VARIANT_BYTES], size_t n_page,
                      kin_err *err);
// Waits until kept pages are written, for a few seconds at most. NULL is allowed.
void kin_kv_store_close(kin_kv_store *store);

bool kin_kv_store_has(const kin_kv_store *store, const kin_page_key *key);
// True if the page is still to be written.
bool kin_kv_store_is_queued(kin_kv_store *store, const kin_page_key *key);

// Begins a page: returns a buffer for its content, to be filled and passed to kin_kv_store_keep. NULL: the page is left out
// because the disk is behind or fails. Waits at most 100 ms for the disk to write what is queued.
uint8_t *kin_kv_store_begin(kin_kv_store *store);
// The same, but waits about timeout_ms. A page that is left out does not count as such: the caller tries again.
uint8_t *kin_kv_store_begin_within(kin_kv_store *store, int timeout_ms);
void kin_kv_store_keep(kin_kv_store *store, const kin_page_key *key, uint8_t *content);
// Releases the buffer instead of keeping its content.
void kin_kv_store_give_up(kin_kv_store *store, uint8_t *content);

// Waits until all kept pages are written, for a few seconds at most.
void kin_kv_store_settle(kin_kv_store *store);
// Removes a page, from the queue too.
void kin_kv_store_remove(kin_kv_store *store, const kin_page_key *key);

// Asks the peers, if any, for pages that are missing here, and waits for them, at most timeout_ms.
void kin_kv_store_fetch(kin_kv_store *store, const kin_page_key *keys, int n, int timeout_ms);

// Returns the content of a page, valid until the next call. NULL: the page is absent or unusable.
const uint8_t *kin_kv_store_read(kin_kv_store *store, const kin_page_key *key);

// Totals since open.
typedef struct kin_kv_store_stats {
    uint64_t n_written, n_left_out, n_read, n_damaged;
} kin_kv_store_stats;

kin_kv_store_stats kin_kv_store_get_stats(kin_kv_store *store);
