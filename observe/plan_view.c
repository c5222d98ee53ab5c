#include "observe/plan_view.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "observe/facts_fields.h"

// ---- making it

int kin_plan_view_screen(const kin_facts *facts, kin_device_set *refused, char sentences[][KIN_PLAN_EXPLAIN_MAX], kin_err *err) {
    char reasons[KIN_FACTS_MAX_DEVICES][KIN_FACTS_MAX_REASON];
    kin_device_set usable;
    if (kin_facts_screen(facts, &usable, reasons, err) != 0) return KIN_FAIL;
    *refused = 0;
    for (int i = 0; i < facts->n_device; i++) {
        sentences[i][0] = '\0';
        if (usable & kin_device_bit(i)) continue;
        *refused |= kin_device_bit(i);
        snprintf(sentences[i], KIN_PLAN_EXPLAIN_MAX, "%s%s refused: %.*s", facts->devices[i].name,
                 kin_os_label(facts->devices[i].os), KIN_FACTS_MAX_REASON - 1, reasons[i]);
    }
    return 0;
}

// The cause of too little memory is often a device that was refused.
static int fail_with_refused(const kin_plan_view *view, kin_err *err) {
    for (int i = 0; i < view->facts->n_device && err; i++) {
        size_t n = strlen(err->text);
        if (view->refused & kin_device_bit(i)) snprintf(err->text + n, sizeof err->text - n, "; %s", view->sentences[i]);
    }
    return KIN_FAIL;
}

int kin_plan_view_ask(const kin_facts *facts, const kin_plan_options *options, const kin_plan_scheduler *scheduler,
                      kin_plan *plan, kin_prediction *prediction, kin_err *err) {
    if (kin_plan_schedule(scheduler, facts, options, plan, err) != 0) return KIN_FAIL;
    return kin_timeline_predict(facts, plan, prediction, err);
}

// Returns whether a plan with groups is faster; view->group: why, or why not.
static bool consider_groups(kin_plan_view *view, const kin_plan_options *options) {
    kin_err err;
    view->group[0] = '\0';
    if (view->facts->n_device < 2 || view->scheduler->plan != kin_plan_playoff) return false;
    if (view->facts->model.share_heads <= 0) return false; // facts that do not tell how layers can be split
    if (kin_plan_grouped(view->facts, options, view->prediction.tpot_s, &view->grouped, &err) != 0) return false;
    kin_grouped_explain(view->facts, &view->grouped, &view->prediction, view->group, sizeof view->group);
    return view->grouped.plan.groups.n > 0 && view->grouped.prediction.tpot_s < view->prediction.tpot_s;
}

static void use_groups(kin_plan_view *view) {
    kin_err err;
    if (kin_grouping_apply(view->devices, &view->grouped.plan.groups, &view->with_groups, &err) != 0) return;
    view->has_groups = true;
    view->facts = &view->with_groups;
    view->plan = view->grouped.plan;
    view->prediction = view->grouped.prediction;
}

static void begin(kin_plan_view *view, const kin_facts *facts, const kin_plan_scheduler *scheduler) {
    view->facts = view->devices = facts;
    view->scheduler = scheduler;
    view->has_groups = false;
    view->ring_s = INFINITY;
    view->reason[0] = '\0';
    memset(view->if_lost, 0, sizeof view->if_lost);
    for (int i = 0; i < KIN_FACTS_MAX_DEVICES; i++) view->without[i].more_s = NAN;
}

// Returns the plan's group with the device, or NULL.
static const kin_group *group_with(const kin_plan_view *view, int device) {
    for (int i = 0; view->has_groups && i < view->grouped.plan.groups.n; i++) {
        const kin_group *group = &view->grouped.plan.groups.groups[i];
        if (kin_group_members(group) & kin_device_bit(device)) return group;
    }
    return NULL;
}

