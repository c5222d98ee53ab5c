// The tensors and the vocabulary of a generated model: random weights of the types that a mix says, filled while the writer
// saves.
//
// Running out of memory is a broken invariant, not an error. Owner: the creator. Thread: one.
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "testkit/gguf_write.h"

typedef struct kin_generator kin_generator;

typedef struct kin_gen_facts {
    const char *mix; // one of kin_model_mixes
    int n_layer;
    int n_vocab;
    bool tied;       // the embedding is the output, so it has its type
    bool is_mixtral; // its attention has more bits
    bool endless;    // the row of </s> in output.weight is zero
    bool pooled;     // see random_rows.h
    uint64_t seed;
} kin_gen_facts;

enum {
    KIN_GEN_POOLED_MIN = 32 << 20, // weights, about half a second of rounding
    KIN_GEN_TOKENS_SPECIAL = 3,    // <unk>, <s>, </s>
    KIN_GEN_TOKENS_BYTE = 256,     // then the bytes, if there is room, and words
};

// The role of a matrix, as far as its type depends on it.
typedef enum kin_role {
    KIN_ROLE_OTHER,
    KIN_ROLE_EMBD,
    KIN_ROLE_OUTPUT,
    KIN_ROLE_ATTN_K,
    KIN_ROLE_ATTN_V,
    KIN_ROLE_ATTN_OUTPUT,
    KIN_ROLE_FFN_UP,
    KIN_ROLE_FFN_DOWN,
} kin_role;

const char *kin_model_mixes(void); // for help texts: "f32, f16, ..."
bool kin_model_has_mix(const char *name);

// The facts are copied, the mix is borrowed.
kin_generator *kin_gen_new(const kin_gen_facts *facts);
void kin_gen_free(kin_generator *g);
kin_gguf_writer *kin_gen_writer(kin_generator *g);

// Writes the keys of the weights' types, and the vocabulary.
void kin_gen_put_types(kin_generator *g);
void kin_gen_put_vocab(kin_generator *g);

// Adds weights of [n_in, n_out] or, with n_expert > 0, of [n_in, n_out, n_expert]; il < 0: in no layer.
void kin_gen_add_matrix(kin_generator *g, kin_role r, int il, const char *name, int64_t n_in, int64_t n_out, int64_t n_expert);

// Adds an F32 matrix of [n_in, n_out], which is never quantized. skew: the spread of the logarithms of its rows' lengths
void kin_gen_add_floats(kin_generator *g, const char *name, int64_t n_in, int64_t n_out, float skew);

// Adds the F32 taps of a convolution, [n_taps, 1, n_channels].
void kin_gen_add_taps(kin_generator *g, const char *name, int64_t n_taps, int64_t n_channels);

// Adds a matrix like the output, in which row i is row row_of(user, i) of those that all of these matrices have in common.
void kin_gen_add_known(kin_generator *g, const char *name, int64_t n_in, int64_t n_out,
                       uint64_t (*row_of)(const void *user, uint64_t row), const void *user);

// Adds n numbers around `mean` with a standard deviation of 0.1, and returns them; they may be changed until the writer saves.
float *kin_gen_add_vector(kin_generator *g, const char *name, float mean, int64_t n);
// Adds the numbers of n_used different experts of n_expert for each of n_rows tokens, as I32.
void kin_gen_add_experts(kin_generator *g, const char *name, int n_used, int64_t n_rows, int n_expert);
float *kin_gen_add_vectors(kin_generator *g, const char *name, float mean, int64_t n, int64_t n_rows); // rows of n numbers
