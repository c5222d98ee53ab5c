#include "app/plan_view.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "app/table.h"
#include "base/units.h"
#include "pure/text/escape.h"

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
        snprintf(sentences[i], KIN_PLAN_EXPLAIN_MAX, "%s refused: %.*s", facts->devices[i].name, KIN_FACTS_MAX_REASON - 1,
                 reasons[i]);
    }
    return 0;
}

// Less memory than was hoped for is often a device that was refused.
static int fail_with_refused(const kin_plan_view *view, kin_err *err) {
    for (int i = 0; i < view->facts->n_device && err; i++) {
        size_t n = strlen(err->text);
        if (view->refused & kin_device_bit(i)) snprintf(err->text + n, sizeof err->text - n, "; %s", view->sentences[i]);
    }
    return KIN_FAIL;
}

int kin_plan_view_ask(const kin_facts *facts, const kin_plan_options *options, const kin_plan_scheduler *scheduler,
                      kin_plan *plan, kin_prediction *prediction, kin_err *err) {
    if (options->n_rounds > facts->model.n_layer && facts->model.n_layer > 0)
        return kin_err_set(err, "%d rounds for %d layers: a device needs a layer in every round", options->n_rounds,
                           facts->model.n_layer);
    if (scheduler->plan(facts, options, plan, err) != 0) return KIN_FAIL;
    if (options->n_rounds > 0 && plan->n_rounds != options->n_rounds)
        return kin_err_set(err, "%s itself chooses how often a token goes round the ring", scheduler->name);
    return kin_timeline_predict(facts, plan, prediction, err);
}

int kin_plan_view_make(kin_plan_view *view, const kin_facts *facts, const kin_plan_options *options,
                       const kin_plan_scheduler *scheduler, kin_err *err) {
    view->facts = facts;
    view->scheduler = scheduler;
    if (kin_plan_view_screen(facts, &view->refused, view->sentences, err) != 0) return KIN_FAIL;
    if (kin_plan_view_ask(facts, options, scheduler, &view->plan, &view->prediction, err) != 0)
        return fail_with_refused(view, err);
    return scheduler->plan == kin_plan_playoff ? kin_plan_explain(facts, options, &view->plan, view->sentences, err) : 0;
}

// ---- as text

const char *kin_plan_view_time(double seconds, char buf[KIN_PLAN_VIEW_TIME]) {
    double ms = seconds * 1e3;
    if (ms >= 999.5)
        snprintf(buf, KIN_PLAN_VIEW_TIME, "%.3g s", seconds);
    else
        snprintf(buf, KIN_PLAN_VIEW_TIME, ms >= 0.995 ? "%.3g ms" : "%.2f ms", ms);
    return buf;
}

static const char *size_of(double bytes, char buf[32]) {
    return kin_size_format(bytes > 0 && bytes < 1e18 ? (uint64_t)bytes : 0, buf, 32);
}

static const char *plural(int n) {
    return n == 1 ? "" : "s";
}

static double weights_bytes(const kin_model_facts *m) {
    return m->n_layer * kin_facts_layer_bytes(m) + kin_facts_bytes_sum(m->output_bytes);
}

// What the GPU holds beside its KV cache and buffers.
static double gpu_weights_bytes(const kin_plan_view *view, int device) {
    const kin_model_facts *m = &view->facts->model;
    int n_gpu = view->plan.shares[device].n_layer_gpu;
    if (n_gpu == 0) return 0;
    return view->prediction.devices[device].gpu_bytes - m->gpu_buffer_bytes - n_gpu * m->kv_bytes * view->facts->work.n_ctx;
}

// "44", or "3 x 9, 2 x 8" where a token comes by several times
static void describe_windows(const kin_plan *plan, const kin_layer_share *share, char *text, size_t size) {
    int least = share->n_layer / plan->n_rounds, longer = share->n_layer % plan->n_rounds, shorter = plan->n_rounds - longer;
    if (plan->n_rounds == 1)
        snprintf(text, size, "%d", share->n_layer);
    else if (longer == 0)
        snprintf(text, size, "%d x %d", shorter, least);
    else
        snprintf(text, size, "%d x %d, %d x %d", longer, least + 1, shorter, least);
}

enum { NAME, LAYERS, ON_GPU, WINDOWS, IN_RAM, IN_VRAM, STREAMED, COMPUTE, DISK, HOP };

static void fill_size(kin_table *table, int column, double bytes) {
    char text[32];
    if (bytes > 0) kin_table_cell(table, column, "%s", size_of(bytes, text));
}

static void fill_time(kin_table *table, int column, double seconds) {
    char text[KIN_PLAN_VIEW_TIME];
    if (seconds > 0) kin_table_cell(table, column, "%s", kin_plan_view_time(seconds, text));
}