// Makes the sentence of each device, and predicts the cost of its loss. Only for plans that the playoff would make: for others
// the plans without a device are not known.
static int explain(kin_plan_view *view, const kin_plan_options *options, kin_err *err) {
    if (kin_plan_explain(view->facts, options, &view->plan, view->sentences, view->without, err) != 0) return KIN_FAIL;
    for (int i = 1; i < view->facts->n_device; i++) {
        if (view->plan.shares[i].n_layer == 0) continue;
        view->if_lost[i] = KIN_PLAN_VIEW_ENDS;
        if (view->without[i].plan.n_stops == 0) continue;
        bool is_known = kin_loss_predict(view->facts, &view->plan, &view->without[i].plan, i, &view->losses[i], NULL) == 0;
        view->if_lost[i] = is_known ? KIN_PLAN_VIEW_PAUSES : KIN_PLAN_VIEW_UNASKED;
    }
    return 0;
}

// Finds the best plan under these options, with groups or without, and stores it in view->other. Returns its time per token;
// infinite: none.
static double find_best(kin_plan_view *view, const kin_plan_options *options) {
    kin_plan plan;
    kin_prediction ring;
    kin_grouped_plan *best = &view->other;
    bool is_ring = kin_plan_view_ask(view->devices, options, view->scheduler, &plan, &ring, NULL) == 0;
    double s = is_ring ? ring.tpot_s : INFINITY;
    bool is_grouped = kin_plan_grouped(view->devices, options, s, best, NULL) == 0 && best->plan.groups.n > 0;
    if (is_grouped && !best->is_only_tried && best->prediction.tpot_s < s) return best->prediction.tpot_s;
    best->plan = plan;
    return s;
}

// Predicts the loss of a device that computes; view->other has the best plan without it, with s per token.
static void find_loss(kin_plan_view *view, int device, double s) {
    view->if_lost[device] = KIN_PLAN_VIEW_ENDS;
    if (!isfinite(s)) return;
    bool is_known =
        kin_loss_predict_grouped(view->devices, &view->plan, &view->other.plan, device, &view->losses[device], NULL) == 0;
    view->if_lost[device] = is_known ? KIN_PLAN_VIEW_PAUSES : KIN_PLAN_VIEW_UNASKED;
}

static void format_layers(const kin_plan_view *view, int device, char *text, size_t size) {
    const kin_group *group = group_with(view, device);
    int n_layer = view->plan.shares[group ? kin_group_last(group) : device].n_layer;
    size_t used = (size_t)snprintf(text, size, "%s%d layer%s", group ? "shares " : "", n_layer, n_layer == 1 ? "" : "s");
    const char *between = " with ";
    for (int i = 0; group && i < group->n && used < size; i++) {
        if (group->devices[i] == device) continue;
        used += (size_t)snprintf(text + used, size - used, "%s%s", between, view->devices->devices[group->devices[i]].name);
        between = " and ";
    }
}

// ---- the plan in one sentence

enum { MAX_NAMED = 3 };
#define MORE 1.05 // speed ratio from which one is mentioned

static bool is_used(const kin_plan_view *view, int device) {
    return group_with(view, device) || view->plan.shares[device].n_layer > 0;
}

// Writes "kitchen, attic and desk", or "kitchen, attic and 14 others".
static void format_names(const kin_plan_view *view, kin_device_set devices, char *text, size_t size) {
    int n = 0, n_all = __builtin_popcount(devices), n_named = n_all > MAX_NAMED ? MAX_NAMED - 1 : n_all;
    size_t used = 0;
    for (int i = 0; i < view->devices->n_device && n < n_named; i++) {
        if (!(devices & kin_device_bit(i))) continue;
        const char *before = n == 0 ? "" : n + 1 == n_all ? " and " : ", ";
        used += (size_t)snprintf(text + used, size - used, "%s%s", before, view->devices->devices[i].name);
        n++;
    }
    if (n_named < n_all) snprintf(text + used, size - used, " and %d others", n_all - n_named);
}

// Returns the time per token of the best plan of the head alone. Infinite: it has no room for the model.
static double time_of_head(const kin_plan_view *view, const kin_plan_options *options) {
    kin_plan plan;
    kin_prediction prediction;
    kin_plan_options o = *options;
    o.force_in = 0;
    for (int i = 1; i < view->devices->n_device; i++) o.leave_out |= kin_device_bit(i);
    return kin_plan_view_ask(view->devices, &o, view->scheduler, &plan, &prediction, NULL) == 0 ? prediction.tpot_s : INFINITY;
}

