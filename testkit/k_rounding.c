#include "testkit/k_rounding.h"

#include <ggml.h>
#include <math.h>
#include <string.h>

#include "base/bytes.h"
#include "base/err.h"

enum {
    BLOCK = 256,
    N_SUB = 8, // parts with a scale and a minimum, in Q4_K and Q5_K
    SUB = BLOCK / N_SUB,
    MOST_6 = 63,  // of 6 bits
    N_SUB_6 = 16, // parts with a scale, in Q6_K
    SUB_6 = BLOCK / N_SUB_6,
    MIDDLE_6 = 32, // of the numbers of Q6_K
    SCALES_BYTES = 12,
};

static int clamp(long value, int least, int most) {
    return value < least ? least : value > most ? most : (int)value;
}

// Returns how many of a unit are 1; 0 if the unit is 0.
static float per_one(float unit) {
    return unit == 0 ? 0 : 1 / unit;
}

// Writes a number in F16. Returns what it is then.
static float put_half(float value, uint8_t *out) {
    const ggml_fp16_t bits = ggml_fp32_to_fp16(value);
    kin_put_u16(out, bits);
    return ggml_fp16_to_fp32(bits);
}

// ---- Q4_K, Q5_K

// Eight scales and eight minima of 6 bits in 12 bytes: the first four of each whole; of the others the lower four bits together,
// and the upper two beside the first ones.
static void put_scales(const int *scales, const int *minima, uint8_t out[SCALES_BYTES]) {
    for (int i = 0; i < 4; i++) {
        const int scale = scales[i + 4], minimum = minima[i + 4];
        out[i] = (uint8_t)(scales[i] | scale >> 4 << 6);
        out[i + 4] = (uint8_t)(minima[i] | minimum >> 4 << 6);
        out[i + 8] = (uint8_t)((scale & 15) | (minimum & 15) << 4);
    }
}

// Rounds a block to numbers from 0 to `most`, and writes d, dmin, the scales and the minima.
static void round_with_minima(const float *x, int most, uint8_t *out, int *numbers) {
    float steps[N_SUB], lows[N_SUB], largest_step = 0, largest_low = 0;
    int scales[N_SUB], minima[N_SUB];
    for (int i = 0; i < N_SUB; i++) {
        float low = 0, high = x[i * SUB]; // zero is among the numbers
        for (int k = 0; k < SUB; k++) low = fminf(low, x[i * SUB + k]), high = fmaxf(high, x[i * SUB + k]);
        lows[i] = -low;
        steps[i] = (high - low) / (float)most;
        largest_step = fmaxf(largest_step, steps[i]);
        largest_low = fmaxf(largest_low, lows[i]);
    }
    const float d = put_half(largest_step / MOST_6, out), dmin = put_half(largest_low / MOST_6, out + 2);
    const float per_d = per_one(d), per_dmin = per_one(dmin);
    for (int i = 0; i < N_SUB; i++) {
        scales[i] = clamp(lrintf(steps[i] * per_d), 0, MOST_6);
        minima[i] = clamp(lrintf(lows[i] * per_dmin), 0, MOST_6);
        const float per_step = per_one(d * (float)scales[i]), low = dmin * (float)minima[i];
        for (int k = 0; k < SUB; k++) numbers[i * SUB + k] = clamp(lrintf((x[i * SUB + k] + low) * per_step), 0, most);
    }
    put_scales(scales, minima, out + 4);
}

// A byte has a number of one part in its lower half, and of the next part in its upper half.
static void put_low_bits(const int *numbers, uint8_t *out) {
    for (int i = 0; i < N_SUB; i += 2)
        for (int k = 0; k < SUB; k++) *out++ = (uint8_t)((numbers[i * SUB + k] & 15) | (numbers[(i + 1) * SUB + k] & 15) << 4);
}

static void round_q4(const float *x, uint8_t *out) {
    int numbers[BLOCK];
    round_with_minima(x, 15, out, numbers);
    put_low_bits(numbers, out + 4 + SCALES_BYTES);
}

static void round_q5(const float *x, uint8_t *out) {
    int numbers[BLOCK];
    uint8_t *high = out + 4 + SCALES_BYTES;
    round_with_minima(x, 31, out, numbers);
    memset(high, 0, SUB);
    for (int i = 0; i < BLOCK; i++) high[i % SUB] = (uint8_t)(high[i % SUB] | numbers[i] >> 4 << i / SUB);
    put_low_bits(numbers, high + SUB);
}

// ---- Q6_K

// Returns the number of the largest magnitude, with its sign.
static float farthest(const float *x, int n) {
    float far = 0;
    for (int i = 0; i < n; i++) far = fabsf(x[i]) > fabsf(far) ? x[i] : far;
    return far;
}

static void put_numbers_q6(const int *numbers, uint8_t *low, uint8_t *high) {
    for (int half = 0; half < BLOCK; half += BLOCK / 2, low += 64, high += 32) {
        for (int k = 0; k < 32; k++) {
            const int *q = numbers + half + k; // and the three 32, 64 and 96 after it
            low[k] = (uint8_t)((q[0] & 15) | (q[64] & 15) << 4);
            low[k + 32] = (uint8_t)((q[32] & 15) | (q[96] & 15) << 4);
            high[k] = (uint8_t)(q[0] >> 4 | q[32] >> 4 << 2 | q[64] >> 4 << 4 | q[96] >> 4 << 6);
        }
    }
}

static void round_q6(const float *x, uint8_t *out) {
    enum { LOW = BLOCK / 2, HIGH = BLOCK / 4, MOST_SCALE = 128 };
    uint8_t *scales = out + LOW + HIGH;
    float steps[N_SUB_6];
    int numbers[BLOCK];
    for (int i = 0; i < N_SUB_6; i++) steps[i] = farthest(x + i * SUB_6, SUB_6) / -MIDDLE_6; // it becomes the number 0
    const float d = put_half(farthest(steps, N_SUB_6) / -MOST_SCALE, scales + N_SUB_6);
    const float per_d = per_one(d);
    for (int i = 0; i < N_SUB_6; i++) {
        const int scale = clamp(lrintf(steps[i] * per_d), -MOST_SCALE, MOST_SCALE - 1);
        const float per_step = per_one(d * (float)scale);
        scales[i] = (uint8_t)scale;
        for (int k = i * SUB_6; k < (i + 1) * SUB_6; k++)
            numbers[k] = MIDDLE_6 + clamp(lrintf(x[k] * per_step), -MIDDLE_6, MIDDLE_6 - 1);
    }
    put_numbers_q6(numbers, out, out + LOW);
}

// ---- all

bool kin_k_rounding_has(int type) {
    return type == GGML_TYPE_Q4_K || type == GGML_TYPE_Q5_K || type == GGML_TYPE_Q6_K;
}

void kin_k_rounding_fill(int type, const float *x, int64_t n, uint8_t *out) {
    void (*const round_block)(const float *, uint8_t *) = type == GGML_TYPE_Q4_K   ? round_q4
                                                          : type == GGML_TYPE_Q5_K ? round_q5
                                                                                   : round_q6;
    kin_assert(kin_k_rounding_has(type) && n % BLOCK == 0);
    for (int64_t at = 0; at < n; at += BLOCK, out += ggml_type_size((enum ggml_type)type)) round_block(x + at, out);
}
