#include "libc.h"

double fmin(double a, double b) {
    return isnan(a) || b < a ? b : a;
}

double fmax(double a, double b) {
    return isnan(a) || b > a ? b : a;
}

typedef union bits {
    double x;
    uint64_t u;
} bits;

// x = m * 2^*exponent with |m| in [1/2, 1)
double frexp(double x, int *exponent) {
    bits b = {x};
    int e = (int)(b.u >> 52 & 0x7ff);
    *exponent = 0;
    if (x == 0 || e == 0x7ff) return x;
    if (e == 0) { // subnormal
        x = frexp(x * 0x1p64, exponent);
        *exponent -= 64;
        return x;
    }
    *exponent = e - 1022;
    b.u = (b.u & ~((uint64_t)0x7ff << 52)) | (uint64_t)1022 << 52;
    return b.x;
}

static double power_of_2(int e) { // -1022 to 1023
    return (bits){.u = (uint64_t)(e + 1023) << 52}.x;
}

double ldexp(double x, int exponent) {
    for (; exponent > 1023; exponent -= 1023) x *= 0x1p1023;
    for (; exponent < -1022; exponent += 969) x *= 0x1p-969; // keeps 53 bits until the last step
    return x * power_of_2(exponent);
}
