// The functions that a back-end's files export, each with the back-end's name appended (SIMD_FN).
#pragma once

#include "kernels/kernels.h"
#include "kernels/simd/simd.h"

void SIMD_FN(kin_quantize)(kin_act_kind kind, int64_t columns, int64_t n, const float *x, kin_act *act, int64_t begin,
                           int64_t end);
// The part of kin_matmul for KIN_ACT_F32; begin and end count rows.
void SIMD_FN(kin_matmul_float)(const kin_matrix *w, const float *x, int64_t n, float *y, int64_t ldy, int64_t begin, int64_t end);
void SIMD_FN(kin_matmul)(const kin_matrix *w, const kin_act *act, const float *x, int64_t n, float *y, int64_t ldy, int64_t begin,
                         int64_t end);
void SIMD_FN(kin_kv_store)(const kin_kv_rows *rows, int64_t begin, int64_t end);
void SIMD_FN(kin_attend)(kin_attention *a, int64_t begin, int64_t end);
void SIMD_FN(kin_attend_merge)(const kin_attention *a, int64_t begin, int64_t end);
void SIMD_FN(kin_index_scores)(const kin_index_query *query, const uint16_t *k, float *scores);
void SIMD_FN(kin_rms_norm)(int64_t n, const float *x, const float *weight, float eps, float *y);
void SIMD_FN(kin_center)(int64_t n, const float *x, float *y);
void SIMD_FN(kin_add)(int64_t n, const float *x, float *y);
void SIMD_FN(kin_add_scaled)(int64_t n, float share, const float *x, float *y);
void SIMD_FN(kin_gate)(kin_gate kind, int64_t n, const float *gate, const float *up, float *y);
void SIMD_FN(kin_gate_limited)(kin_gate kind, float limit, int64_t n, const float *gate, const float *up, float *y);
void SIMD_FN(kin_scale_sigmoid)(int64_t n, float g, const float *x, float *y);
void SIMD_FN(kin_gate_heads)(kin_head_gate kind, bool is_each, int n_head, int head_dim, const float *gate, float *x);
void SIMD_FN(kin_cap)(int64_t n, float scale, float cap, float *x);
void SIMD_FN(kin_rope)(bool neox, int n_rot, const float *cos_sin, float *head);
void SIMD_FN(kin_route)(const kin_routing *routing, const float *logits, int32_t *chosen, float *share);
void SIMD_FN(kin_sinkhorn)(const kin_sinkhorn *sinkhorn, const float *m, float *gates);
void SIMD_FN(kin_softmax)(int64_t n, float scale, const float *sink, float *x);
void SIMD_FN(kin_pool)(int64_t n, int n_rows, const float *const *gate, const float *const *x, float *y);
void SIMD_FN(kin_to_f16)(int64_t n, const float *x, uint16_t *y);
void SIMD_FN(kin_from_f16)(int64_t n, const uint16_t *x, float *y);
void SIMD_FN(kin_convolve)(const kin_convolution *convolution);
void SIMD_FN(kin_unit)(int64_t n, float eps, float *x);
void SIMD_FN(kin_delta_factors)(int64_t n, float a, float dt, const float *alpha, const float *b, float *decay, float *beta);
void SIMD_FN(kin_delta_decays)(int64_t n, float a, float least, const float *dt, const float *x, float *decays);
void SIMD_FN(kin_delta)(const kin_delta_rule *delta);
