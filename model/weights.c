#include "model/weights.h"

#include <string.h>

typedef enum dim {
    DIM_ONE,
    DIM_EMBD,
    DIM_Q, // n_head * head_dim
    DIM_K, // n_head_kv * head_dim
    DIM_V, // n_head_kv * v_dim
    DIM_ATTN_OUT,
    DIM_HEAD,
    DIM_FF,
    DIM_FF_EXP,
    DIM_FF_EXP_TWICE,
    DIM_EXPERT,
    DIM_EXPERT_WIDTH, // of its input and output
    DIM_EXPERT_LATENT,
    DIM_QKV,    // query, key and value heads
    DIM_N_HEAD, // query heads
    DIM_N_HEAD_KV,
    DIM_HEAD_GATES,
    DIM_FF_TWICE,
    DIM_INPUT,
    DIM_FF_SHARED, // of the shared experts
    DIM_Q_TWICE,
    DIM_TAPS, // of a recurrent layer, like the following
    DIM_CHANNELS,
    DIM_DELTA_IN,
    DIM_VALUES,
    DIM_VALUE_HEADS,
    DIM_VALUE_HEADS_TWICE,
    DIM_DELTA_HEAD,
    DIM_KEY_HEADS,
    DIM_STATE_IN,
    DIM_STATE_GROUP,
    DIM_CONV_TAPS,
    DIM_EMBD_THRICE,
    DIM_EMBD_TWICE,
    DIM_GROUP_HEADS, // of compressed attention, like the following: a group's heads
    DIM_GROUP_RANKS,
    DIM_COMPRESSOR,
    DIM_RATIO,
    DIM_USED, // experts of a token
    DIM_VOCAB,
    DIM_STREAMS, // all streams of a token
    DIM_N_STREAMS,
    DIM_MIXER_RANK,
    DIM_NGRAM, // a token's rows
    DIM_NGRAM_TAPS,
    DIM_SINKHORN,
    DIM_SINKHORN_PARTS,
    DIM_LATENT, // of latent attention, like the following
    DIM_LATENT_KEY,
    DIM_LATENT_QUERY,
    DIM_LATENT_HEADS_Q,
    DIM_LATENT_HEADS_KV,
    DIM_LATENT_HEADS_V,
    DIM_LATENT_K,
    DIM_LATENT_V,
    DIM_INDEX_KEY, // of an indexer, like the following
    DIM_INDEX_KEY_TWICE,
    DIM_INDEX_HEADS,
    DIM_INDEX_QUERIES,
    DIM_POOL,
} dim;

typedef struct weight_spec {
    const char *name;
    kin_weight_block block;
    dim dims[3];
} weight_spec;

