// kin profile: measures this machine's performance, as the planner uses it.
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "app/app.h"
#include "app/option_tables.h"
#include "app/terminal/table.h"
#include "base/units.h"
#include "cluster/profile_store.h"
#include "cluster/session.h"
#include "observe/facts_file.h"

typedef struct profile_options {
    int n_threads;
    const char *name, *cache_dir;
    bool no_gpu, no_repack, refresh, json;
} profile_options;

enum { N_PROFILE_OPTIONS = 8, MAX_THREADS = 1024 };

static void fill_profile_table(profile_options *o, kin_option table[N_PROFILE_OPTIONS]) {
    *o = (profile_options){.name = "this machine"};
    const kin_option own[N_PROFILE_OPTIONS] = {
        {KIN_OPTION_THREADS, "threads", 't', &o->n_threads, "N", "CPU threads (default: physical cores)", 0, MAX_THREADS},
        {KIN_OPTION_FLAG, "no-gpu", 0, &o->no_gpu, NULL, "skip the GPU", 0, 0},
        {KIN_OPTION_FLAG, "no-repack", 0, &o->no_repack, NULL, "use the weights in the file's layout", 0, 0},
        {KIN_OPTION_FLAG, "refresh", 0, &o->refresh, NULL, "discard the stored profile and measure again", 0, 0},
        {KIN_OPTION_STRING, "name", 0, &o->name, "NAME", "device name (default: host name)", 0, 0},
        {KIN_OPTION_STRING, "cache", 0, &o->cache_dir, "DIR", "directory of profiles (default: ~/.cache/kin)", 0, 0},
        {KIN_OPTION_FLAG, "json", 0, &o->json, NULL, "print JSON", 0, 0},
        {0},
    };
    memcpy(table, own, sizeof own);
}

static void rate_cells(kin_table *t, int column, double bytes_s, double flop_s) {
    if (bytes_s > 0) kin_table_cell(t, column, "%.1f", bytes_s / 1e9);
    if (flop_s > 0) kin_table_cell(t, column + 1, "%.0f", flop_s / 1e9);
}

static void print_rates(const kin_device_facts *f) {
    static const char *const titles[] = {"weights", "GB/s, a token", "GFLOP/s, a prompt", "GPU: GB/s", "GPU: GFLOP/s"};
    kin_table *t = calloc(1, sizeof *t);
    if (!t) return;
    kin_table_init(t, f->has_gpu ? "lrrrr" : "lrr", titles);
    for (int q = 0; q < KIN_N_QUANT; q++) {
        kin_table_row(t);
        kin_table_cell(t, 0, "%s", kin_quant_name((kin_quant)q));
        rate_cells(t, 1, f->cpu.token_bytes_s[q], f->cpu.prompt_flop_s[q]);
        if (f->has_gpu) rate_cells(t, 3, f->gpu.token_bytes_s[q], f->gpu.prompt_flop_s[q]);
    }
    kin_table_print(t, stdout);
    free(t);
}

static void print_engine(const char *name, const kin_engine_facts *e) {
    printf("%-12s %.2f us per operation; attention reads %.1f GB/s (prompt: %.1f); %.2f us to store a token's K and V\n", name,
           e->op_s * 1e6, e->read_bytes_s / 1e9, e->prompt_read_bytes_s / 1e9, e->kv_copy_s * 1e6);
    printf("%-12s time of products of 2, 4, 8, 16, 32 rows, relative to reading plus computing:\n", "");
    for (int q = 0; q < KIN_N_QUANT; q++) {
        if (e->batch_factor[0][q] <= 0) continue;
        printf("%-12s   %-5s", "", kin_quant_name((kin_quant)q));
        for (int i = 0; i < KIN_FACTS_BATCHES; i++) printf(" %.2f", e->batch_factor[i][q]);
        printf("\n");
    }
}

static void print_profile_text(const kin_device_facts *f, const kin_devices *devices) {
    char a[32];
    printf("%-12s %s, %d threads\n", "processor", ggml_backend_dev_description(devices->cpu.dev), devices->n_threads);
    if (f->has_gpu) printf("%-12s %s\n", "GPU", ggml_backend_dev_description(devices->gpu.dev));
    printf("\n");
    print_rates(f);
    printf("\n");
    print_engine("CPU", &f->cpu);
    if (f->has_gpu) print_engine("GPU", &f->gpu);
    printf("%-12s %.1f us to start\n", "window", f->window_s * 1e6);
    if (f->has_gpu && !f->uma)
        printf("%-12s %.1f us to the GPU, %.1f us back, %.1f GB/s\n", "copies", f->to_gpu_s * 1e6, f->from_gpu_s * 1e6,
               f->gpu_copy_bytes_s / 1e9);
    printf("%-12s %s now\n", "memory", kin_size_format((uint64_t)f->memory_bytes, a, sizeof a));
    if (f->has_gpu) printf("%-12s %s free now\n", "GPU memory", kin_size_format((uint64_t)f->gpu_memory_bytes, a, sizeof a));
    if (f->disk_bytes_s > 0)
        printf("%-12s %.2f GB/s, %.2f GB/s in small pieces\n", "disk", f->disk_bytes_s / 1e9, f->disk_random_bytes_s / 1e9);
    else
        printf("%-12s not measured: plans will not stream weights on this machine\n", "disk");
}

static int print_profile_json(const kin_device_facts *f, kin_err *err) {
    json_t *json = kin_facts_file_device_to_json(f);
    if (!json) return kin_err_set(err, "the profile is not valid JSON");
    kin_app_write_json(json, 0);
    return 0;
}

static int profile(const profile_options *o, kin_err *err) {
    char home_cache[1000];
    kin_devices devices;
    kin_device_facts facts;
    kin_device_options d = kin_device_options_defaults();
    d.n_threads = o->n_threads;
    d.gpu_if_any = !o->no_gpu;
    d.repack = !o->no_repack;
    d.stop = &kin_app_stop;
    const char *dir = o->cache_dir ? o->cache_dir : kin_session_default_cache(home_cache, sizeof home_cache);
    if (kin_devices_open(&devices, &d, err) != 0) return KIN_FAIL;
    int rc = kin_profile_obtain(&facts, &devices, o->name, dir, o->refresh, &kin_app_console, err);
    if (rc == 0 && o->json) rc = print_profile_json(&facts, err);
    if (rc == 0 && !o->json) print_profile_text(&facts, &devices);
    kin_devices_close(&devices);
    return rc;
}

static int command_profile(int argc, char **argv) {
    profile_options o;
    kin_option table[N_PROFILE_OPTIONS];
    kin_err err;
    fill_profile_table(&o, table);
    if (kin_options_parse((kin_option_tables){table}, argc, argv, NULL, &err) != 0) return kin_app_usage("profile", &err);
    return profile(&o, &err) == 0 ? KIN_EXIT_OK : kin_app_fail(&err);
}

static void with_profile_options(void (*use)(kin_option_tables tables, void *user), void *user) {
    profile_options o;
    kin_option table[N_PROFILE_OPTIONS];
    fill_profile_table(&o, table);
    use((kin_option_tables){table}, user);
}

const kin_command kin_command_profile = {
    .name = "profile",
    .args = "[--no-gpu] [--threads N] [--refresh] [--json]",
    .summary = "measure the speed of this machine",
    .help =
        "GB/s: weights read in matrix-vector products, as for each token. GFLOP/s: matrix products with the batch of a prompt.\n"
        "The result is stored and used for plans; memory is read anew each time. --json prints the format of a facts file.",
    .run = command_profile,
    .options = with_profile_options,
};
