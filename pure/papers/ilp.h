// Integer linear programs: the interface between Halda and a solver (sys/highs.h, or a test's own).
//
//     minimize  sum cost[j] x[j]   subject to   row_least[i] <= sum over entries of row i <= row_most[i],
//                                               least[j] <= x[j] <= most[j],  x integer
#pragma once

#include "base/err.h"

enum { KIN_ILP_MAX_COLUMNS = 64, KIN_ILP_MAX_ROWS = 1 + 3 * 32, KIN_ILP_MAX_ENTRIES = 32 + 5 * 32 };

typedef struct kin_ilp {
    int n_column, n_row, n_entry;
    double cost[KIN_ILP_MAX_COLUMNS], least[KIN_ILP_MAX_COLUMNS], most[KIN_ILP_MAX_COLUMNS];
    double row_least[KIN_ILP_MAX_ROWS], row_most[KIN_ILP_MAX_ROWS]; // -INFINITY, INFINITY: no bound
    struct {
        int row, column;
        double value;
    } entries[KIN_ILP_MAX_ENTRIES]; // by row, ascending
} kin_ilp;

typedef enum kin_ilp_outcome { KIN_ILP_OPTIMAL, KIN_ILP_INFEASIBLE, KIN_ILP_FAILED } kin_ilp_outcome;

// Sets x // [n_column] only if the outcome is KIN_ILP_OPTIMAL. KIN_ILP_FAILED comes with a sentence.
typedef kin_ilp_outcome kin_ilp_solver(const kin_ilp *ilp, double *x, kin_err *err);
