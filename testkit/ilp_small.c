#include "testkit/ilp_small.h"

#include <math.h>

#include <string.h>

#include "pure/plan/facts.h"

enum { MAX_DEVICES = KIN_ILP_MAX_COLUMNS / 2, MAX_SUM = KIN_FACTS_MAX_LAYERS };

static const double ROUNDING = 1e-9;

// True if all rows but the first hold for w and n of device i.
static bool holds(const kin_ilp *ilp, int i, int w, int n) {
    int M = ilp->n_column / 2;
    for (int at = M; at < ilp->n_entry;) {
        int row = ilp->entries[at].row;
        double sum = 0;
        bool ours = false;
        for (; at < ilp->n_entry && ilp->entries[at].row == row; at++) {
            ours = ours || ilp->entries[at].column % M == i;
            sum += ilp->entries[at].value * (ilp->entries[at].column < M ? w : n);
        }
        if (ours && (sum < ilp->row_least[row] - ROUNDING || sum > ilp->row_most[row] + ROUNDING)) return false;
    }
    return true;
}

static double best_n(const kin_ilp *ilp, int i, int w, int *best) {
    int M = ilp->n_column / 2;
    double least = INFINITY;
    for (int n = (int)ilp->least[M + i]; n <= (int)ilp->most[M + i] && n <= w; n++) {
        double cost = ilp->cost[i] * w + ilp->cost[M + i] * n;
        if (cost < least && holds(ilp, i, w, n)) least = cost, *best = n;
    }
    return least;
}

kin_ilp_outcome kin_ilp_small(const kin_ilp *ilp, double *x, kin_err *err) {
    static double least[MAX_DEVICES + 1][MAX_SUM + 1];
    static int w_of[MAX_DEVICES][MAX_SUM + 1], n_of[MAX_DEVICES][MAX_SUM + 1];
    int M = ilp->n_column / 2, sum = (int)ilp->row_most[0];
    if (sum > MAX_SUM || M > MAX_DEVICES) return (void)kin_err_set(err, "a program that is too large"), KIN_ILP_FAILED;
    for (int s = 0; s <= sum; s++) least[0][s] = s == 0 ? 0 : INFINITY;
    for (int i = 0; i < M; i++) {
        for (int s = 0; s <= sum; s++) least[i + 1][s] = INFINITY;
        for (int w = (int)ilp->least[i]; w <= (int)ilp->most[i]; w++) {
            double cost = best_n(ilp, i, w, &n_of[i][w]);
            for (int s = w; s <= sum && isfinite(cost); s++) {
                if (!(least[i][s - w] + cost < least[i + 1][s])) continue;
                least[i + 1][s] = least[i][s - w] + cost;
                w_of[i][s] = w;
            }
        }
    }
    if (!isfinite(least[M][sum])) return KIN_ILP_INFEASIBLE;
    for (int i = M - 1; i >= 0; i--) {
        x[i] = w_of[i][sum];
        x[M + i] = n_of[i][w_of[i][sum]];
        sum -= w_of[i][sum];
    }
    return KIN_ILP_OPTIMAL;
}