static void fill_row(kin_table *table, const kin_plan_view *view, int device, bool relay) {
    const kin_layer_share *share = &view->plan.shares[device];
    const kin_device_prediction *p = &view->prediction.devices[device];
    char windows[64];
    kin_table_row(table);
    kin_table_cell(table, NAME, "%.24s", view->facts->devices[device].name);
    if (relay) {
        kin_table_cell(table, WINDOWS, "relay");
        return;
    }
    kin_table_cell(table, LAYERS, "%d", share->n_layer);
    if (share->n_layer > 0) {
        describe_windows(&view->plan, share, windows, sizeof windows);
        kin_table_cell(table, WINDOWS, "%s", windows);
    }
    if (share->n_layer_gpu > 0) kin_table_cell(table, ON_GPU, "%d", share->n_layer_gpu);
    fill_size(table, IN_RAM, p->resident_bytes);
    fill_size(table, IN_VRAM, gpu_weights_bytes(view, device));
    fill_size(table, STREAMED, p->streamed_bytes);
    fill_time(table, COMPUTE, p->compute_s + p->windows_s);
    fill_time(table, DISK, p->exposed_s + p->experts_s);
    fill_time(table, HOP, p->hop_s);
}

static void print_devices(const kin_plan_view *view, FILE *file) {
    static const char *const titles[] = {"DEVICE",  "LAYERS",   "ON GPU",  "WINDOWS", "IN RAM",
                                         "IN VRAM", "STREAMED", "COMPUTE", "DISK",    "TO NEXT"};
    kin_table *table = malloc(sizeof *table);
    if (!table) return;
    kin_table_init(table, "lrrlrrrrrr", titles);
    for (int s = 0; s < view->plan.n_stops; s++) fill_row(table, view, view->plan.stops[s].device, view->plan.stops[s].relay);
    kin_table_print(table, file);
    free(table);
}

// "  network             112 ms   8 %  ###"; what cannot be seen is left out.
static void print_part(FILE *file, const char *what, double seconds, double of_s, const char *remark) {
    static const char bar[] = "########################################";
    char text[KIN_PLAN_VIEW_TIME];
    double share = seconds / of_s;
    if (share < 0.005) return;
    int n = (int)fmax(1, fmin(round(share * (sizeof bar - 1)), sizeof bar - 1));
    fprintf(file, "  %-18s %8s  %3.0f %%  %.*s%s%s\n", what, kin_plan_view_time(seconds, text), 100 * share, n, bar,
            remark[0] ? "  " : "", remark);
}

static void print_parts(const kin_plan_view *view, FILE *file) {
    const kin_prediction *p = &view->prediction;
    char name[KIN_FACTS_MAX_NAME], pace[KIN_FACTS_MAX_NAME + 32] = "";
    if (p->slowest_disk >= 0) {
        const char *slowest = view->facts->devices[p->slowest_disk].name;
        kin_escape(name, sizeof name, slowest, strlen(slowest));
        snprintf(pace, sizeof pace, "(the disk of %s sets the pace)", name);
    }
    print_part(file, "computing", p->compute_s, p->tpot_s, "");
    print_part(file, "waiting for disks", p->exposed_s + p->disk_bound_s, p->tpot_s, pace);
    print_part(file, "network", p->hops_s, p->tpot_s, "");
    print_part(file, "starting windows", p->windows_s, p->tpot_s, "");
}

static double gap(const kin_plan *plan) {
    return fmax(0, 1 - plan->bound_s / plan->tpot_s);
}

static void print_times(const kin_plan_view *view, FILE *file) {
    const kin_plan *plan = &view->plan;
    const kin_work_facts *work = &view->facts->work;
    const kin_prediction *p = &view->prediction;
    char text[KIN_PLAN_VIEW_TIME];
    fprintf(file, p->tpot_s > 1e-3 ? "a token     %8s  %.3g tokens/s" : "a token     %8s  %.0f tokens/s",
            kin_plan_view_time(p->tpot_s, text), 1 / p->tpot_s);
    fprintf(file, " after %d tokens; %d time%s round the ring", work->n_cached, plan->n_rounds, plural(plan->n_rounds));
    if (plan->bound_s > 0 && gap(plan) < 5e-4) fprintf(file, "; no plan is faster");
    if (plan->bound_s > 0 && gap(plan) >= 5e-4) fprintf(file, "; no plan is more than %.1f %% faster", 100 * gap(plan));
    fprintf(file, "\n");
    print_parts(view, file);
    fprintf(file, "a prompt    %8s  of %d tokens\n", kin_plan_view_time(p->ttft_s, text), work->n_prompt);
}

