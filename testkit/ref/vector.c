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

float kin_ref_factor(float factor) {
    return factor != 0 ? factor : 1;
}

float kin_ref_capped(float x, float cap) {
    return cap != 0 ? cap * tanhf(x / cap) : x;
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
