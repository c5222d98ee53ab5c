// A reader over one family's metadata ("llama.block_count"): checks ranges, and stops at the first error.
//
// A read after an error returns 0 and changes nothing, so a family reads all of its keys and asks for `failed` once.
// Thread: the one that opens the model.
#pragma once

#include <stdbool.h>

#include "base/err.h"
#include "kernels/kernels.h"
#include "model/gguf.h"

typedef struct kin_meta {
    const kin_gguf *gguf;
    const char *family; // the prefix of the keys
    int n_layer;        // the elements of an array by layer; set by kin_hparams_read
    kin_err *err;
    bool failed;
} kin_meta;

enum { KIN_KEY_REQUIRED = -1 }; // in place of a fallback

// An integer in [min, max]; absent: `fallback`, or an error where it is KIN_KEY_REQUIRED.
int kin_meta_int(kin_meta *keys, const char *key, int fallback, int min, int max);

// The same of a number for all layers, or an array with one for each, which must be equal.
int kin_meta_int_of_all(kin_meta *keys, const char *key, int fallback, int min, int max);

float kin_meta_float(kin_meta *keys, const char *key, float fallback, float min, float max);
bool kin_meta_bool(kin_meta *keys, const char *key, bool fallback);

// A string; absent: `fallback`.
kin_str kin_meta_str(kin_meta *keys, const char *key, const char *fallback);

// How experts are chosen: expert_gating_func (absent: `gating`), expert_weights_norm, expert_weights_scale and groups.
void kin_meta_routing(kin_meta *keys, kin_routing *routing, kin_gating gating, bool normalize);

// Sets the error, unless there is one already.
void kin_meta_fail(kin_meta *keys, const char *format, ...) __attribute__((format(printf, 2, 3)));