static const weight_spec weight_specs[KIN_W_COUNT] = {
    [KIN_W_ATTN_NORM] = {"attn_norm.weight", KIN_WEIGHT_BLOCK_ATTN, {DIM_EMBD}},
    [KIN_W_ATTN_NORM_BIAS] = {"attn_norm.bias", KIN_WEIGHT_BLOCK_ATTN, {DIM_EMBD}},
    [KIN_W_ATTN_Q] = {"attn_q.weight", KIN_WEIGHT_BLOCK_ATTN, {DIM_EMBD, DIM_Q}},
    [KIN_W_ATTN_K] = {"attn_k.weight", KIN_WEIGHT_BLOCK_ATTN, {DIM_EMBD, DIM_K}},
    [KIN_W_ATTN_V] = {"attn_v.weight", KIN_WEIGHT_BLOCK_ATTN, {DIM_EMBD, DIM_V}},
    [KIN_W_ATTN_Q_BIAS] = {"attn_q.bias", KIN_WEIGHT_BLOCK_ATTN, {DIM_Q}},
    [KIN_W_ATTN_K_BIAS] = {"attn_k.bias", KIN_WEIGHT_BLOCK_ATTN, {DIM_K}},
    [KIN_W_ATTN_V_BIAS] = {"attn_v.bias", KIN_WEIGHT_BLOCK_ATTN, {DIM_V}},
    [KIN_W_ATTN_Q_NORM] = {"attn_q_norm.weight", KIN_WEIGHT_BLOCK_ATTN, {DIM_HEAD}},
    [KIN_W_ATTN_K_NORM] = {"attn_k_norm.weight", KIN_WEIGHT_BLOCK_ATTN, {DIM_HEAD}},
    [KIN_W_ATTN_OUT] = {"attn_output.weight", KIN_WEIGHT_BLOCK_ATTN, {DIM_ATTN_OUT, DIM_EMBD}},
    [KIN_W_ATTN_OUT_BIAS] = {"attn_output.bias", KIN_WEIGHT_BLOCK_ATTN, {DIM_EMBD}},
    [KIN_W_ATTN_QKV] = {"attn_qkv.weight", KIN_WEIGHT_BLOCK_ATTN, {DIM_EMBD, DIM_QKV}},
    [KIN_W_ATTN_QKV_BIAS] = {"attn_qkv.bias", KIN_WEIGHT_BLOCK_ATTN, {DIM_QKV}},
    [KIN_W_ATTN_Q_NORM_ALL] = {"attn_q_norm.weight", KIN_WEIGHT_BLOCK_ATTN, {DIM_Q}},
    [KIN_W_ATTN_K_NORM_ALL] = {"attn_k_norm.weight", KIN_WEIGHT_BLOCK_ATTN, {DIM_K}},
    [KIN_W_ATTN_Q_NORM_EACH] = {"attn_q_norm.weight", KIN_WEIGHT_BLOCK_ATTN, {DIM_HEAD, DIM_N_HEAD}},
    [KIN_W_ATTN_K_NORM_EACH] = {"attn_k_norm.weight", KIN_WEIGHT_BLOCK_ATTN, {DIM_HEAD, DIM_N_HEAD_KV}},
    [KIN_W_ATTN_SINKS] = {"attn_sinks.weight", KIN_WEIGHT_BLOCK_ATTN, {DIM_N_HEAD}},
    [KIN_W_ATTN_GATE] = {"attn_gate.weight", KIN_WEIGHT_BLOCK_ATTN, {DIM_EMBD, DIM_HEAD_GATES}},
    [KIN_W_ATTN_Q_GATE] = {"attn_q.weight", KIN_WEIGHT_BLOCK_ATTN, {DIM_EMBD, DIM_Q_TWICE}},
    [KIN_W_DELTA_QKV] = {"attn_qkv.weight", KIN_WEIGHT_BLOCK_ATTN, {DIM_EMBD, DIM_CHANNELS}},
    [KIN_W_DELTA_GATE] = {"attn_gate.weight", KIN_WEIGHT_BLOCK_ATTN, {DIM_EMBD, DIM_VALUES}},
    [KIN_W_DELTA_IN] = {"ssm_in.weight", KIN_WEIGHT_BLOCK_ATTN, {DIM_EMBD, DIM_DELTA_IN}},
    [KIN_W_DELTA_CONV] = {"ssm_conv1d.weight", KIN_WEIGHT_BLOCK_ATTN, {DIM_TAPS, DIM_CHANNELS}},
    [KIN_W_DELTA_ALPHA] = {"ssm_alpha.weight", KIN_WEIGHT_BLOCK_ATTN, {DIM_EMBD, DIM_VALUE_HEADS}},
    [KIN_W_DELTA_BETA] = {"ssm_beta.weight", KIN_WEIGHT_BLOCK_ATTN, {DIM_EMBD, DIM_VALUE_HEADS}},
    [KIN_W_DELTA_BETA_ALPHA] = {"ssm_ba.weight", KIN_WEIGHT_BLOCK_ATTN, {DIM_EMBD, DIM_VALUE_HEADS_TWICE}},
    [KIN_W_DELTA_DT] = {"ssm_dt.bias", KIN_WEIGHT_BLOCK_ATTN, {DIM_VALUE_HEADS}},
    [KIN_W_DELTA_A] = {"ssm_a", KIN_WEIGHT_BLOCK_ATTN, {DIM_VALUE_HEADS}},
    [KIN_W_DELTA_NORM] = {"ssm_norm.weight", KIN_WEIGHT_BLOCK_ATTN, {DIM_DELTA_HEAD}},
    [KIN_W_DELTA_OUT] = {"ssm_out.weight", KIN_WEIGHT_BLOCK_ATTN, {DIM_VALUES, DIM_EMBD}},
    [KIN_W_STATE_IN] = {"ssm_in.weight", KIN_WEIGHT_BLOCK_ATTN, {DIM_EMBD, DIM_STATE_IN}},
    [KIN_W_STATE_CONV_BIAS] = {"ssm_conv1d.bias", KIN_WEIGHT_BLOCK_ATTN, {DIM_CHANNELS}},
    [KIN_W_STATE_A] = {"ssm_a", KIN_WEIGHT_BLOCK_ATTN, {DIM_ONE, DIM_VALUE_HEADS}},
    [KIN_W_STATE_D] = {"ssm_d", KIN_WEIGHT_BLOCK_ATTN, {DIM_ONE, DIM_VALUE_HEADS}},
    [KIN_W_STATE_NORM] = {"ssm_norm.weight", KIN_WEIGHT_BLOCK_ATTN, {DIM_STATE_GROUP, DIM_KEY_HEADS}},
    [KIN_W_KDA_Q] = {"attn_q.weight", KIN_WEIGHT_BLOCK_ATTN, {DIM_EMBD, DIM_VALUES}},
    [KIN_W_KDA_K] = {"attn_k.weight", KIN_WEIGHT_BLOCK_ATTN, {DIM_EMBD, DIM_VALUES}},
    [KIN_W_KDA_V] = {"attn_v.weight", KIN_WEIGHT_BLOCK_ATTN, {DIM_EMBD, DIM_VALUES}},
    [KIN_W_KDA_CONV_Q] = {"ssm_conv1d_q.weight", KIN_WEIGHT_BLOCK_ATTN, {DIM_TAPS, DIM_ONE, DIM_VALUES}},
    [KIN_W_KDA_CONV_K] = {"ssm_conv1d_k.weight", KIN_WEIGHT_BLOCK_ATTN, {DIM_TAPS, DIM_ONE, DIM_VALUES}},
    [KIN_W_KDA_CONV_V] = {"ssm_conv1d_v.weight", KIN_WEIGHT_BLOCK_ATTN, {DIM_TAPS, DIM_ONE, DIM_VALUES}},
    [KIN_W_KDA_DECAY_A] = {"ssm_f_a.weight", KIN_WEIGHT_BLOCK_ATTN, {DIM_EMBD, DIM_DELTA_HEAD}},
    [KIN_W_KDA_DECAY_B] = {"ssm_f_b.weight", KIN_WEIGHT_BLOCK_ATTN, {DIM_DELTA_HEAD, DIM_VALUES}},
    [KIN_W_KDA_DT] = {"ssm_dt.bias", KIN_WEIGHT_BLOCK_ATTN, {DIM_VALUES}},
    [KIN_W_KDA_GATE_A] = {"ssm_g_a.weight", KIN_WEIGHT_BLOCK_ATTN, {DIM_EMBD, DIM_DELTA_HEAD}},
    [KIN_W_KDA_GATE_B] = {"ssm_g_b.weight", KIN_WEIGHT_BLOCK_ATTN, {DIM_DELTA_HEAD, DIM_VALUES}},
    [KIN_W_KDA_OUT] = {"attn_output.weight", KIN_WEIGHT_BLOCK_ATTN, {DIM_VALUES, DIM_EMBD}},
    [KIN_W_CONV_IN] = {"shortconv.in_proj.weight", KIN_WEIGHT_BLOCK_ATTN, {DIM_EMBD, DIM_EMBD_THRICE}},
    [KIN_W_CONV_TAPS] = {"shortconv.conv.weight", KIN_WEIGHT_BLOCK_ATTN, {DIM_CONV_TAPS, DIM_EMBD}},
    [KIN_W_CONV_OUT] = {"shortconv.out_proj.weight", KIN_WEIGHT_BLOCK_ATTN, {DIM_EMBD, DIM_EMBD}},
    [KIN_W_LATENT_Q] = {"attn_q.weight", KIN_WEIGHT_BLOCK_ATTN, {DIM_EMBD, DIM_LATENT_HEADS_Q}},
    [KIN_W_LATENT_Q_A] = {"attn_q_a.weight", KIN_WEIGHT_BLOCK_ATTN, {DIM_EMBD, DIM_LATENT_QUERY}},
    [KIN_W_LATENT_Q_A_NORM] = {"attn_q_a_norm.weight", KIN_WEIGHT_BLOCK_ATTN, {DIM_LATENT_QUERY}},
    [KIN_W_LATENT_Q_B] = {"attn_q_b.weight", KIN_WEIGHT_BLOCK_ATTN, {DIM_LATENT_QUERY, DIM_LATENT_HEADS_Q}},
    [KIN_W_LATENT_KV_A] = {"attn_kv_a_mqa.weight", KIN_WEIGHT_BLOCK_ATTN, {DIM_EMBD, DIM_LATENT_KEY}},
    [KIN_W_LATENT_KV_A_NORM] = {"attn_kv_a_norm.weight", KIN_WEIGHT_BLOCK_ATTN, {DIM_LATENT}},
    [KIN_W_LATENT_K_B] = {"attn_k_b.weight", KIN_WEIGHT_BLOCK_ATTN, {DIM_LATENT_K, DIM_LATENT, DIM_N_HEAD}},
    [KIN_W_LATENT_V_B] = {"attn_v_b.weight", KIN_WEIGHT_BLOCK_ATTN, {DIM_LATENT, DIM_LATENT_V, DIM_N_HEAD}},
    [KIN_W_LATENT_KV_B] = {"attn_kv_b.weight", KIN_WEIGHT_BLOCK_ATTN, {DIM_LATENT, DIM_LATENT_HEADS_KV}},
    [KIN_W_LATENT_OUT] = {"attn_output.weight", KIN_WEIGHT_BLOCK_ATTN, {DIM_LATENT_HEADS_V, DIM_EMBD}},
    [KIN_W_INDEX_K] = {"indexer.attn_k.weight", KIN_WEIGHT_BLOCK_ATTN, {DIM_EMBD, DIM_INDEX_KEY}},
    [KIN_W_INDEX_K_NORM] = {"indexer.k_norm.weight", KIN_WEIGHT_BLOCK_ATTN, {DIM_INDEX_KEY}},
    [KIN_W_INDEX_K_NORM_BIAS] = {"indexer.k_norm.bias", KIN_WEIGHT_BLOCK_ATTN, {DIM_INDEX_KEY}},
    [KIN_W_INDEX_Q_B] = {"indexer.attn_q_b.weight", KIN_WEIGHT_BLOCK_ATTN, {DIM_LATENT_QUERY, DIM_INDEX_QUERIES}},
    [KIN_W_INDEX_PROJ] = {"indexer.proj.weight", KIN_WEIGHT_BLOCK_ATTN, {DIM_EMBD, DIM_INDEX_HEADS}},
    [KIN_W_INDEX_Q] = {"indexer.q_proj.weight", KIN_WEIGHT_BLOCK_ATTN, {DIM_EMBD, DIM_INDEX_QUERIES}},
    [KIN_W_INDEX_Q_NORM] = {"indexer.q_norm.weight", KIN_WEIGHT_BLOCK_ATTN, {DIM_INDEX_KEY}},
    [KIN_W_INDEX_K_2] = {"indexer.k_proj.weight", KIN_WEIGHT_BLOCK_ATTN, {DIM_EMBD, DIM_INDEX_KEY}},
    [KIN_W_INDEX_COMPRESSOR_KV] = {"indexer_compressor_kv.weight", KIN_WEIGHT_BLOCK_ATTN, {DIM_EMBD, DIM_INDEX_KEY_TWICE}},
    [KIN_W_INDEX_COMPRESSOR_GATE] = {"indexer_compressor_gate.weight", KIN_WEIGHT_BLOCK_ATTN, {DIM_EMBD, DIM_INDEX_KEY_TWICE}},
    [KIN_W_INDEX_COMPRESSOR_APE] = {"indexer_compressor_ape.weight", KIN_WEIGHT_BLOCK_ATTN, {DIM_INDEX_KEY_TWICE, DIM_RATIO}},
    [KIN_W_INDEX_COMPRESSOR_NORM] = {"indexer_compressor_norm.weight", KIN_WEIGHT_BLOCK_ATTN, {DIM_INDEX_KEY}},
    [KIN_W_INDEX_POOL_GATE] = {"indexer_compressor_gate.weight", KIN_WEIGHT_BLOCK_ATTN, {DIM_EMBD, DIM_INDEX_KEY}},
    [KIN_W_INDEX_POOL_PLACES] = {"indexer_compressor_ape.weight", KIN_WEIGHT_BLOCK_ATTN, {DIM_INDEX_KEY, DIM_POOL}},
    [KIN_W_COMPRESSED_KV] = {"attn_kv.weight", KIN_WEIGHT_BLOCK_ATTN, {DIM_EMBD, DIM_HEAD}},
    [KIN_W_COMPRESSED_KV_NORM] = {"attn_kv_a_norm.weight", KIN_WEIGHT_BLOCK_ATTN, {DIM_HEAD}},
    [KIN_W_COMPRESSED_OUT_A] = {"attn_output_a.weight", KIN_WEIGHT_BLOCK_ATTN, {DIM_GROUP_HEADS, DIM_GROUP_RANKS}},
    [KIN_W_COMPRESSED_OUT_B] = {"attn_output_b.weight", KIN_WEIGHT_BLOCK_ATTN, {DIM_GROUP_RANKS, DIM_EMBD}},
    [KIN_W_COMPRESSOR_KV] = {"attn_compressor_kv.weight", KIN_WEIGHT_BLOCK_ATTN, {DIM_EMBD, DIM_COMPRESSOR}},
    [KIN_W_COMPRESSOR_GATE] = {"attn_compressor_gate.weight", KIN_WEIGHT_BLOCK_ATTN, {DIM_EMBD, DIM_COMPRESSOR}},
    [KIN_W_COMPRESSOR_APE] = {"attn_compressor_ape.weight", KIN_WEIGHT_BLOCK_ATTN, {DIM_COMPRESSOR, DIM_RATIO}},
    [KIN_W_COMPRESSOR_NORM] = {"attn_compressor_norm.weight", KIN_WEIGHT_BLOCK_ATTN, {DIM_HEAD}},
    [KIN_W_ATTN_OUT_NORM] = {"post_attention_norm.weight", KIN_WEIGHT_BLOCK_ATTN, {DIM_EMBD}},
    [KIN_W_FFN_NORM] = {"ffn_norm.weight", KIN_WEIGHT_BLOCK_FFN_GATE, {DIM_EMBD}},
    [KIN_W_FFN_NORM_BIAS] = {"ffn_norm.bias", KIN_WEIGHT_BLOCK_FFN_GATE, {DIM_EMBD}},
    [KIN_W_FFN_NORM_2] = {"post_attention_norm.weight", KIN_WEIGHT_BLOCK_FFN_GATE, {DIM_EMBD}},
    [KIN_W_FFN_NORM_ATTN] = {"attn_norm.weight", KIN_WEIGHT_BLOCK_FFN_GATE, {DIM_EMBD}},
    [KIN_W_FFN_NORM_ATTN_BIAS] = {"attn_norm.bias", KIN_WEIGHT_BLOCK_FFN_GATE, {DIM_EMBD}},
    [KIN_W_FFN_GATE] = {"ffn_gate.weight", KIN_WEIGHT_BLOCK_FFN_GATE, {DIM_EMBD, DIM_FF}},
    [KIN_W_FFN_UP] = {"ffn_up.weight", KIN_WEIGHT_BLOCK_FFN_UP, {DIM_EMBD, DIM_FF}},
    [KIN_W_FFN_GATE_UP] = {"ffn_up.weight", KIN_WEIGHT_BLOCK_FFN_UP, {DIM_EMBD, DIM_FF_TWICE}},
    [KIN_W_FFN_DOWN] = {"ffn_down.weight", KIN_WEIGHT_BLOCK_FFN_DOWN, {DIM_FF, DIM_EMBD}},
    [KIN_W_FFN_OUT_NORM] = {"post_ffw_norm.weight", KIN_WEIGHT_BLOCK_FFN_DOWN, {DIM_EMBD}},
    [KIN_W_FFN_ROUTER] = {"ffn_gate_inp.weight", KIN_WEIGHT_BLOCK_FFN_GATE, {DIM_EMBD, DIM_EXPERT}},
    [KIN_W_FFN_ROUTER_BIAS] = {"ffn_gate_inp.bias", KIN_WEIGHT_BLOCK_FFN_GATE, {DIM_EXPERT}},
    [KIN_W_FFN_CHOICE_BIAS] = {"exp_probs_b.bias", KIN_WEIGHT_BLOCK_FFN_GATE, {DIM_EXPERT}},
    [KIN_W_FFN_CHOICE_BIAS_2] = {"exp_probs_b", KIN_WEIGHT_BLOCK_FFN_GATE, {DIM_EXPERT}},
    [KIN_W_FFN_TOKEN_EXPERTS] = {"ffn_gate_tid2eid.weight", KIN_WEIGHT_BLOCK_FFN_GATE, {DIM_USED, DIM_VOCAB}},
    [KIN_W_FFN_GATE_EXPS] = {"ffn_gate_exps.weight", KIN_WEIGHT_BLOCK_EXPERTS, {DIM_EXPERT_WIDTH, DIM_FF_EXP, DIM_EXPERT}},
    [KIN_W_FFN_UP_EXPS] = {"ffn_up_exps.weight", KIN_WEIGHT_BLOCK_EXPERTS, {DIM_EXPERT_WIDTH, DIM_FF_EXP, DIM_EXPERT}},
    [KIN_W_FFN_DOWN_EXPS] = {"ffn_down_exps.weight", KIN_WEIGHT_BLOCK_EXPERTS, {DIM_FF_EXP, DIM_EXPERT_WIDTH, DIM_EXPERT}},
    [KIN_W_FFN_GATE_EXPS_BIAS] = {"ffn_gate_exps.bias", KIN_WEIGHT_BLOCK_FFN_GATE, {DIM_FF_EXP, DIM_EXPERT}},
    [KIN_W_FFN_UP_EXPS_BIAS] = {"ffn_up_exps.bias", KIN_WEIGHT_BLOCK_FFN_UP, {DIM_FF_EXP, DIM_EXPERT}},
    [KIN_W_FFN_DOWN_EXPS_BIAS] = {"ffn_down_exps.bias", KIN_WEIGHT_BLOCK_FFN_DOWN, {DIM_EMBD, DIM_EXPERT}},
    [KIN_W_FFN_GATE_UP_EXPS] = {"ffn_gate_up_exps.weight", KIN_WEIGHT_BLOCK_EXPERTS, {DIM_EMBD, DIM_FF_EXP_TWICE, DIM_EXPERT}},
    [KIN_W_FFN_EXPS_SCALE] = {"ffn_down_exps.scale", KIN_WEIGHT_BLOCK_FFN_GATE, {DIM_EXPERT}},
    [KIN_W_FFN_ROUTER_NORM] = {"ffn_gate_inp.scale", KIN_WEIGHT_BLOCK_FFN_GATE, {DIM_EMBD}},
    [KIN_W_FFN_EXPS_NORM] = {"pre_ffw_norm_2.weight", KIN_WEIGHT_BLOCK_FFN_GATE, {DIM_EMBD}},
    [KIN_W_FFN_EXPS_OUT_NORM] = {"post_ffw_norm_2.weight", KIN_WEIGHT_BLOCK_FFN_DOWN, {DIM_EMBD}},
    [KIN_W_FFN_DENSE_OUT_NORM] = {"post_ffw_norm_1.weight", KIN_WEIGHT_BLOCK_FFN_DOWN, {DIM_EMBD}},
    [KIN_W_INPUT_GATE] = {"inp_gate.weight", KIN_WEIGHT_BLOCK_FFN_DOWN, {DIM_EMBD, DIM_INPUT}},
    [KIN_W_INPUT_PROJ] = {"proj.weight", KIN_WEIGHT_BLOCK_FFN_DOWN, {DIM_INPUT, DIM_EMBD}},
    [KIN_W_INPUT_NORM] = {"post_norm.weight", KIN_WEIGHT_BLOCK_FFN_DOWN, {DIM_EMBD}},
    [KIN_W_LAYER_SCALE] = {"layer_output_scale.weight", KIN_WEIGHT_BLOCK_FFN_DOWN, {DIM_ONE}},
    [KIN_W_FFN_SHARED_ROUTER] = {"ffn_gate_inp_shexp.weight", KIN_WEIGHT_BLOCK_FFN_GATE, {DIM_EMBD}},
    [KIN_W_FFN_SHARED_GATE] = {"ffn_gate_shexp.weight", KIN_WEIGHT_BLOCK_FFN_GATE, {DIM_EMBD, DIM_FF_SHARED}},
    [KIN_W_FFN_SHARED_UP] = {"ffn_up_shexp.weight", KIN_WEIGHT_BLOCK_FFN_UP, {DIM_EMBD, DIM_FF_SHARED}},
    [KIN_W_FFN_SHARED_DOWN] = {"ffn_down_shexp.weight", KIN_WEIGHT_BLOCK_FFN_DOWN, {DIM_FF_SHARED, DIM_EMBD}},
    [KIN_W_FFN_LATENT_DOWN] = {"ffn_latent_down.weight", KIN_WEIGHT_BLOCK_FFN_GATE, {DIM_EMBD, DIM_EXPERT_LATENT}},
    [KIN_W_FFN_LATENT_UP] = {"ffn_latent_up.weight", KIN_WEIGHT_BLOCK_FFN_DOWN, {DIM_EXPERT_LATENT, DIM_EMBD}},
    [KIN_W_SINKHORN_ATTN_FN] = {"hc_attn_fn.weight", KIN_WEIGHT_BLOCK_ATTN, {DIM_STREAMS, DIM_SINKHORN}},
    [KIN_W_SINKHORN_ATTN_BASE] = {"hc_attn_base.weight", KIN_WEIGHT_BLOCK_ATTN, {DIM_SINKHORN}},
    [KIN_W_SINKHORN_ATTN_SCALE] = {"hc_attn_scale.weight", KIN_WEIGHT_BLOCK_ATTN, {DIM_SINKHORN_PARTS}},
    [KIN_W_SINKHORN_FF_FN] = {"hc_ffn_fn.weight", KIN_WEIGHT_BLOCK_FFN_GATE, {DIM_STREAMS, DIM_SINKHORN}},
    [KIN_W_SINKHORN_FF_BASE] = {"hc_ffn_base.weight", KIN_WEIGHT_BLOCK_FFN_GATE, {DIM_SINKHORN}},
    [KIN_W_SINKHORN_FF_SCALE] = {"hc_ffn_scale.weight", KIN_WEIGHT_BLOCK_FFN_GATE, {DIM_SINKHORN_PARTS}},
    [KIN_W_GATED_ATTN_NORM] = {"hc_attn_norm.weight", KIN_WEIGHT_BLOCK_ATTN, {DIM_STREAMS}},
    [KIN_W_GATED_ATTN_DOWN] = {"hc_attn_down.weight", KIN_WEIGHT_BLOCK_ATTN, {DIM_STREAMS, DIM_MIXER_RANK}},
    [KIN_W_GATED_ATTN_UP] = {"hc_attn_up.weight", KIN_WEIGHT_BLOCK_ATTN, {DIM_MIXER_RANK, DIM_STREAMS}},
    [KIN_W_GATED_ATTN_INJECT] = {"hc_attn_inject.weight", KIN_WEIGHT_BLOCK_ATTN, {DIM_STREAMS, DIM_N_STREAMS}},
    [KIN_W_GATED_FF_NORM] = {"hc_ffn_norm.weight", KIN_WEIGHT_BLOCK_FFN_GATE, {DIM_STREAMS}},
    [KIN_W_GATED_FF_DOWN] = {"hc_ffn_down.weight", KIN_WEIGHT_BLOCK_FFN_GATE, {DIM_STREAMS, DIM_MIXER_RANK}},
    [KIN_W_GATED_FF_UP] = {"hc_ffn_up.weight", KIN_WEIGHT_BLOCK_FFN_GATE, {DIM_MIXER_RANK, DIM_STREAMS}},
    [KIN_W_GATED_FF_INJECT] = {"hc_ffn_inject.weight", KIN_WEIGHT_BLOCK_FFN_GATE, {DIM_STREAMS, DIM_N_STREAMS}},
    [KIN_W_NGRAM_KEY] = {"ple_key.weight", KIN_WEIGHT_BLOCK_ATTN, {DIM_NGRAM, DIM_STREAMS}},
    [KIN_W_NGRAM_VALUE] = {"ple_value.weight", KIN_WEIGHT_BLOCK_ATTN, {DIM_NGRAM, DIM_EMBD}},
    [KIN_W_NGRAM_KEY_NORM] = {"ple_norm_key.weight", KIN_WEIGHT_BLOCK_ATTN, {DIM_STREAMS}},
    [KIN_W_NGRAM_QUERY_NORM] = {"ple_norm_query.weight", KIN_WEIGHT_BLOCK_ATTN, {DIM_STREAMS}},
    [KIN_W_NGRAM_CONV_NORM] = {"ple_norm_conv.weight", KIN_WEIGHT_BLOCK_ATTN, {DIM_STREAMS}},
    [KIN_W_NGRAM_CONV] = {"ple_conv1d.weight", KIN_WEIGHT_BLOCK_ATTN, {DIM_NGRAM_TAPS, DIM_STREAMS}},
    [KIN_W_NEXTN_PROJ] = {"nextn.eh_proj.weight", KIN_WEIGHT_BLOCK_ATTN, {DIM_EMBD_TWICE, DIM_EMBD}},
    [KIN_W_NEXTN_TOKEN_NORM] = {"nextn.enorm.weight", KIN_WEIGHT_BLOCK_ATTN, {DIM_EMBD}},
    [KIN_W_NEXTN_STATE_NORM] = {"nextn.hnorm.weight", KIN_WEIGHT_BLOCK_ATTN, {DIM_EMBD}},
    [KIN_W_NEXTN_STREAMS_NORM] = {"nextn.hnorm.weight", KIN_WEIGHT_BLOCK_ATTN, {DIM_STREAMS}},
};

