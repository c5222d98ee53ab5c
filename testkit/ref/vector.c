#include "testkit/ref/vector.h"

#include <math.h>

double kin_ref_dot(const float *a, const float *b, int n) {
    double sum = 0;
    for (int i = 0; i < n; i++) sum += (double)a[i] * (double)b[i];
    return sum;
}

void kin_ref_add(float *x, const float *y, int n) {
    for (int i = 0; i < n; i++) x[i] += y[i];
}

void kin_ref_scale(float *x, float factor, int n) {
    for (int i = 0; i < n; i++) x[i] *= factor;
}

void kin_ref_unit(float *x, int n, double eps) {
    kin_ref_scale(x, (float)(1 / sqrt(kin_ref_dot(x, x, n) / n + eps)), n);
}

float kin_ref_factor(float factor) {
    return factor != 0 ? factor : 1;
}

float kin_ref_capped(float x, float cap) {
    return cap != 0 ? cap * tanhf(x / cap) : x;
}

// float16 has 11 significant bits, and no exponents below that of 2^-14.
void kin_ref_round(float *x, int n) {
    for (int i = 0; i < n; i++) {
        int exponent;
        frexp((double)x[i], &exponent);
        const double unit = ldexp(1, (exponent > -13 ? exponent : -13) - 11);
        x[i] = (float)(rint((double)x[i] / unit) * unit);
    }
}

float kin_ref_sigmoid(float x) {
    return 1 / (1 + expf(-x));
}

void kin_ref_softmax(float *x, int n, float sink) {
    float top = sink;
    double sum = 0;
    for (int i = 0; i < n; i++) top = fmaxf(top, x[i]);
    for (int i = 0; i < n; i++) sum += (double)(x[i] = expf(x[i] - top));
    sum += (double)expf(sink - top);
    for (int i = 0; i < n; i++) x[i] = (float)((double)x[i] / sum);
}

float kin_ref_silu(float x) {
    return x / (1 + expf(-x));
}

float kin_ref_gelu(float x) {
    const double g = (double)x;
    return (float)(0.5 * g * (1 + tanh(sqrt(2 / M_PI) * (g + 0.044715 * g * g * g))));
}
