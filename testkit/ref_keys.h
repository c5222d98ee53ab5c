// Reads the keys of a model's family, such as "llama.rope.freq_base", for the reference engine's loader.
//
// Each function returns 0 and the value of FAMILY.name, or `absent` if the key is absent; KIN_FAIL if it has another kind.
// Thread: any.
#pragma once

#include "base/err.h"
#include "model/gguf.h"

typedef struct kin_ref_keys {
    const kin_gguf *gguf;
    const char *family;
    kin_err *err;
} kin_ref_keys;

int kin_ref_get_int(const kin_ref_keys *k, const char *name, int absent, int *value);
// Element i of an array of whole numbers of any size, or 0 if the key is no array that has it.
uint64_t kin_ref_get_u64_at(const kin_ref_keys *k, const char *name, int i);
int kin_ref_get_float(const kin_ref_keys *k, const char *name, float absent, float *value);
int kin_ref_get_bool(const kin_ref_keys *k, const char *name, bool absent, bool *value);
int kin_ref_get_str(const kin_ref_keys *k, const char *name, kin_str absent, kin_str *value);

// Of a key that may be a number, or an array with one for each layer: that of layer il.
int kin_ref_get_int_at(const kin_ref_keys *k, const char *name, int il, int absent, int *value);
int kin_ref_get_float_at(const kin_ref_keys *k, const char *name, int il, float absent, float *value);
