#include "testkit/ref/streams.h"

#include <math.h>

static double sigmoid(double x) {
    return 1 / (1 + exp(-x));
}

// The product of row `i` of fn with all streams, which have together a root mean square of 1.
static double product(const kin_ref_streams *s, int i, const float *x) {
    const int n = s->n_streams * s->n_embd;
    double sum = 0, squares = 0;
    for (int k = 0; k < n; k++) {
        sum += (double)s->fn[(long)i * n + k] * (double)x[k];
        squares += (double)x[k] * (double)x[k];
    }
    return sum / sqrt(squares / n + s->norm_eps);
}

static void read_in(const kin_ref_streams *s, const float *x, kin_ref_mix *mix) {
    for (int i = 0; i < s->n_streams; i++)
        mix->in[i] = sigmoid(product(s, i, x) * (double)s->scale[0] + (double)s->base[i]) + s->eps;
}

// Divides each column by its sum.
static void divide_columns(int n, double eps, double m[KIN_REF_STREAMS_MAX][KIN_REF_STREAMS_MAX]) {
    for (int to = 0; to < n; to++) {
        double sum = eps;
        for (int from = 0; from < n; from++) sum += m[from][to];
        for (int from = 0; from < n; from++) m[from][to] /= sum;
    }
}

static void divide_rows(int n, double eps, double m[KIN_REF_STREAMS_MAX][KIN_REF_STREAMS_MAX]) {
    for (int from = 0; from < n; from++) {
        double sum = eps;
        for (int to = 0; to < n; to++) sum += m[from][to];
        for (int to = 0; to < n; to++) m[from][to] /= sum;
    }
}

kin_ref_mix kin_ref_streams_mix(const kin_ref_streams *s, const float *x) {
    const int n = s->n_streams;
    kin_ref_mix mix = {{0}, {0}, {{0}}};
    read_in(s, x, &mix);
    for (int i = 0; i < n; i++) mix.out[i] = 2 * sigmoid(product(s, n + i, x) * (double)s->scale[1] + (double)s->base[n + i]);
    for (int from = 0; from < n; from++) {
        double sum = 0;
        for (int to = 0; to < n; to++) {
            const int row = 2 * n + from * n + to;
            sum += mix.of[from][to] = exp(product(s, row, x) * (double)s->scale[2] + (double)s->base[row]);
        }
        for (int to = 0; to < n; to++) mix.of[from][to] = mix.of[from][to] / sum + s->eps;
    }
    divide_columns(n, s->eps, mix.of);
    for (int k = 1; k < s->n_iterations; k++) {
        divide_rows(n, s->eps, mix.of);
        divide_columns(n, s->eps, mix.of);
    }
    return mix;
}

kin_ref_mix kin_ref_streams_end(const kin_ref_streams *s, const float *x) {
    kin_ref_mix mix = {{0}, {0}, {{0}}};
    read_in(s, x, &mix);
    return mix;
}

void kin_ref_streams_read(const kin_ref_streams *s, const kin_ref_mix *mix, const float *x, float *block) {
    for (int k = 0; k < s->n_embd; k++) {
        double sum = 0;
        for (int i = 0; i < s->n_streams; i++) sum += mix->in[i] * (double)x[i * s->n_embd + k];
        block[k] = (float)sum;
    }
}

void kin_ref_streams_write(const kin_ref_streams *s, const kin_ref_mix *mix, const float *x, const float *result, float *y) {
    for (int to = 0; to < s->n_streams; to++) {
        for (int k = 0; k < s->n_embd; k++) {
            double sum = mix->out[to] * (double)result[k];
            for (int from = 0; from < s->n_streams; from++) sum += mix->of[from][to] * (double)x[from * s->n_embd + k];
            y[to * s->n_embd + k] = (float)sum;
        }
    }
}

void kin_ref_streams_average(int n_streams, int n_embd, const float *x, float *y) {
    for (int k = 0; k < n_embd; k++) {
        double sum = 0;
        for (int i = 0; i < n_streams; i++) sum += (double)x[i * n_embd + k];
        y[k] = (float)(sum / n_streams);
    }
}
