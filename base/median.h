// The middle of some numbers.
#pragma once

// Sorts n > 0 values. Of an even number the mean of the two in the middle.
double kin_median(double *values, int n);
