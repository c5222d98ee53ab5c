#include "app/plan_draft.h"

#include "app/plan_print.h"
#include "base/units.h"

enum { N_ACCEPTANCES = 3 };

static const double acceptances[N_ACCEPTANCES] = {0.5, 0.7, 0.9};

static double tpot_at(const kin_draft_gain *g, double acceptance, int *n_drafted) {
    *n_drafted = kin_draft_gain_best(g, acceptance);
    return kin_draft_gain_tpot(g, acceptance, *n_drafted);
}

void kin_plan_draft_print(const kin_draft_gain *g, FILE *file) {
    char size[32], pass[KIN_PLAN_PRINT_TIME], plain[KIN_PLAN_PRINT_TIME], beside[KIN_PLAN_PRINT_TIME];
    double from = kin_draft_gain_worth_from(g);
    fprintf(file, "\na draft     %8s  and %s of the head's memory; a token takes %s with it loaded, %s without\n",
            kin_plan_print_time(g->pass_s, pass), kin_size_format((uint64_t)g->memory_bytes, size, sizeof size),
            kin_plan_print_time(g->rows_s[1], beside), kin_plan_print_time(g->plain_s, plain));
    for (int i = 0; i < N_ACCEPTANCES; i++) {
        int n;
        double tpot_s = tpot_at(g, acceptances[i], &n);
        fprintf(file, "  %.0f %% right         %8s  %.2f times as fast, with %d drafted in a pass\n", 100 * acceptances[i],
                kin_plan_print_time(tpot_s, plain), g->plain_s / tpot_s, n);
    }
    if (from <= 1)
        fprintf(file, "The draft model is worth its memory if at least %.0f %% of its tokens are accepted.\n", 100 * from);
    else
        fprintf(file, "The draft model is not worth its memory here.\n");
}

json_t *kin_plan_draft_json(const kin_draft_gain *g) {
    json_t *rows = json_array(), *passes = json_array();
    double from = kin_draft_gain_worth_from(g);
    for (int i = 0; i < N_ACCEPTANCES; i++) {
        int n;
        double tpot_s = tpot_at(g, acceptances[i], &n);
        json_array_append_new(rows, json_pack("{s:f, s:i, s:f, s:f}", "acceptance", acceptances[i], "n_drafted", n, "tpot_ms",
                                              tpot_s * 1e3, "gain", g->plain_s / tpot_s));
    }
    for (int n = 1; n <= KIN_DRAFT_MAX + 1; n++) json_array_append_new(passes, json_real(g->rows_s[n] * 1e3));
    return json_pack("{s:I, s:f, s:f, s:f, s:f, s:f, s:o, s:o, s:o}", "memory_bytes", (json_int_t)g->memory_bytes,
                     "first_pass_ms", g->first_s * 1e3, "pass_ms", g->pass_s * 1e3, "second_token_ms", g->second_token_s * 1e3,
                     "plain_ms", g->plain_s * 1e3, "beside_ms", g->rows_s[1] * 1e3, "passes_ms", passes, "rows", rows,
                     "worth_from", from <= 1 ? json_real(from) : json_null());
}