// ---- sets

int kin_weight_set_next(const kin_weight_set *set, int weight) {
    while (weight < KIN_WEIGHTS_MAX && !kin_weight_set_has(set, weight)) weight++;
    return weight;
}

void kin_weight_set_join(kin_weight_set *set, const kin_weight_set *other) {
    for (int i = 0; i < KIN_WEIGHTS_MAX / 64; i++) set->bits[i] |= other->bits[i];
}

kin_weight_set kin_weight_set_of(const int *weights, size_t n) {
    kin_weight_set set = {0};
    for (size_t i = 0; i < n; i++) kin_weight_set_add(&set, weights[i]);
    return set;
}

// ---- one weight

int kin_weight_find(const char *name) {
    for (int w = 0; w < KIN_W_COUNT; w++) {
        if (strcmp(weight_specs[w].name, name) == 0) return w;
    }
    return -1;
}

const char *kin_weight_name(kin_weight weight) {
    return weight_specs[weight].name;
}

kin_weight_block kin_weight_block_of(kin_weight weight) {
    return weight_specs[weight].block;
}

int kin_weight_is_vector(kin_weight weight) {
    const char *name = weight_specs[weight].name;
    if (weight == KIN_W_DELTA_CONV || weight == KIN_W_CONV_TAPS || weight == KIN_W_NGRAM_CONV) return true;
    if (weight == KIN_W_ATTN_Q_NORM_EACH || weight == KIN_W_ATTN_K_NORM_EACH) return true;
    if (weight == KIN_W_COMPRESSOR_APE || weight == KIN_W_INDEX_COMPRESSOR_APE || weight == KIN_W_FFN_TOKEN_EXPERTS) return true;
    if (weight == KIN_W_INDEX_POOL_PLACES) return true;
    if (weight == KIN_W_STATE_A || weight == KIN_W_STATE_D || weight == KIN_W_STATE_NORM) return true;
    return weight_specs[weight].dims[1] == DIM_ONE || strcmp(name + strlen(name) - strlen(".bias"), ".bias") == 0;
}

