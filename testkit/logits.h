// Compares rows of logits.
//
// Pure functions; the test decides which distance is too large.
#pragma once

// Returns the relative L2 distance |got - want| / |want|. // f32 [n] each
double kin_logits_error(const float *got, const float *want, int n);

// Returns the index of the largest of n >= 1 logits; the first of equal ones.
int kin_logits_best(const float *row, int n);