// Explains why the plan is not the other one, which takes other_s per token.
static void explain_other(const kin_plan_view *view, const char *they_are, double other_s, const char *other, const char *no_room,
                          char *text, size_t size) {
    double s = view->prediction.tpot_s;
    if (!isfinite(other_s))
        snprintf(text, size, " because %s", no_room);
    else if (other_s > MORE * s)
        snprintf(text, size, " because %s %.1f times as fast as %s", they_are, other_s / s, other);
    else if (s > MORE * other_s)
        snprintf(text, size, ", though %s would be %.1f times as fast", other, s / other_s);
    else
        snprintf(text, size, ", which is about as fast as %s", other);
}

// Explains a plan in which devices other than the head compute.
static void explain_others(const kin_plan_view *view, const kin_plan_options *options, bool is_one, char *text, size_t size) {
    char alone[KIN_FACTS_MAX_NAME + 8], no_room[KIN_FACTS_MAX_NAME + 40];
    const char *head = view->devices->devices[0].name;
    snprintf(alone, sizeof alone, "%s alone", head);
    snprintf(no_room, sizeof no_room, "%s alone lacks memory for the model", head);
    explain_other(view, is_one ? "it is" : "together they are", time_of_head(view, options), alone, no_room, text, size);
}

static void explain_plan(kin_plan_view *view, const kin_plan_options *options) {
    char names[KIN_PLAN_VIEW_MAX_REASON / 2], why[KIN_PLAN_VIEW_MAX_REASON / 4];
    kin_device_set used = 0, grouped = 0;
    for (int i = 0; i < view->devices->n_device; i++) {
        if (is_used(view, i)) used |= kin_device_bit(i);
        if (group_with(view, i)) grouped |= kin_device_bit(i);
    }
    bool is_one = __builtin_popcount(used) == 1;
    if (grouped)
        explain_other(view, "together they are", view->ring_s, "one after the other",
                      "one after the other they lack memory for the model", why, sizeof why);
    else if (used != kin_device_bit(0))
        explain_others(view, options, is_one, why, sizeof why);
    else
        snprintf(why, sizeof why, ": %s",
                 view->devices->n_device > 1 ? "more devices would not be faster" : "there is no other device");
    format_names(view, grouped ? grouped : used, names, sizeof names);
    snprintf(view->reason, sizeof view->reason, "%s %s%s", names,
             grouped  ? "share the layers"
             : is_one ? "computes all layers"
                      : "compute the layers one after the other",
             why);
}

// As explain, for a plan with groups.
static void explain_groups(kin_plan_view *view, const kin_plan_options *options) {
    for (int i = 0; i < view->devices->n_device; i++) {
        const kin_device_facts *d = &view->devices->devices[i];
        char name[KIN_FACTS_MAX_NAME + 24], layers[KIN_PLAN_EXPLAIN_MAX - KIN_FACTS_MAX_NAME - 72];
        kin_plan_options o = *options;
        bool computes = is_used(view, i);
        if (view->refused & kin_device_bit(i) || options->leave_out & kin_device_bit(i)) continue;
        snprintf(name, sizeof name, "%s%s", d->name, kin_os_label(d->os));
        format_layers(view, i, layers, sizeof layers);
        if (i > 0) *(computes ? &o.leave_out : &o.force_in) |= kin_device_bit(i);
        double other_s = i > 0 ? find_best(view, &o) : 0, more_ms = 1e3 * (other_s - view->prediction.tpot_s);
        if (i > 0 && computes) find_loss(view, i, other_s);
        if (i > 0 && computes) view->without[i].more_s = more_ms / 1e3;
        if (i == 0)
            snprintf(view->sentences[i], KIN_PLAN_EXPLAIN_MAX, "%s: %s; the head, with embedding and output", name,
                     computes ? layers : "no layers");
        else if (!computes && isfinite(more_ms))
            snprintf(view->sentences[i], KIN_PLAN_EXPLAIN_MAX, "%s left out: it would add %.1f ms/token", name, fmax(0, more_ms));
        else if (!computes)
            snprintf(view->sentences[i], KIN_PLAN_EXPLAIN_MAX, "%s left out: it cannot hold a layer", name);
        else if (isfinite(more_ms))
            snprintf(view->sentences[i], KIN_PLAN_EXPLAIN_MAX, "%s: %s; without it %.1f ms/token %s", name, layers, fabs(more_ms),
                     more_ms < 0 ? "less" : "more");
        else
            snprintf(view->sentences[i], KIN_PLAN_EXPLAIN_MAX, "%s: %s; without it the model does not fit", name, layers);
    }
}

