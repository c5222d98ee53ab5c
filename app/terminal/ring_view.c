#include "app/terminal/ring_view.h"

#include <stdlib.h>

#include "app/terminal/table.h"

enum { BAR = 20 };

typedef struct view {
    double token_ms;                      // mean
    double compute_ms[KIN_TIMELINE_ROWS]; // per token
    double rest_ms;                       // per token, while no device computed
} view;

// Returns the time of a bar between the first and the last mark.
static double inside_ms(const kin_bar *bar, kin_time begin, kin_time end) {
    kin_time from = bar->event.begin > begin ? bar->event.begin : begin, to = bar->event.end < end ? bar->event.end : end;
    return to > from ? kin_clock_ms(from, to) : 0;
}

static void sum(const kin_timeline *t, view *v) {
    int n_tokens = kin_timeline_n_marks(t) - 1;
    kin_time begin = kin_timeline_mark_at(t, 0), end = kin_timeline_mark_at(t, n_tokens);
    *v = (view){.token_ms = kin_clock_ms(begin, end) / n_tokens};
    for (int i = 0; i < kin_timeline_n_bars(t); i++) {
        kin_bar bar = kin_timeline_bar(t, i);
        if (bar.event.kind == KIN_PROTO_EVENT_COMPUTE) v->compute_ms[bar.row] += inside_ms(&bar, begin, end) / n_tokens;
    }
    v->rest_ms = v->token_ms;
    for (int row = 0; row < kin_timeline_n_rows(t); row++) v->rest_ms -= v->compute_ms[row];
    if (v->rest_ms < 0) v->rest_ms = 0; // clocks of machines are only synchronized to a fraction of a millisecond
}

static void add_row(kin_table *table, const char *name, const char *layers, double ms, double token_ms) {
    static const char bar[] = "####################"; // BAR
    double share = token_ms > 0 ? ms / token_ms : 0;
    int n = share >= 1 ? BAR : (int)(share * BAR + 0.5);
    kin_table_row(table);
    kin_table_cell(table, 0, "%s", name);
    kin_table_cell(table, 1, "%s", layers);
    kin_table_cell(table, 2, "%.2f ms", ms);
    kin_table_cell(table, 3, "%.0f %%", 100 * share);
    kin_table_cell(table, 4, "%.*s", n, bar);
}

void kin_ring_view_print(const kin_timeline *t, FILE *file) {
    static const char *const titles[] = {"DEVICE", "LAYERS", "A TOKEN", "", ""};
    view v;
    kin_table *table = t && kin_timeline_n_marks(t) >= 2 ? malloc(sizeof *table) : NULL;
    if (!table) return;
    sum(t, &v);
    kin_table_init(table, "llrrl", titles);
    for (int row = 0; row < kin_timeline_n_rows(t); row++)
        add_row(table, kin_timeline_name(t, row), kin_timeline_layers(t, row), v.compute_ms[row], v.token_ms);
    add_row(table, "transfer", "", v.rest_ms, v.token_ms);
    add_row(table, "all", "", v.token_ms, v.token_ms);
    fprintf(file, "\naverage of the first %d tokens:\n", kin_timeline_n_marks(t) - 1);
    kin_table_print(table, file);
    free(table);
}
