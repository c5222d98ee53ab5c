#include "pure/plan/median.h"

#include <math.h>

#include "base/err.h"

void kin_median_init(kin_median *m, int size) {
    kin_assert(size >= 1 && size <= KIN_MEDIAN_MAX);
    *m = (kin_median){.size = size};
}

void kin_median_add(kin_median *m, double value) {
    if (!(value > 0) || !isfinite(value)) return;
    m->values[m->at] = value;
    m->at = (m->at + 1) % m->size;
    if (m->n < m->size) m->n++;
}

double kin_median_of(const kin_median *m, double otherwise) {
    double sorted[KIN_MEDIAN_MAX];
    if (m->n < (m->size + 1) / 2) return otherwise;
    for (int i = 0; i < m->n; i++) {
        int at = i;
        for (; at > 0 && sorted[at - 1] > m->values[i]; at--) sorted[at] = sorted[at - 1];
        sorted[at] = m->values[i];
    }
    return (sorted[(m->n - 1) / 2] + sorted[m->n / 2]) / 2;
}