int kin_plan_view_make(kin_plan_view *view, const kin_facts *facts, const kin_plan_options *options,
                       const kin_plan_scheduler *scheduler, kin_err *err) {
    begin(view, facts, scheduler);
    if (kin_plan_view_screen(facts, &view->refused, view->sentences, err) != 0) return KIN_FAIL;
    if (kin_plan_view_ask(facts, options, scheduler, &view->plan, &view->prediction, err) != 0)
        return fail_with_refused(view, err);
    view->ring_s = view->prediction.tpot_s;
    if (consider_groups(view, options)) use_groups(view);
    if (scheduler->plan == kin_plan_playoff) explain_plan(view, options);
    if (view->has_groups) explain_groups(view, options);
    return scheduler->plan == kin_plan_playoff && !view->has_groups ? explain(view, options, err) : 0;
}

// Predicts a plan with groups, whatever made it.
static int read_groups(const kin_facts *facts, kin_grouped_plan *p, kin_facts *with_groups, kin_err *err) {
    kin_device_rates rates[KIN_FACTS_MAX_DEVICES];
    for (int i = 0; i < p->plan.groups.n; i++) {
        kin_group_rates(facts, kin_group_members(&p->plan.groups.groups[i]), rates);
        if (kin_group_time_of(facts, rates, &p->plan.groups.groups[i], &p->times[i], err) != 0) return KIN_FAIL;
    }
    if (kin_grouping_apply(facts, &p->plan.groups, with_groups, err) != 0) return KIN_FAIL;
    return kin_timeline_predict(with_groups, &p->plan, &p->prediction, err);
}

// The sentences about active groups compare them with the best ring.
static int view_groups(kin_plan_view *view, const kin_plan *plan, const kin_plan_options *options, kin_err *err) {
    kin_plan best;
    kin_prediction ring;
    view->grouped = (kin_grouped_plan){.plan = *plan};
    if (read_groups(view->devices, &view->grouped, &view->with_groups, err) != 0) return KIN_FAIL;
    use_groups(view);
    view->group[0] = '\0';
    if (kin_plan_view_ask(view->devices, options, view->scheduler, &best, &ring, NULL) == 0) {
        view->ring_s = ring.tpot_s;
        kin_grouped_explain(view->devices, &view->grouped, &ring, view->group, sizeof view->group);
    }
    explain_plan(view, options);
    explain_groups(view, options);
    return 0;
}

int kin_plan_view_of(kin_plan_view *view, const kin_facts *facts, const kin_plan *plan, const kin_plan_options *options,
                     kin_err *err) {
    begin(view, facts, &kin_plan_schedulers[0]);
    view->plan = *plan;
    if (kin_plan_view_screen(facts, &view->refused, view->sentences, err) != 0) return KIN_FAIL;
    if (plan->groups.n > 0) return view_groups(view, plan, options, err);
    if (kin_timeline_predict(facts, plan, &view->prediction, err) != 0) return KIN_FAIL;
    consider_groups(view, options);
    explain_plan(view, options);
    return explain(view, options, err);
}

// ---- as JSON

double kin_plan_view_gpu_bytes(const kin_plan_view *view, int device) {
    const kin_model_facts *m = &view->facts->model;
    int n_gpu = view->plan.shares[device].n_layer_gpu;
    if (n_gpu == 0) return 0;
    return view->prediction.devices[device].gpu_bytes - m->gpu_buffer_bytes -
           n_gpu * kin_facts_gpu_kv_held(m, view->facts->work.n_ctx);
}

