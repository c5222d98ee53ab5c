#include "sys/highs.h"

#ifdef KIN_HAVE_HIGHS

#include <interfaces/highs_c_api.h>

// HiGHS takes rows as ranges of one list of entries, which is how kin_ilp stores them.
static void copy_entries(const kin_ilp *ilp, HighsInt *begin, HighsInt *columns, double *values) {
    int row = 0;
    begin[0] = 0;
    for (int i = 0; i < ilp->n_entry; i++) {
        while (row < ilp->entries[i].row) begin[++row] = i;
        columns[i] = ilp->entries[i].column;
        values[i] = ilp->entries[i].value;
    }
    while (row < ilp->n_row) begin[++row] = ilp->n_entry;
}

bool kin_highs_is_there(void) {
    return true;
}

const char *kin_highs_version(void) {
    return Highs_version();
}

static kin_ilp_outcome outcome_of(HighsInt status, kin_err *err) {
    if (status == kHighsModelStatusOptimal) return KIN_ILP_OPTIMAL;
    if (status == kHighsModelStatusInfeasible || status == kHighsModelStatusUnboundedOrInfeasible) return KIN_ILP_INFEASIBLE;
    if (status == kHighsModelStatusTimeLimit)
        kin_err_set(err, "HiGHS did not solve a program within %d s; choose another --scheduler", KIN_HIGHS_SECONDS);
    else
        kin_err_set(err, "HiGHS could not solve a program (model status %d)", (int)status);
    return KIN_ILP_FAILED;
}

static kin_ilp_outcome solve(void *highs, const kin_ilp *ilp, double *x, kin_err *err) {
    HighsInt begin[KIN_ILP_MAX_ROWS + 1], columns[KIN_ILP_MAX_ENTRIES], integrality[KIN_ILP_MAX_COLUMNS];
    double values[KIN_ILP_MAX_ENTRIES], rows[KIN_ILP_MAX_ROWS], reduced[KIN_ILP_MAX_COLUMNS], duals[KIN_ILP_MAX_ROWS];
    copy_entries(ilp, begin, columns, values);
    for (int j = 0; j < ilp->n_column; j++) integrality[j] = kHighsVarTypeInteger;
    Highs_setBoolOptionValue(highs, "output_flag", 0);
    Highs_setDoubleOptionValue(highs, "time_limit", KIN_HIGHS_SECONDS);
    HighsInt rc =
        Highs_passMip(highs, ilp->n_column, ilp->n_row, ilp->n_entry, kHighsMatrixFormatRowwise, kHighsObjSenseMinimize, 0,
                      ilp->cost, ilp->least, ilp->most, ilp->row_least, ilp->row_most, begin, columns, values, integrality);
    if (rc != kHighsStatusError) rc = Highs_run(highs);
    kin_ilp_outcome outcome = outcome_of(rc == kHighsStatusError ? kHighsModelStatusNotset : Highs_getModelStatus(highs), err);
    if (outcome == KIN_ILP_OPTIMAL) Highs_getSolution(highs, x, reduced, rows, duals);
    return outcome;
}

kin_ilp_outcome kin_highs_solve(const kin_ilp *ilp, double *x, kin_err *err) {
    void *highs = Highs_create();
    if (!highs) {
        kin_err_set(err, "out of memory for HiGHS");
        return KIN_ILP_FAILED;
    }
    kin_ilp_outcome outcome = solve(highs, ilp, x, err);
    Highs_destroy(highs);
    return outcome;
}

#else

bool kin_highs_is_there(void) {
    return false;
}

const char *kin_highs_version(void) {
    return NULL;
}

kin_ilp_outcome kin_highs_solve(const kin_ilp *ilp, double *x, kin_err *err) {
    (void)ilp, (void)x;
    kin_err_set(err, "this program was built without HiGHS");
    return KIN_ILP_FAILED;
}

#endif
