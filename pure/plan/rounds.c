#include "pure/plan/rounds.h"

#include "pure/plan/plan.h"

// Divides the n_left layers of the last round in proportion to the shares; `sum` is the layers of a full round.
static void share_rest(const kin_round_share *shares, int n_members, int sum, int n_left, int *n_layers) {
    int given = 0;
    for (int i = 0; i < n_members; i++) {
        n_layers[i] = shares[i].n_layers * n_left / sum;
        given += n_layers[i];
    }
    for (; given < n_left; given++) {
        int best = -1, best_rest = -1;
        for (int i = 0; i < n_members; i++) {
            int rest = shares[i].n_layers * n_left - n_layers[i] * sum; // remainder of its exact share
            if (rest > best_rest) {
                best = i;
                best_rest = rest;
            }
        }
        n_layers[best]++;
    }
}

// Returns the sum of the shares, or KIN_FAIL if one is impossible.
static int check_shares(const kin_round_share *shares, int n_members, int n_layer, kin_err *err) {
    kin_assert(n_members > 0 && n_members <= KIN_ROUNDS_MAX_MEMBERS);
    int sum = 0;
    for (int i = 0; i < n_members; i++) {
        if (shares[i].n_layers < 0 || shares[i].n_layers > n_layer)
            return kin_err_set(err, "a window of %d layers, the model has %d", shares[i].n_layers, n_layer);
        if (shares[i].n_gpu_layers < 0 || shares[i].n_gpu_layers > shares[i].n_layers)
            return kin_err_set(err, "%d GPU layers in a window of %d", shares[i].n_gpu_layers, shares[i].n_layers);
        sum += shares[i].n_layers;
    }
    return sum;
}

static void append(kin_member_windows *member, int round, kin_window window) {
    member->rounds[member->windows.n] = round;
    member->windows.at[member->windows.n++] = window;
}

int kin_rounds_lay_out(const kin_round_share *shares, int n_members, int n_layer, kin_member_windows *out, kin_err *err) {
    int sum = check_shares(shares, n_members, n_layer, err), at = 0, n_layers[KIN_ROUNDS_MAX_MEMBERS];
    if (sum < 0) return KIN_FAIL;
    for (int i = 0; i < n_members; i++) out[i].windows.n = 0;
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
            append(&out[i], round, (kin_window){at, at + n, gpu});
            at += n;
        }
    }
    return n_rounds;
}

int kin_rounds_spread(const kin_round_share *shares, int n_members, int n_rounds, int n_layer, kin_member_windows *out,
                      kin_err *err) {
    int sum = check_shares(shares, n_members, n_layer, err), at = 0;
    if (sum < 0) return KIN_FAIL;
    if (sum != n_layer) return kin_err_set(err, "%d layers of %d", sum, n_layer);
    if (n_rounds < 1 || n_rounds > KIN_MAX_WINDOWS) return kin_err_set(err, "%d rounds per token", n_rounds);
    for (int i = 0; i < n_members; i++) {
        out[i].windows.n = 0;
        if (shares[i].n_layers > 0 && shares[i].n_layers < n_rounds)
            return kin_err_set(err, "%d layers for %d rounds", shares[i].n_layers, n_rounds);
    }
    for (int round = 0; round < n_rounds; round++) {
        for (int i = 0; i < n_members; i++) {
            int n = kin_plan_of_round(shares[i].n_layers, n_rounds, round);
            if (n > 0)
                append(&out[i], round, (kin_window){at, at + n, kin_plan_of_round(shares[i].n_gpu_layers, n_rounds, round)});
            at += n;
        }
    }
    return 0;
}
