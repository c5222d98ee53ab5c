// A reader of one family's metadata ("llama.block_count"): checks ranges, and stops at the first error.
//
// A read after an error returns 0 and changes nothing, so a family reads all of its keys and checks `failed` once. Thread: the
// one that opens the model.
#pragma once

#include <stdbool.h>

#include "base/err.h"
#include "kernels/kernels.h"
#include "model/gguf.h"

typedef struct kin_meta {
    const kin_gguf *gguf;
    const char *family; // the prefix of the keys
    int n_layer;        // the number of elements of a per-layer array; set by kin_hparams_read
    kin_err *err;
    bool failed;
} kin_meta;

enum { KIN_KEY_REQUIRED = -1 }; // instead of a fallback

// Reads an integer in [min, max]; if absent: `fallback`, or an error if that is KIN_KEY_REQUIRED.
int kin_meta_int(kin_meta *keys, const char *key, int fallback, int min, int max);

// Does the same for one number for all layers, or an array with one per layer, all equal.
int kin_meta_int_of_all(kin_meta *keys, const char *key, int fallback, int min, int max);

// Does the same for layer `il`'s number: one for all layers, or an array with one per layer.
int kin_meta_int_at(kin_meta *keys, const char *key, int il, int fallback, int min, int max);

// Returns element i of an array of integers, of any size; a single one counts as an array of one. *n: how many there are. Fails
// if there is no such key, or no such element.
uint64_t kin_meta_u64_at(kin_meta *keys, const char *key, uint64_t i, uint64_t *n);

// Reads layer `il`'s float of an array with one per layer; if there is no such key: `fallback`.
float kin_meta_float_at(kin_meta *keys, const char *key, int il, float fallback, float min, float max);

float kin_meta_float(kin_meta *keys, const char *key, float fallback, float min, float max);
bool kin_meta_bool(kin_meta *keys, const char *key, bool fallback);

// Reads a string; if absent: `fallback`.
kin_str kin_meta_str(kin_meta *keys, const char *key, const char *fallback);

// Reads how experts are chosen: expert_gating_func (if absent: `gating`), expert_weights_norm, expert_weights_scale and groups.
void kin_meta_routing(kin_meta *keys, kin_routing *routing, kin_gating gating, bool normalize);

// Sets the error, unless one is set already.
void kin_meta_fail(kin_meta *keys, const char *format, ...) __attribute__((format(printf, 2, 3)));
