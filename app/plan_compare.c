#include "app/plan_compare.h"

#include <stdlib.h>
#include <string.h>

#include "app/plan_print.h"
#include "app/terminal/table.h"
#include "pure/text/escape.h"

int kin_plan_compare_make(kin_plan_compare *c, const kin_facts *facts, const kin_plan_options *options, kin_err *err) {
    c->facts = facts;
    c->n = c->n_plans = 0;
    if (kin_plan_view_screen(facts, &c->refused, c->sentences, err) != 0) return KIN_FAIL;
    for (const kin_plan_scheduler *s = kin_plan_schedulers; s->name; s++, c->n++) {
        kin_assert(c->n < KIN_PLAN_COMPARE_MAX);
        kin_err *why_not = &c->entries[c->n].why_not;
        kin_plan *plan = &c->entries[c->n].plan;
        why_not->text[0] = '\0';
        c->entries[c->n].scheduler = s;
        c->entries[c->n].has_plan = kin_plan_view_ask(facts, options, s, plan, &c->entries[c->n].prediction, why_not) == 0;
        c->n_plans += c->entries[c->n].has_plan;
    }
    return 0;
}

// Formats "tower 9+35, phone 4": layers on GPU and CPU along the ring, truncated to the table's width.
static void describe_plan(const kin_facts *facts, const kin_plan *plan, char *text, size_t size) {
    size_t used = 0;
    text[0] = '\0';
    for (int s = 0; s < plan->n_stops && used < size; s++) {
        const kin_layer_share *share = &plan->shares[plan->stops[s].device];
        if (plan->stops[s].relay || share->n_layer == 0) continue;
        const char *comma = used ? ", " : "", *name = facts->devices[plan->stops[s].device].name;
        int n_cpu = share->n_layer - share->n_layer_gpu;
        if (share->n_layer_gpu > 0)
            used += (size_t)snprintf(text + used, size - used, "%s%.16s %d+%d", comma, name, share->n_layer_gpu, n_cpu);
        else
            used += (size_t)snprintf(text + used, size - used, "%s%.16s %d", comma, name, n_cpu);
    }
    if (used >= size) memcpy(text + size - 4, "...", 4);
}

static void print_without_plan(const kin_plan_compare *c, FILE *file) {
    bool first = true;
    for (int i = 0; i < c->n; i++) {
        const char *name = c->entries[i].scheduler->name, *why_not = c->entries[i].why_not.text;
        if (c->entries[i].has_plan) continue;
        size_t n = strlen(name);
        if (strncmp(why_not, name, n) == 0 && why_not[n] == ':') why_not += n + 2; // the reason names its scheduler
        char shown[2 * sizeof c->entries[i].why_not.text];
        fprintf(file, "%s%s: %s\n", first ? "\n" : "", name, kin_escape(shown, sizeof shown, why_not, strlen(why_not)));
        first = false;
    }
}

void kin_plan_compare_print(const kin_plan_compare *c, FILE *file) {
    static const char *const titles[] = {"SCHEDULER", "A TOKEN", "BESIDE", "A PROMPT", "ROUNDS", "LAYERS (GPU+CPU)"};
    kin_table *table = malloc(sizeof *table);
    if (!table) return;
    kin_table_init(table, "lrrrrl", titles);
    for (int i = 0; i < c->n; i++) {
        char token[KIN_PLAN_PRINT_TIME], prompt[KIN_PLAN_PRINT_TIME], layers[56];
        const kin_prediction *p = &c->entries[i].prediction;
        kin_table_row(table);
        kin_table_cell(table, 0, "%s", c->entries[i].scheduler->name);
        if (!c->entries[i].has_plan) continue;
        describe_plan(c->facts, &c->entries[i].plan, layers, sizeof layers);
        kin_table_cell(table, 1, "%s", kin_plan_print_time(p->tpot_s, token));
        if (c->entries[0].has_plan) kin_table_cell(table, 2, "x %.2f", p->tpot_s / c->entries[0].prediction.tpot_s);
        kin_table_cell(table, 3, "%s", kin_plan_print_time(p->ttft_s, prompt));
        kin_table_cell(table, 4, "%d", c->entries[i].plan.n_rounds);
        kin_table_cell(table, 5, "%s", layers);
    }
    kin_table_print(table, file);
    free(table);
    print_without_plan(c, file);
    kin_plan_print_sentences(c->facts, c->sentences, file);
}

static json_t *shares_json(const kin_facts *facts, const kin_plan *plan) {
    json_t *list = json_array();
    for (int i = 0; i < facts->n_device; i++)
        json_array_append_new(list,
                              json_pack("{s:s, s:i, s:i, s:i}", "name", facts->devices[i].name, "layers", plan->shares[i].n_layer,
                                        "gpu_layers", plan->shares[i].n_layer_gpu, "cpu_moe_layers", plan->shares[i].n_cpu_moe));
    return list;
}

static json_t *refused_json(const kin_plan_compare *c) {
    json_t *list = json_array();
    for (int i = 0; i < c->facts->n_device; i++) {
        if (c->refused & kin_device_bit(i))
            json_array_append_new(list, json_pack("{s:s, s:s}", "name", c->facts->devices[i].name, "why", c->sentences[i]));
    }
    return list;
}

json_t *kin_plan_compare_json(const kin_plan_compare *c) {
    json_t *list = json_array();
    for (int i = 0; i < c->n; i++) {
        const kin_prediction *p = &c->entries[i].prediction;
        const kin_plan *plan = &c->entries[i].plan;
        const char *name = c->entries[i].scheduler->name;
        if (c->entries[i].has_plan)
            json_array_append_new(list,
                                  json_pack("{s:s, s:f, s:f, s:i, s:o}", "scheduler", name, "tpot_ms", p->tpot_s * 1e3, "ttft_ms",
                                            p->ttft_s * 1e3, "rounds", plan->n_rounds, "devices", shares_json(c->facts, plan)));
        else
            json_array_append_new(list, json_pack("{s:s, s:s}", "scheduler", name, "no_plan", c->entries[i].why_not.text));
    }
    return json_pack("{s:o, s:o, s:o}", "work", kin_plan_view_work_json(c->facts), "refused", refused_json(c), "schedulers",
                     list);
}
