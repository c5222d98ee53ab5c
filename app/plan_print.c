#include "app/plan_print.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "app/terminal/table.h"
#include "base/units.h"
#include "pure/text/escape.h"

const char *kin_plan_print_time(double seconds, char buf[KIN_PLAN_PRINT_TIME]) {
    double ms = seconds * 1e3;
    if (ms >= 999.5)
        snprintf(buf, KIN_PLAN_PRINT_TIME, seconds >= 999.5 ? "%.0f s" : "%.3g s", seconds);
    else
        snprintf(buf, KIN_PLAN_PRINT_TIME, ms >= 0.995 ? "%.3g ms" : "%.2f ms", ms);
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

// Formats "44", or "3 x 9, 2 x 8" if a token passes the device several times.
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
    char text[KIN_PLAN_PRINT_TIME];
    if (seconds > 0) kin_table_cell(table, column, "%s", kin_plan_print_time(seconds, text));
}

static void fill_row(kin_table *table, const kin_plan_view *view, int device, bool relay) {
    const kin_layer_share *share = &view->plan.shares[device];
    const kin_device_prediction *p = &view->prediction.devices[device];
    char windows[64];
    kin_table_row(table);
    const kin_device_facts *facts = &view->facts->devices[device];
    kin_table_cell(table, NAME, "%.24s%s", facts->name, kin_os_label(facts->os));
    if (relay) {
        kin_table_cell(table, WINDOWS, "relay");
        return;
    }
    kin_table_cell(table, LAYERS, "%d", share->n_layer);
    if (share->n_layer > 0) {
        describe_windows(&view->plan, share, windows, sizeof windows);
        kin_table_cell(table, WINDOWS, "%s", windows);
    }
    if (share->n_cpu_moe > 0)
        kin_table_cell(table, ON_GPU, "%d (%d)", share->n_layer_gpu, share->n_cpu_moe);
    else if (share->n_layer_gpu > 0)
        kin_table_cell(table, ON_GPU, "%d", share->n_layer_gpu);
    double resident = p->resident_bytes, streamed = p->streamed_bytes;
    const kin_shared_facts *shared = &view->facts->shared[device];
    for (int i = 0; i < shared->n_members - 1; i++) { // sums over a group's devices
        resident += view->prediction.devices[shared->members[i].device].resident_bytes;
        streamed += view->prediction.devices[shared->members[i].device].streamed_bytes;
    }
    fill_size(table, IN_RAM, resident);
    fill_size(table, IN_VRAM, kin_plan_view_gpu_bytes(view, device));
    fill_size(table, STREAMED, streamed);
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

// Prints "  network       112 ms   8 %  ###"; omits parts that are too small to see.
static void print_part(FILE *file, const char *what, double seconds, double of_s, const char *remark) {
    static const char bar[] = "########################################";
    char text[KIN_PLAN_PRINT_TIME];
    double share = seconds / of_s;
    if (share < 0.005) return;
    int n = (int)fmax(1, fmin(round(share * (sizeof bar - 1)), sizeof bar - 1));
    fprintf(file, "  %-18s %8s  %3.0f %%  %.*s%s%s\n", what, kin_plan_print_time(seconds, text), 100 * share, n, bar,
            remark[0] ? "  " : "", remark);
}

static void print_parts(const kin_plan_view *view, FILE *file) {
    const kin_prediction *p = &view->prediction;
    char name[KIN_FACTS_MAX_NAME], pace[KIN_FACTS_MAX_NAME + 32] = "";
    if (p->slowest_disk >= 0) {
        const char *slowest = view->facts->devices[p->slowest_disk].name;
        kin_escape(name, sizeof name, slowest, strlen(slowest));
        snprintf(pace, sizeof pace, "(limited by the disk of %s)", name);
    }
    print_part(file, "computing", p->compute_s - p->sums_s, p->tpot_s, "");
    print_part(file, "sums of groups", p->sums_s, p->tpot_s, "");
    print_part(file, "waiting for disks", p->exposed_s + p->disk_bound_s, p->tpot_s, pace);
    print_part(file, "network", p->hops_s, p->tpot_s, "");
    print_part(file, "starting windows", p->windows_s, p->tpot_s, "");
}

// The proof applies to the closed form. With streamed weights the token's time is simulated and differs.
static void print_proof(const kin_plan *plan, double tpot_s, FILE *file) {
    char text[KIN_PLAN_PRINT_TIME], proof[64];
    double gap = fmax(0, 1 - plan->bound_s / plan->tpot_s);
    if (gap < 5e-4)
        snprintf(proof, sizeof proof, "no plan is faster");
    else
        snprintf(proof, sizeof proof, "no plan is more than %.1f %% faster", 100 * gap);
    if (plan->bound_s <= 0)
        fprintf(file, "\n");
    else if (fabs(tpot_s - plan->tpot_s) > 1e-6 * tpot_s)
        fprintf(file, "\nclosed form %8s  by which %s; the figures above are simulated\n",
                kin_plan_print_time(plan->tpot_s, text), proof);
    else
        fprintf(file, "; %s\n", proof);
}

static void print_times(const kin_plan_view *view, FILE *file) {
    const kin_plan *plan = &view->plan;
    const kin_work_facts *work = &view->facts->work;
    const kin_prediction *p = &view->prediction;
    char text[KIN_PLAN_PRINT_TIME];
    fprintf(file, p->tpot_s > 1e-3 ? "a token     %8s  %.3g tokens/s" : "a token     %8s  %.0f tokens/s",
            kin_plan_print_time(p->tpot_s, text), 1 / p->tpot_s);
    fprintf(file, " after %d tokens; %d pass%s around the ring", work->n_cached, plan->n_rounds, plan->n_rounds == 1 ? "" : "es");
    print_proof(plan, p->tpot_s, file);
    print_parts(view, file);
    fprintf(file, "a prompt    %8s  of %d tokens\n", kin_plan_print_time(p->ttft_s, text), work->n_prompt);
}

void kin_plan_print_sentences(const kin_facts *facts, const char sentences[][KIN_PLAN_EXPLAIN_MAX], FILE *file) {
    const char *gap_line = "\n";
    for (int i = 0; i < facts->n_device; i++) {
        char sentence[KIN_PLAN_EXPLAIN_MAX];
        if (!sentences[i][0]) continue;
        fprintf(file, "%s%s\n", gap_line, kin_escape(sentence, sizeof sentence, sentences[i], strlen(sentences[i])));
        gap_line = "";
    }
}

enum { LOST, PAUSE, PAGES, COMPUTED, FETCH, BY };

static void fill_loss(kin_table *table, const kin_plan_view *view, int device) {
    const kin_loss *l = &view->losses[device];
    kin_table_row(table);
    kin_table_cell(table, LOST, "%.24s", view->devices->devices[device].name);
    if (view->if_lost[device] == KIN_PLAN_VIEW_ENDS) {
        kin_table_cell(table, BY, "no device has room: requests wait for its return");
        return;
    }
    fill_time(table, PAUSE, l->pause_s);
    fill_time(table, PAGES, l->pages_s);
    fill_time(table, COMPUTED, l->compute_s);
    fill_time(table, FETCH, l->fetch_s);
    if (l->recovery == KIN_LOSS_PAGES)
        kin_table_cell(table, BY, "stored KV pages, its own from replica %.24s", kin_plan_view_replica(view, device));
    else if (l->recovery == KIN_LOSS_LAYERS)
        kin_table_cell(table, BY, "stored KV pages; its layers are recomputed");
    else
        kin_table_cell(table, BY, "recomputing %d token%s", l->n_computed, plural(l->n_computed));
}

// Prints how long a sequence pauses after the loss of each device. Prints nothing if that is unknown.
static void print_losses(const kin_plan_view *view, FILE *file) {
    static const char *const titles[] = {"IF LOST", "PAUSE", "PAGES", "COMPUTED", "NO SPARES", "RECOVERY"};
    kin_table *table = malloc(sizeof *table);
    if (!table) return;
    kin_table_init(table, "lrrrrl", titles);
    for (int i = 1; i < view->facts->n_device; i++) {
        if (view->if_lost[i]) fill_loss(table, view, i);
    }
    if (table->n_rows > 1) {
        fprintf(file, "\n");
        kin_table_print(table, file);
    }
    free(table);
}

void kin_plan_print(const kin_plan_view *view, FILE *file) {
    const kin_facts *f = view->facts;
    char text[32];
    fprintf(file, "%d device%s; %d layer%s and the output, %s of weights; context %d; scheduler %s\n\n", f->n_device,
            plural(f->n_device), f->model.n_layer, plural(f->model.n_layer), size_of(weights_bytes(&f->model), text),
            f->work.n_ctx, view->scheduler->name);
    print_devices(view, file);
    fprintf(file, "\n");
    print_times(view, file);
    char group[2 * KIN_GROUP_EXPLAIN_MAX];
    if (view->group[0]) fprintf(file, "\n%s\n", kin_escape(group, sizeof group, view->group, strlen(view->group)));
    kin_plan_print_sentences(f, view->sentences, file);
    print_losses(view, file);
}
