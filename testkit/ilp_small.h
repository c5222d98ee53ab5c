// A solver for Halda's integer programs only: by enumeration, not by linear programming. For tests without HiGHS, and to check
// HiGHS.
//
// The programs' shape: columns w_0 .. w_(M-1), n_0 .. n_(M-1); row 0 is the sum of all w; every other row has w_i and n_i of one
// i. For every value of w_i the best n_i is found by trying all; then dynamic programming over the sum.
#pragma once

#include "pure/papers/ilp.h"

kin_ilp_solver kin_ilp_small;