static json_t *windows_json(const kin_plan *plan, int device) {
    kin_windows windows;
    json_t *list = json_array();
    kin_plan_windows(plan, device, &windows);
    for (int i = 0; i < windows.n; i++)
        json_array_append_new(list, json_pack("{s:i, s:i, s:i, s:i}", "layer_begin", windows.at[i].layer_begin, "layer_end",
                                              windows.at[i].layer_end, "gpu_layers", windows.at[i].n_gpu_layers, "cpu_moe_layers",
                                              windows.at[i].n_cpu_moe));
    return list;
}

const char *kin_plan_view_replica(const kin_plan_view *view, int lost) {
    int replica = view->losses[lost].replica;
    const kin_group *group = group_with(view, replica);
    return view->devices->devices[group ? group->devices[0] : replica].name;
}

static json_t *loss_json(const kin_plan_view *view, int device) {
    const kin_loss *l = &view->losses[device];
    if (view->if_lost[device] != KIN_PLAN_VIEW_PAUSES) return json_pack("{s:s}", "way", "none");
    static const char *const recoveries[] = {
        [KIN_LOSS_COMPUTED] = "computed", [KIN_LOSS_PAGES] = "pages", [KIN_LOSS_LAYERS] = "layers"};
    json_t *json = json_pack("{s:s, s:f, s:f, s:f, s:f, s:f, s:i}", "way", recoveries[l->recovery], "pause_ms", l->pause_s * 1e3,
                             "silence_ms", KIN_LOSS_SILENCE_S * 1e3, "fetch_ms", l->fetch_s * 1e3, "load_ms", l->load_s * 1e3,
                             "compute_ms", l->compute_s * 1e3, "computed_tokens", l->n_computed);
    if (json && l->recovery == KIN_LOSS_PAGES) {
        json_object_set_new(json, "pages_ms", json_real(l->pages_s * 1e3));
        json_object_set_new(json, "copies", json_string(kin_plan_view_replica(view, device)));
    }
    if (json && l->layers_s > 0) json_object_set_new(json, "layers_ms", json_real(l->layers_s * 1e3));
    return json;
}

// Describes the best plan without the device: does the model fit, and how much longer does a token take.
static json_t *without_json(const kin_plan_without *without) {
    if (!isfinite(without->more_s)) return json_pack("{s:b}", "fits", false);
    return json_pack("{s:b, s:f}", "fits", true, "more_ms", without->more_s * 1e3);
}

// A member of a group has the group's times, and its own memory and disk.
static json_t *device_json(const kin_plan_view *view, int device) {
    const kin_group *group = group_with(view, device);
    int at = group ? kin_group_last(group) : device;
    const kin_layer_share *layers = &view->plan.shares[at];
    const kin_device_prediction *p = &view->prediction.devices[at], *own = &view->prediction.devices[device];
    const kin_device_facts *facts = &view->devices->devices[device];
    json_t *json = json_pack("{s:s, s:s, s:b, s:i, s:i, s:i, s:o}", "name", facts->name, "os", kin_os_name(facts->os), "refused",
                             (view->refused & kin_device_bit(device)) != 0, "layers", layers->n_layer, "gpu_layers",
                             layers->n_layer_gpu, "cpu_moe_layers", layers->n_cpu_moe, "windows", windows_json(&view->plan, at));
    const struct {
        const char *key;
        double value;
    } sizes[] = {{"resident_bytes", own->resident_bytes},
                 {"gpu_resident_bytes", kin_plan_view_gpu_bytes(view, device)},
                 {"streamed_bytes", own->streamed_bytes},
                 {"memory_bytes", own->memory_bytes},
                 {"gpu_bytes", own->gpu_bytes}},
      times[] = {{"compute_ms", p->compute_s},   {"windows_ms", p->windows_s}, {"experts_ms", p->experts_s},
                 {"disk_wait_ms", p->exposed_s}, {"disk_ms", own->own_load_s}, {"hop_ms", p->hop_s}};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        json_object_set_new(json, sizes[i].key, json_integer((json_int_t)round(sizes[i].value)));
    for (size_t i = 0; i < sizeof times / sizeof *times; i++)
        json_object_set_new(json, times[i].key, json_real(times[i].value * 1e3));
    if (view->if_lost[device]) json_object_set_new(json, "if_lost", loss_json(view, device));
    if (!isnan(view->without[device].more_s)) json_object_set_new(json, "without", without_json(&view->without[device]));
    if (view->sentences[device][0]) json_object_set_new(json, "why", json_string(view->sentences[device]));
    return json;
}

