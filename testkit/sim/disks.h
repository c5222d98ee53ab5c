// Disks of a simulated cluster (cluster.h) with pages of sequences. They outlive the processes. A page is written some time
// after it was given to its store. Some time later, pages that devices write are copied to the next member that keeps pages, or
// to the head. A process that dies while it writes leaves nothing, or a page that cannot be opened. Copies have the bytes that
// were written.
//
// Owner: the test, which zeroes it, sets w, and any field that differs from disks that keep everything.
#pragma once

#include "engine/kv/page.h"
#include "kernels/kernels.h"
#include "testkit/sim/cluster.h"

enum {
    KIN_SIM_PAGE_BYTES = 2 * 8 * KIN_KV_CELLS, // 8 bytes of keys and 8 of values for each token
    KIN_SIM_PAGES = 32768,
    KIN_SIM_WRITES = 8192,
};

typedef enum kin_sim_page_kind { KIN_SIM_OF_LAYER, KIN_SIM_OF_TOKENS, KIN_SIM_OF_BORDER } kin_sim_page_kind;

typedef struct kin_sim_page {
    int node;
    kin_sim_page_kind kind;
    bool is_there, is_torn;
    kin_page_key key;
    uint8_t content[KIN_SIM_PAGE_BYTES];
} kin_sim_page;

// A page that is being written; a copy is first fetched from its source.
typedef struct kin_sim_page_write {
    int node, source; // source -1: not a copy
    uint32_t life, source_life;
    kin_sim_page_kind kind;
    kin_page_key key;
    uint8_t *content; // NULL: a free entry
} kin_sim_page_write;

typedef struct kin_sim_disks {
    kin_sim *w;
    bool has_no_copies;
    bool keeps_nothing[KIN_SIM_NODES]; // --no-kv-disk
    kin_time full_until[KIN_SIM_NODES];
    uint64_t n_torn, n_copied, n_refused; // pages; refused: by a full disk
    kin_sim_page pages[KIN_SIM_PAGES];    // from index 1 on
    int n_pages;
    int places[2 * KIN_SIM_PAGES]; // hash table of pages; 0: free
    kin_sim_page_write writes[KIN_SIM_WRITES];
    uint32_t n_writes;
} kin_sim_disks;

kin_sim_page *kin_sim_find_page(kin_sim_disks *disks, int node, kin_sim_page_kind kind, const kin_page_key *key); // NULL: none
void kin_sim_put_page(kin_sim_disks *disks, int node, kin_sim_page_kind kind, const kin_page_key *key, const uint8_t *content,
                      bool is_torn);

// Gives a page to the node's disk. Takes `content`, which comes from malloc.
void kin_sim_write_page(kin_sim_disks *disks, int node, kin_sim_page_kind kind, const kin_page_key *key, uint8_t *content);
bool kin_sim_is_writing(const kin_sim_disks *disks, int node, kin_sim_page_kind kind, const kin_page_key *key);
// Completes the writes of that kind that the node has given to its disk.
void kin_sim_settle_pages(kin_sim_disks *disks, int node, kin_sim_page_kind kind);
// Handles KIN_SIM_WRITTEN. True if a copy is being fetched now: *from and *to are its nodes.
bool kin_sim_page_written(kin_sim_disks *disks, uint32_t ticket, int *from, int *to);

// Damages pages: one in `one_in` of the node's pages can no longer be opened.
void kin_sim_damage_pages(kin_sim_disks *disks, int node, uint64_t one_in);

// Returns the replica: the member that has copies of this one's pages. The head has its own.
int kin_sim_replica(const kin_sim_disks *disks, int node);

void kin_sim_disks_end(kin_sim_disks *disks); // removes all pages and writes
