#include "pure/plan/rounds.h"

// Layers of the last round, n_left of a full round's `sum`, in proportion.
static void share_rest(const kin_round_share *shares, int n_members, int sum, int n_left, int *n_layers) {
    int given = 0;
    for (int i = 0; i < n_members; i++) {
        n_layers[i] = shares[i].n_layers * n_left / sum;
        given += n_layers[i];
    }
    for (; given < n_left; given++) {
        int best = -1, best_rest = -1;
        for (int i = 0; i < n_members; i++) {
            int rest = shares[i].n_layers * n_left - n_layers[i] * sum; // what it still has a claim to
            if (rest > best_rest) {
                best = i;
                best_rest = rest;
            }
        }
        n_layers[best]++;
    }
}

int kin_rounds_lay_out(const kin_round_share *shares, int n_members, int n_layer, kin_member_windows *out, kin_err *err) {
    kin_assert(n_members > 0 && n_members <= KIN_ROUNDS_MAX_MEMBERS);
    int sum = 0, at = 0, n_layers[KIN_ROUNDS_MAX_MEMBERS];
    for (int i = 0; i < n_members; i++) {
        if (shares[i].n_layers < 0 || shares[i].n_layers > n_layer)
            return kin_err_set(err, "a window of %d layers, the model has %d", shares[i].n_layers, n_layer);
        if (shares[i].n_gpu_layers < 0 || shares[i].n_gpu_layers > shares[i].n_layers)
            return kin_err_set(err, "%d GPU layers in a window of %d", shares[i].n_gpu_layers, shares[i].n_layers);
        sum += shares[i].n_layers;
        out[i].windows.n = 0;
    }
    if (sum == 0) return kin_err_set(err, "no device has any layers");
    int n_rounds = (n_layer + sum - 1) / sum;
    if (n_rounds > KIN_MAX_WINDOWS)
        return kin_err_set(err, "%d rounds per token: at most %d are possible", n_rounds, KIN_MAX_WINDOWS);
    for (int round = 0; round < n_rounds; round++) {
        int n_left = n_layer - at;
        if (n_left < sum) share_rest(shares, n_members, sum, n_left, n_layers);
        for (int i = 0; i < n_members; i++) {
            int n = n_left < sum ? n_layers[i] : shares[i].n_layers;
            if (n == 0) continue;
            int gpu = shares[i].n_gpu_layers < n ? shares[i].n_gpu_layers : n;
            out[i].rounds[out[i].windows.n] = round;
            out[i].windows.at[out[i].windows.n++] = (kin_window){at, at + n, gpu};
            at += n;
        }
    }
    return n_rounds;
}
