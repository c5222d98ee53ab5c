// exp with bit-identical results on every platform, independent of libm and of the compiler's fusing of multiplications and
// additions.
//
// Relative error 1e-9, far below what sampling needs; about as fast as libm's exp.
#pragma once

// Returns e^x for x <= 0 (exactly 0 below x = -660). -inf gives 0; NaN is not allowed.
double kin_portable_exp(double x);
