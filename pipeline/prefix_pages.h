// The head's index of the pages that are stored on disks (engine/kv/store.h): it knows which tokens a page stands for.
//
// A page's name is a link in a chain of hashes with a secret: of the sequence's first 64 tokens, then of that name and the next
// 64, and so on. So a page stands for its tokens and all before them, and names reveal nothing about the text. Devices know only
// names. The head stores the tokens of each page on its own disk, encrypted like pages, and compares them before it asks others
// for a page.
//
// Owner and thread: the scheduler's.
#pragma once

#include <stdbool.h>

#include "engine/kv.h"
#include "engine/kv/store.h"

typedef struct kin_prefix_pages kin_prefix_pages;

// Inputs of all names beside tokens: the model, and the parameters with which its keys and values are computed.
typedef struct kin_prefix_pages_options {
    kin_kv_disk disk;
    const void *context; // [n_context] bytes
    size_t n_context;
} kin_prefix_pages_options;

int kin_prefix_pages_open(kin_prefix_pages **out, const kin_prefix_pages_options *options, kin_err *err);
void kin_prefix_pages_close(kin_prefix_pages *pages); // NULL is allowed

// Computes the names of blocks first .. first + n - 1, n <= KIN_PAGES_MAX, of a sequence // i32 [>= (first + n) * KIN_KV_CELLS].
// False: SHA-256 is not available.
bool kin_prefix_pages_name(kin_prefix_pages *pages, const int32_t *tokens, int first, int n, kin_page_key *keys);

// Returns how many of a sequence's n_blocks first blocks are stored with exactly these tokens. Those before `first` are not
// checked.
int kin_prefix_pages_find(kin_prefix_pages *pages, const int32_t *tokens, int first, int n_blocks);

// Finds the block that followed the sequence's first n_blocks > 0 blocks when such a sequence was last stored -> next // i32
// [KIN_KV_CELLS]. False: not known.
bool kin_prefix_pages_next(kin_prefix_pages *pages, const int32_t *tokens, int n_blocks, int32_t *next);

// The states that layers without pages need at the end of a block (kin_kv_n_parts) are kept at few blocks, the checkpoints of a
// sequence.
typedef enum kin_states_kind {
    KIN_STATES_NONE,
    KIN_STATES_OF_TURN, // where a prompt ended: of use until the next turn has its own
    KIN_STATES_LASTING,
} kin_states_kind;

// Finds the kinds of a sequence's checkpoints at its first n_blocks blocks -> kinds // [n_blocks] kin_states_kind
void kin_prefix_pages_checkpoints(kin_prefix_pages *pages, const int32_t *tokens, int n_blocks, uint8_t *kinds);
// Records that states at the end of block n_blocks - 1 are kept; KIN_STATES_NONE: that they are not.
void kin_prefix_pages_set_checkpoint(kin_prefix_pages *pages, const int32_t *tokens, int n_blocks, kin_states_kind kind);

// Removes the first n_blocks blocks of a sequence, with its checkpoints there.
void kin_prefix_pages_forget(kin_prefix_pages *pages, const int32_t *tokens, int n_blocks);

// Stores the tokens of these named blocks, whose pages are being stored. borders: those of the ring that computed them.
void kin_prefix_pages_keep(kin_prefix_pages *pages, const int32_t *tokens, int first, int n, const kin_page_key *keys,
                           const kin_border_set *borders);

// Returns how many of the first of these n > 0 pages one ring computed; *borders: its borders. All zeros if the first page is not
// known.
int kin_prefix_pages_borders(kin_prefix_pages *pages, const kin_page_key *keys, int n, kin_border_set *borders);
