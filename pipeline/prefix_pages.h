// The head's side of the pages that are kept on disks (engine/kv_store.h): which tokens a page stands for.
//
// A page is named by a chain of hashes with a secret: of the text's first 64 tokens, of that name and the next 64, and so on. So
// a page stands for its tokens and all before them, and names tell nothing of the text. Devices know names only. The head keeps
// the tokens of each page on its own disk, encrypted as pages are, and compares them before it asks the others for a page.
//
// Owner and thread: who has the scheduler, its thread.
#pragma once

#include <stdbool.h>

#include "engine/kv.h"
#include "engine/kv_store.h"

typedef struct kin_prefix_pages kin_prefix_pages;

// What all pages depend on beside tokens: the model, and the numbers that its keys and values are computed with.
typedef struct kin_prefix_pages_options {
    kin_kv_disk disk;
    const void *context; // [n_context] bytes
    size_t n_context;
} kin_prefix_pages_options;

int kin_prefix_pages_open(kin_prefix_pages **out, const kin_prefix_pages_options *options, kin_err *err);
void kin_prefix_pages_close(kin_prefix_pages *pages); // NULL is allowed

// The names of the blocks first .. first + n - 1, n <= KIN_PAGES_MAX, of a text // i32 [>= (first + n) * KIN_KV_CELLS]. False:
// there is no SHA-256 here.
bool kin_prefix_pages_name(kin_prefix_pages *pages, const int32_t *tokens, int first, int n, kin_page_key *keys);

// Of a text's n_blocks first blocks, so many have been kept, with just these tokens. Those before `first` are not looked for.
int kin_prefix_pages_find(kin_prefix_pages *pages, const int32_t *tokens, int first, int n_blocks);

// The block that followed a text's first n_blocks > 0 blocks when such a text was kept last -> next // i32 [KIN_KV_CELLS]. False:
// not known.
bool kin_prefix_pages_next(kin_prefix_pages *pages, const int32_t *tokens, int n_blocks, int32_t *next);

// The first n_blocks blocks of a text are not found any more.
void kin_prefix_pages_forget(kin_prefix_pages *pages, const int32_t *tokens, int n_blocks);

// Keeps the tokens of these blocks, which were named: their pages are being kept. borders: of the ring that has computed them.
void kin_prefix_pages_keep(kin_prefix_pages *pages, const int32_t *tokens, int first, int n, const kin_page_key *keys,
                           const kin_border_set *borders);

// How many of the first of these n > 0 pages were computed in one ring, with these borders. None, if the first is not known.
int kin_prefix_pages_borders(kin_prefix_pages *pages, const kin_page_key *keys, int n, kin_border_set *borders);
