// HiGHS: the integer program solver that Halda's authors use, if the build found it.
#pragma once

#include <stdbool.h>

#include "pure/papers/ilp.h"

// True if this program was built with HiGHS.
bool kin_highs_is_there(void);
const char *kin_highs_version(void); // NULL without it

enum { KIN_HIGHS_SECONDS = 2 }; // time limit per program; Halda's take milliseconds

// Without HiGHS, or at the time limit: KIN_ILP_FAILED, with a sentence.
kin_ilp_solver kin_highs_solve;
