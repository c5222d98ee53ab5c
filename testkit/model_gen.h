// Makes models of random weights: any shape, the tensors and metadata of a real model of its family, and an invented vocabulary.
// For tests and benchmarks that depend on bytes, shapes and types, not on the text.
//
// Families: llama (dense, or with experts as in Mixtral), qwen2, qwen3, qwen3moe, qwen35 (dense; attention and delta nets).
// Any other family that kin opens: from a text of its metadata, see `keys`.
// Vocabulary (SentencePiece): <unk> <s> </s>, the 256 bytes, then all words over an alphabet of 27, shortest first; any text can
// be encoded. Below 259 tokens the bytes are missing.
// Weights: see random_rows.h. Up to 32 million weights are quantized one by one, more come from a pool.
//
// A qwen35 model may have draft blocks (multi-token prediction), in its file or in one of their own. If draft_right is set, the
// model's text is known: each word follows another one in a fixed order, in which all words come before one is repeated. Rows of
// the embedding and the output are the same rows in this order, and layers add next to nothing to an embedding. Each draft block
// has an embedding of its own, in which words have another word's row, except for that share of them: so its drafts are right
// after these words, and wrong after the others.
//
// With the same build of ggml, the same spec makes the same file, byte for byte.
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "testkit/model_part.h"

typedef struct kin_model_spec {
    const char *arch; // "llama", "qwen2", "qwen3", "qwen3moe", "qwen35"
    const char *mix;  // types of the weights, see model_tensors.h
    int n_layer, n_embd, n_ff;
    int n_head, n_head_kv;
    int head_dim; // 0: n_embd / n_head
    int n_vocab, n_ctx;
    int n_expert, n_expert_used; // 0: dense
    int n_ff_exp;                // 0: n_ff; llama requires that
    bool tied;                   // no output.weight: the embedding is the output
    bool rope_freqs;             // the tensor of Llama 3.1 and later
    bool attn_out_bias;          // a bias of the attention's output, in each layer
    bool endless;                // the logit of </s> is 0, so it is never the likeliest token; not with `tied`
    int attention_interval;      // qwen35: every n-th layer is attention, the others are delta nets; 0: all are attention
    int state_dim;               // qwen35: a head's state is a matrix of so many rows and columns
    int draft_blocks;            // qwen35: blocks for multi-token prediction
    float draft_right;           // with them: see above; 0: random weights
    kin_model_part part;         // of a model with such blocks
    float rope_freq_base;
    bool routes_by_token; // layers change their input little, so experts depend on each token alone; else on a text's average
    float layer_change;   // with it: how much experts change their input; the more, the less the router of the next layer says
                          // before they have. 0: 0.02
    float router_skew;    // 0: the router prefers no expert; else the spread of the logarithms of its rows' lengths
    int pooling_type;     // of embeddings, with the format's numbers; 0: not written
    bool hollow;          // zeros in place of weights, which take no space (kin_gguf_writer_hollow)
    uint64_t seed;

    // The path of a text of metadata, bench/families/NAME.txt; NULL: none. Of the other fields only mix, n_vocab, part and seed
    // count then. A line is "KEY VALUE", where the family's prefix is left out, or "optional NAME...": weights that layers have
    // if they may ("attn_q.bias"), "tied", "draft_norm": draft blocks have a norm of their own, "present NAME [ROWS]": a tensor
    // by which the family knows which layers have what, or "ignored FIRST[/STEP] NAME COLUMNS [ROWS]": a tensor of blocks from
    // the first one on (of every STEP-th one), which kin accepts and never reads. A value is an integer, a number with a point,
    // true, false, a text, or a list of these in brackets. Layers get all weights that the family requires.
    const char *keys;
} kin_model_spec;

// The preset "tiny": 4 layers, 3 million weights.
kin_model_spec kin_model_spec_defaults(void);

// Sets the preset of that name. Fails if there is none; the sentence lists the presets.
int kin_model_spec_preset(kin_model_spec *spec, const char *name, kin_err *err);

const char *kin_model_presets(void); // for help texts: "tiny, 25m, ..."

// Fails with a sentence if the spec is impossible or the file cannot be written.
int kin_model_gen(const kin_model_spec *spec, const char *path, kin_err *err);

// Writes PREFIX-00001-of-0000N.gguf and so on.
int kin_model_gen_split(const kin_model_spec *spec, const char *prefix, int n_parts, kin_err *err);
