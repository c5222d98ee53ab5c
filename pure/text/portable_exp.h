// exp with the same result on every platform, bit for bit, whatever its libm and however its compiler fuses multiplications and
// additions.
//
// Good to a relative error of 1e-9, which is far more than sampling needs; about as fast as libm's.
#pragma once

// e^x for x <= 0, from 1 down to 0 (exactly 0 below x = -660). -inf gives 0; NaN is not allowed.
double kin_portable_exp(double x);
