// The median of the last few measured values, so that one slow token changes nothing (thesis 4.3.2).
//
// A short ring of numbers, plain data, copied like any other. Until half of it is filled nothing is known.
#pragma once

enum { KIN_MEDIAN_MAX = 15 };

typedef struct kin_median {
    int size, n, at; // of the ring, values in it, where the next one goes
    double values[KIN_MEDIAN_MAX];
} kin_median;

// size: 1 to KIN_MEDIAN_MAX.
void kin_median_init(kin_median *median, int size);
// Values that are not positive and finite are dropped.
void kin_median_add(kin_median *median, double value);
// `otherwise` until half of the ring is filled.
double kin_median_of(const kin_median *median, double otherwise);