static json_t *ring_json(const kin_plan_view *view) {
    json_t *ring = json_array();
    for (int s = 0; s < view->plan.n_stops; s++) {
        int device = view->plan.stops[s].device;
        bool relay = view->plan.stops[s].relay;
        const kin_group *group = relay ? NULL : group_with(view, device);
        for (int i = 0; i < (group ? group->n : 1); i++)
            json_array_append_new(
                ring,
                json_pack("{s:s, s:b}", "name", view->devices->devices[group ? group->devices[i] : device].name, "relay", relay));
    }
    return ring;
}

static json_t *groups_json(const kin_plan_view *view) {
    json_t *groups = json_array();
    for (int i = 0; i < view->grouped.plan.groups.n; i++) {
        const kin_group *g = &view->grouped.plan.groups.groups[i];
        const kin_group_time *t = &view->grouped.times[i];
        json_t *names = json_array(), *shares = json_array();
        double sum_s = t->sum_s + t->sum_token_s;
        int n_layer = view->plan.shares[kin_group_last(g)].n_layer;
        for (int k = 0; k < g->n; k++) {
            json_array_append_new(names, json_string(view->devices->devices[g->devices[k]].name));
            json_array_append_new(shares, json_real(kin_group_share(g, g->devices[k])));
        }
        json_array_append_new(groups, json_pack("{s:o, s:o, s:i, s:i, s:i, s:f, s:f, s:f}", "devices", names, "shares", shares,
                                                "layers", n_layer, "layers_from_disk", view->grouped.n_streamed[i], "sums",
                                                2 * n_layer, "sum_ms", sum_s * 1e3, "sums_ms", 2 * n_layer * sum_s * 1e3,
                                                "saves_ms", n_layer * kin_group_saves_s(t) * 1e3));
    }
    return groups;
}

json_t *kin_plan_view_work_json(const kin_facts *facts) {
    const kin_work_facts *w = &facts->work;
    return json_pack("{s:i, s:i, s:i, s:i}", "n_ctx", w->n_ctx, "n_cached", w->n_cached, "n_prompt", w->n_prompt, "n_batch",
                     w->n_batch);
}

// A scheduler's proof is about its closed form: its bound is stored beside the closed form's time, which is not the simulated
// one.
static json_t *closed_form_json(const kin_plan *plan) {
    json_t *json = json_pack("{s:f}", "tpot_ms", plan->tpot_s * 1e3);
    if (json && plan->bound_s > 0) json_object_set_new(json, "bound_ms", json_real(plan->bound_s * 1e3));
    return json;
}

json_t *kin_plan_view_json(const kin_plan_view *view) {
    const kin_prediction *p = &view->prediction;
    json_t *devices = json_array();
    for (int i = 0; i < view->devices->n_device; i++) json_array_append_new(devices, device_json(view, i));
    json_t *json =
        json_pack("{s:s, s:i, s:f, s:f, s:o, s:f, s:f, s:f, s:f, s:f, s:o, s:o, s:o}", "scheduler", view->scheduler->name,
                  "rounds", view->plan.n_rounds, "tpot_ms", p->tpot_s * 1e3, "ttft_ms", p->ttft_s * 1e3, "closed_form",
                  closed_form_json(&view->plan), "compute_ms", p->compute_s * 1e3, "windows_ms", p->windows_s * 1e3,
                  "disk_wait_ms", p->exposed_s * 1e3, "disk_bound_ms", p->disk_bound_s * 1e3, "hops_ms", p->hops_s * 1e3, "work",
                  kin_plan_view_work_json(view->facts), "ring", ring_json(view), "devices", devices);
    if (json && view->has_groups) json_object_set_new(json, "groups", groups_json(view));
    if (json && view->reason[0]) json_object_set_new(json, "reason", json_string(view->reason));
    if (json && view->group[0]) json_object_set_new(json, "group", json_string(view->group));
    if (json && view->group[0]) json_object_set_new(json, "group_tried", json_boolean(view->grouped.plan.groups.n > 0));
    return json;
}
