// Where the bytes of weight blocks are mapped, and the memory that they take there. Threads: see data.h.
#pragma once

#include "engine/weights/data.h"

// Returns the bytes of a packed block's pages.
uint64_t kin_weights_page_bytes(const kin_weights_block *b);

// Points the block's tensors at its mapping.
void kin_weights_point_at_mapping(kin_weights_block *b);

// True if a file has the block's bytes as they are used.
bool kin_weights_on_disk(const kin_weights *w, const kin_weights_block *b);

// Returns the hash of the block's weights in the model file.
uint64_t kin_weights_source_hash(const kin_weights_block *b);

// Releases a mapped block's memory until it is used.
void kin_weights_drop_pages(const kin_weights *w, const kin_weights_block *b);

// Releases the memory of a packed block's pages.
void kin_weights_drop_packed(const kin_weights_block *b);

// The source of a packed block is not read again: its pages are unmapped (but stay in the page cache).
void kin_weights_forget_source(const kin_weights *w, const kin_weights_block *b);
