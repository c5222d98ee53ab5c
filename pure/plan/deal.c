#include "pure/plan/deal.h"

#include <math.h>

void kin_deal(int n, const double *weights, int n_ranks, int *counts) {
    double sum = 0;
    for (int r = 0; r < n_ranks; r++) {
        counts[r] = 1;
        sum += weights[r];
    }
    for (int left = n - n_ranks; left > 0; left--) {
        int best = 0;
        double most = -INFINITY;
        for (int r = 0; r < n_ranks; r++) {
            double behind = weights[r] / sum * n - counts[r];
            if (behind <= most) continue;
            most = behind;
            best = r;
        }
        counts[best]++;
    }
}
