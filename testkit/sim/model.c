#include "testkit/sim/model.h"

#include <string.h>

uint64_t kin_sim_mix(uint64_t a, uint64_t b) {
    uint64_t x = (a ^ (b + 0x9e3779b97f4a7c15)) * 0xbf58476d1ce4e5b9;
    x = (x ^ x >> 29) * 0x94d049bb133111eb;
    return x ^ x >> 32;
}

uint64_t kin_sim_embed(int32_t id, int32_t pos) {
    return kin_sim_mix((uint64_t)id, (uint64_t)pos);
}

// Returns a hash that is four finite numbers of 16 bits: other values are not kept on the disks.
static uint64_t mix_finite(uint64_t a, uint64_t b) {
    return kin_sim_mix(a, b) & UINT64_C(0xbfffbfffbfffbfff);
}

static uint64_t key_of(uint64_t x, int il) {
    return mix_finite(x, (uint64_t)il);
}

// Returns a layer's result, from its input and a hash of all keys of the sequence so far.
static uint64_t attend(uint64_t x, uint64_t seen) {
    return kin_sim_mix(x, seen);
}

static uint64_t *cell_at(struct ggml_tensor *tensor, int64_t cell) {
    return (uint64_t *)((char *)tensor->data + (size_t)cell * tensor->nb[1]);
}

// Returns what the previous token has in the layer: a hash of the keys up to it.
static uint64_t seen_before(const kin_kv *kv, int il, int32_t seq, int32_t pos) {
    if (pos == 0) return 0;
    int32_t before = pos - 1;
    int64_t block = kin_kv_block(kv, seq, before / KIN_KV_CELLS);
    return *cell_at(kin_kv_v(kv, il), block * KIN_KV_CELLS + before % KIN_KV_CELLS);
}

void kin_sim_compute_layer(const kin_kv *kv, int il, const int32_t *seq, const int32_t *pos, const int64_t *cells,
                           const kin_kv_copies *copies, int n, uint64_t *x) {
    struct ggml_tensor *k = kin_kv_k(kv, il), *v = kin_kv_v(kv, il);
    for (int i = 0; i < n; i++) {
        uint64_t key = key_of(x[i], il), seen = mix_finite(seen_before(kv, il, seq[i], pos[i]), key);
        *cell_at(k, cells[i]) = key;
        *cell_at(v, cells[i]) = seen;
        for (int m = 0; copies && m < copies->n; m++) {
            if (copies->at[m].row != i) continue;
            *cell_at(k, copies->at[m].cell) = key;
            *cell_at(v, copies->at[m].cell) = seen;
        }
        x[i] = attend(x[i], seen);
    }
}

float kin_sim_logit(uint64_t x) {
    return (float)(x & 0xffffff);
}

int32_t kin_sim_sample(float logit, int n_made) {
    return (int32_t)(kin_sim_mix((uint64_t)logit, (uint64_t)n_made) % 60000);
}

int32_t kin_sim_prompt_token(int i, int k) {
    int which = i == 2 ? (k < KIN_KV_CELLS ? 4 : k < 80 ? 1 : 2) : k < 80 ? 1 : i + 2;
    return which * (k + 3) % 60000;
}

void kin_sim_write_undisturbed(const int32_t *tokens, int n_prompt, int n_layer, int n_most, int32_t *expected) {
    uint64_t seen[KIN_SIM_MOST_LAYERS] = {0};
    kin_assert(n_layer <= KIN_SIM_MOST_LAYERS);
    memcpy(expected, tokens, (size_t)n_prompt * sizeof *tokens);
    for (int pos = 0; pos < n_prompt + n_most - 1; pos++) {
        uint64_t x = kin_sim_embed(expected[pos], pos);
        for (int il = 0; il < n_layer; il++) {
            seen[il] = mix_finite(seen[il], key_of(x, il));
            x = attend(x, seen[il]);
        }
        if (pos >= n_prompt - 1) expected[pos + 1] = kin_sim_sample(kin_sim_logit(x), pos + 1 - n_prompt);
    }
}

void kin_sim_guess(const kin_sim_guesses *g, const int32_t *expected, int n_all, int n, int most, kin_draft *out) {
    if (most > g->most) most = g->most;
    for (int pos = n, before = -1; out->n < most; pos++) {
        uint64_t chance = kin_sim_mix((uint64_t)pos, g->seed);
        int32_t right = pos < n_all ? expected[pos] : 7;
        bool is_right = chance % 8 < 6, has_second = g->has_branches && chance >> 32 & 1 && out->n + 1 < most;
        kin_draft_add(out, before, is_right ? right : right + 1, 0);
        if (has_second) kin_draft_add(out, before, is_right ? right + 1 : right, 1);
        before = out->n - 1 - (has_second && is_right);
    }
}
