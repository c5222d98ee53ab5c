// Computes a model's memory beside its weights from the beginning of its file: the KV cache and the buffers that a shard of
// all layers plans with (kin_shard_fixed_bytes).
//
// Plain function; any thread.
#pragma once

#include <stdint.h>

enum { KIN_NEEDS_CTX = 16384 }; // tokens of context, or the model's own if it has fewer: as kin chat opens a model

// head: the first n bytes of a file of file_size bytes. Returns 0 and *beside; KIN_ABSENT: the first *reach bytes of the file are
// needed; KIN_FAIL: unknown, because the file is not of a known family or is a part of a split model.
int kin_model_needs(const uint8_t *head, uint64_t n, uint64_t file_size, uint64_t *reach, uint64_t *beside);
