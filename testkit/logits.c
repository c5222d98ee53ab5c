#include "testkit/logits.h"

#include <math.h>

double kin_logits_error(const float *got, const float *want, int n) {
    double wrong = 0, all = 0;
    for (int i = 0; i < n; i++) {
        wrong += pow((double)got[i] - (double)want[i], 2);
        all += pow((double)want[i], 2);
    }
    return sqrt(wrong / all);
}

int kin_logits_best(const float *row, int n) {
    int best = 0;
    for (int i = 1; i < n; i++) best = row[i] > row[best] ? i : best;
    return best;
}
