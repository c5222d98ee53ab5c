// The median of some numbers.
#pragma once

// Sorts n > 0 values. For an even n the median is the mean of the two in the middle.
double kin_median(double *values, int n);
