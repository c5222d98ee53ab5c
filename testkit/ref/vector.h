// Sums and functions of vectors in float32, for the reference engine. Thread: any.
#pragma once

double kin_ref_dot(const float *a, const float *b, int n);
void kin_ref_add(float *x, const float *y, int n); // x += y
void kin_ref_scale(float *x, float factor, int n); // x *= factor

// x = x / sqrt(mean(x^2) + eps)
void kin_ref_unit(float *x, int n, double eps);

// Returns a factor of the model, where 0 stands for 1.
float kin_ref_factor(float factor);

// cap tanh(x / cap); x if cap is 0
float kin_ref_capped(float x, float cap);
// Rounds x // (n) to numbers that float16 has.
void kin_ref_round(float *x, int n);

float kin_ref_sigmoid(float x);
float kin_ref_silu(float x);
float kin_ref_gelu(float x); // the approximation with tanh

// x_i = exp(x_i) / (exp(sink) + sum_j exp(x_j)); sink -INFINITY: no sink
void kin_ref_softmax(float *x, int n, float sink);
