// HiGHS: the solver of integer programs that Halda's authors use, where the build has found it.
#pragma once

#include <stdbool.h>

#include "pure/plan/ilp.h"

// Whether this program was built with it.
bool kin_highs_is_there(void);

enum { KIN_HIGHS_SECONDS = 2 }; // for one program; those of Halda take milliseconds

// Without HiGHS, or when time is up: KIN_ILP_FAILED, with a sentence.
kin_ilp_solver kin_highs_solve;