int kin_weight_is_integers(kin_weight weight) {
    return weight == KIN_W_FFN_TOKEN_EXPERTS;
}

int kin_weight_is_experts(kin_weight weight) {
    return weight_specs[weight].dims[2] == DIM_EXPERT;
}

static int64_t dim_size(dim d, const kin_hparams *hp, const kin_layer *layer) {
    switch (d) {
    case DIM_ONE: return 1;
    case DIM_EMBD: return hp->n_embd;
    case DIM_Q: return kin_layer_n_embd_q(layer);
    case DIM_K: return kin_layer_n_embd_k(layer);
    case DIM_V: return kin_layer_n_embd_v(layer);
    case DIM_ATTN_OUT: return kin_layer_n_embd_out(layer);
    case DIM_HEAD: return layer->head_dim;
    case DIM_FF: return layer->n_ff;
    case DIM_FF_EXP: return hp->n_ff_exp;
    case DIM_FF_EXP_TWICE: return 2 * (int64_t)hp->n_ff_exp;
    case DIM_EXPERT: return hp->n_expert;
    case DIM_EXPERT_WIDTH: return kin_hparams_expert_width(hp);
    case DIM_EXPERT_LATENT: return hp->n_expert_latent;
    case DIM_QKV: return kin_layer_n_embd_q(layer) + kin_layer_n_embd_k(layer) + (int64_t)kin_layer_n_embd_v(layer);
    case DIM_N_HEAD: return layer->n_head;
    case DIM_N_HEAD_KV: return layer->n_head_kv;
    case DIM_HEAD_GATES: return (int64_t)layer->n_head * layer->n_head_gate;
    case DIM_FF_TWICE: return 2 * (int64_t)layer->n_ff;
    case DIM_INPUT: return hp->n_input;
    case DIM_FF_SHARED: return hp->n_ff_shared;
    case DIM_Q_TWICE: return 2 * (int64_t)kin_layer_n_embd_q(layer);
    case DIM_TAPS: return hp->delta.n_taps;
    case DIM_CHANNELS: return kin_delta_n_channels(&hp->delta);
    case DIM_DELTA_IN: return kin_delta_n_channels(&hp->delta) + (int64_t)kin_delta_n_values(&hp->delta);
    case DIM_VALUES: return kin_delta_n_values(&hp->delta);
    case DIM_VALUE_HEADS: return hp->delta.n_value_heads;
    case DIM_VALUE_HEADS_TWICE: return 2 * hp->delta.n_value_heads;
    case DIM_DELTA_HEAD: return hp->delta.head_dim;
    case DIM_KEY_HEADS: return hp->delta.n_key_heads;
    case DIM_STATE_IN:
        return kin_delta_n_values(&hp->delta) + kin_delta_n_channels(&hp->delta) + (int64_t)hp->delta.n_value_heads;
    case DIM_STATE_GROUP: return kin_delta_n_values(&hp->delta) / hp->delta.n_key_heads;
    case DIM_CONV_TAPS: return hp->conv.n_taps;
    case DIM_EMBD_THRICE: return 3 * (int64_t)hp->n_embd;
    case DIM_EMBD_TWICE: return 2 * (int64_t)hp->n_embd;
    case DIM_GROUP_HEADS: return kin_layer_n_embd_out(layer) / hp->compressed.n_group;
    case DIM_GROUP_RANKS: return (int64_t)hp->compressed.n_group * hp->compressed.n_rank;
    case DIM_COMPRESSOR: return kin_layer_n_raw(layer) / 2;
    case DIM_RATIO: return layer->ratio;
    case DIM_USED: return hp->n_expert_used;
    case DIM_VOCAB: return hp->n_vocab;
    case DIM_STREAMS: return kin_hparams_stream_width(hp);
    case DIM_N_STREAMS: return hp->n_streams;
    case DIM_MIXER_RANK: return hp->n_mixer_rank;
    case DIM_NGRAM: return (int64_t)kin_ngram_n_rows(&hp->ngram) * hp->ngram.dim;
    case DIM_NGRAM_TAPS: return hp->ngram.n_taps;
    case DIM_SINKHORN: return (2 + (int64_t)hp->n_streams) * hp->n_streams;
    case DIM_SINKHORN_PARTS: return 3;
    case DIM_LATENT: return hp->latent.n_latent;
    case DIM_LATENT_KEY: return hp->latent.n_latent + hp->latent.n_rot;
    case DIM_LATENT_QUERY: return hp->latent.n_query;
    case DIM_LATENT_HEADS_Q: return layer->n_head * (int64_t)(hp->latent.k_dim + hp->latent.n_rot);
    case DIM_LATENT_HEADS_KV: return layer->n_head * (int64_t)(hp->latent.k_dim + hp->latent.v_dim);
    case DIM_LATENT_HEADS_V: return layer->n_head * (int64_t)hp->latent.v_dim;
    case DIM_LATENT_K: return hp->latent.k_dim;
    case DIM_LATENT_V: return hp->latent.v_dim;
    case DIM_INDEX_KEY: return hp->indexer.key_dim;
    case DIM_INDEX_KEY_TWICE: return 2 * (int64_t)hp->indexer.key_dim;
    case DIM_INDEX_HEADS: return hp->indexer.n_head;
    case DIM_INDEX_QUERIES: return (int64_t)hp->indexer.n_head * hp->indexer.key_dim;
    case DIM_POOL: return layer->n_pool;
    }
    return 0;
}

void kin_weight_shape(kin_weight weight, const kin_hparams *hp, int il, int64_t ne[3]) {
    const kin_layer layer = kin_layer_of(hp, il);
    for (int i = 0; i < 3; i++) ne[i] = dim_size(weight_specs[weight].dims[i], hp, &layer);
}