void kin_plan_view_print_sentences(const kin_facts *facts, const char sentences[][KIN_PLAN_EXPLAIN_MAX], FILE *file) {
    const char *gap_line = "\n";
    for (int i = 0; i < facts->n_device; i++) {
        char sentence[KIN_PLAN_EXPLAIN_MAX];
        if (!sentences[i][0]) continue;
        fprintf(file, "%s%s\n", gap_line, kin_escape(sentence, sizeof sentence, sentences[i], strlen(sentences[i])));
        gap_line = "";
    }
}

void kin_plan_view_print(const kin_plan_view *view, FILE *file) {
    const kin_facts *f = view->facts;
    char text[32];
    fprintf(file, "%d device%s; %d layer%s and the output, %s of weights; context %d; scheduler %s\n\n", f->n_device,
            plural(f->n_device), f->model.n_layer, plural(f->model.n_layer), size_of(weights_bytes(&f->model), text),
            f->work.n_ctx, view->scheduler->name);
    print_devices(view, file);
    fprintf(file, "\n");
    print_times(view, file);
    kin_plan_view_print_sentences(f, view->sentences, file);
}

// ---- as JSON

static json_t *windows_json(const kin_plan *plan, int device) {
    kin_windows windows;
    json_t *list = json_array();
    kin_plan_windows(plan, device, &windows);
    for (int i = 0; i < windows.n; i++)
        json_array_append_new(list, json_pack("{s:i, s:i, s:i}", "layer_begin", windows.at[i].layer_begin, "layer_end",
                                              windows.at[i].layer_end, "gpu_layers", windows.at[i].n_gpu_layers));
    return list;
}

static json_t *device_json(const kin_plan_view *view, int device) {
    const kin_layer_share *share = &view->plan.shares[device];
    const kin_device_prediction *p = &view->prediction.devices[device];
    json_t *json = json_pack("{s:s, s:b, s:i, s:i, s:o}", "name", view->facts->devices[device].name, "refused",
                             (view->refused & kin_device_bit(device)) != 0, "layers", share->n_layer, "gpu_layers",
                             share->n_layer_gpu, "windows", windows_json(&view->plan, device));
    const struct {
        const char *key;
        double value;
    } sizes[] = {{"resident_bytes", p->resident_bytes},
                 {"gpu_resident_bytes", gpu_weights_bytes(view, device)},
                 {"streamed_bytes", p->streamed_bytes},
                 {"memory_bytes", p->memory_bytes},
                 {"gpu_bytes", p->gpu_bytes}},
      times[] = {{"compute_ms", p->compute_s},   {"windows_ms", p->windows_s}, {"experts_ms", p->experts_s},
                 {"disk_wait_ms", p->exposed_s}, {"disk_ms", p->load_s},       {"hop_ms", p->hop_s}};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        json_object_set_new(json, sizes[i].key, json_integer((json_int_t)round(sizes[i].value)));
    for (size_t i = 0; i < sizeof times / sizeof *times; i++)
        json_object_set_new(json, times[i].key, json_real(times[i].value * 1e3));
    if (view->sentences[device][0]) json_object_set_new(json, "why", json_string(view->sentences[device]));
    return json;
}

static json_t *ring_json(const kin_plan_view *view) {
    json_t *ring = json_array();
    for (int s = 0; s < view->plan.n_stops; s++)
        json_array_append_new(ring, json_pack("{s:s, s:b}", "name", view->facts->devices[view->plan.stops[s].device].name,
                                              "relay", view->plan.stops[s].relay));
    return ring;
}

json_t *kin_plan_view_work_json(const kin_facts *facts) {
    const kin_work_facts *w = &facts->work;
    return json_pack("{s:i, s:i, s:i, s:i}", "n_ctx", w->n_ctx, "n_cached", w->n_cached, "n_prompt", w->n_prompt, "n_batch",
                     w->n_batch);
}

json_t *kin_plan_view_json(const kin_plan_view *view) {
    const kin_prediction *p = &view->prediction;
    json_t *devices = json_array();
    for (int i = 0; i < view->facts->n_device; i++) json_array_append_new(devices, device_json(view, i));
    return json_pack("{s:s, s:i, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:o, s:o, s:o}", "scheduler", view->scheduler->name,
                     "rounds", view->plan.n_rounds, "tpot_ms", p->tpot_s * 1e3, "ttft_ms", p->ttft_s * 1e3, "bound_ms",
                     view->plan.bound_s * 1e3, "compute_ms", p->compute_s * 1e3, "windows_ms", p->windows_s * 1e3, "disk_wait_ms",
                     p->exposed_s * 1e3, "disk_bound_ms", p->disk_bound_s * 1e3, "hops_ms", p->hops_s * 1e3, "work",
                     kin_plan_view_work_json(view->facts), "ring", ring_json(view), "devices", devices);
}
