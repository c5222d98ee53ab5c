// The families that the reference engine's loader knows, and what their files do not say.
#pragma once

#include "testkit/ref/model.h"
#include "testkit/ref_keys.h"

typedef struct kin_ref_family {
    const char *name; // general.architecture
    kin_ref_rope_kind rope;
    kin_ref_gate gate;
    bool has_latents; // some or all layers have latent attention
    bool never_rotates;
    bool chooses_blocks;                                  // attention's indexer chooses blocks of tokens
    bool has_query_gates;                                 // of attention, in the matrix of queries
    bool has_grouped_keys;                                // of gated delta nets: value heads of a key head stand together
    bool chooses_by_sigmoids;                             // experts, unless the file says another way
    bool keeps_shares;                                    // of experts, unless the file says that they are normalised
    bool ignores_routing_keys;                            // shares are normalised, and not scaled
    bool centers_norms;                                   // the key of their epsilon has another name, too
    bool post_norm_is_ffn_norm;                           // post_attention_norm is the feed-forward block's norm
    bool has_fused_gate_up;                               // ffn_up holds the rows of the gate, then those of up
    bool has_window;                                      // the key attention.sliding_window counts
    int period, full_at;                                  // layer il is not windowed if il % period is full_at; 0: no period
    bool full_has_no_rope;                                // these layers do not rotate
    bool window_rope_unscaled;                            // windowed layers rotate without scaling and rope factors
    float window_freq_base;                               // theirs, if the file has none; 0: that of other layers
    int (*read)(const kin_ref_keys *k, kin_ref_model *m); // keys of its own; may be NULL
    int (*read_layer)(const kin_ref_keys *k, kin_ref_model *m, kin_ref_layer *w, int il); // may be NULL
} kin_ref_family;

// Returns the family of this name, or NULL.
const kin_ref_family *kin_ref_family_find(kin_str name);
