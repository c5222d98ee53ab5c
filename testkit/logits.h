// Rows of logits held against each other.
//
// Pure functions; what distance is too large is the test's to say.
#pragma once

// The relative L2 distance |got - want| / |want|. // f32 [n] each
double kin_logits_error(const float *got, const float *want, int n);

// The index of the largest of n >= 1; the first of equal ones.
int kin_logits_best(const float *row, int n);
