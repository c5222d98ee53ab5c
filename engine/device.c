#include "engine/device.h"

#include <dlfcn.h>
#include <glob.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "sys/cpu.h"

static void forward_log(enum ggml_log_level level, const char *text, void *user) {
    (void)user;
    char line[512];
    snprintf(line, sizeof line, "%s", text);
    line[strcspn(line, "\n")] = '\0';
    if (!line[0]) return;
    kin_log(level >= GGML_LOG_LEVEL_ERROR && level != GGML_LOG_LEVEL_CONT ? KIN_LOG_WARN : KIN_LOG_DEBUG, "ggml: %s", line);
}

static void load_all(void) {
    ggml_log_set(forward_log, NULL);
    ggml_backend_load_all();
}

// ggml's CPU variants are modules, each with a score of how well it suits this machine (0: not at all). load_all() would query
// them too, but it also starts every GPU driver: 100 ms and 50 MB or more that a run without a GPU need not pay.
static void load_cpu(void) {
    ggml_log_set(forward_log, NULL);
    if (ggml_backend_dev_by_type(GGML_BACKEND_DEVICE_TYPE_CPU)) return; // built into ggml on this platform

    glob_t found = {0};
    const char *best = NULL;
    int best_score = 0;
    if (glob(KIN_GGML_BACKEND_DIR "/libggml-cpu-*", 0, NULL, &found) == 0) {
        for (size_t i = 0; i < found.gl_pathc; i++) {
            void *module = dlopen(found.gl_pathv[i], RTLD_NOW | RTLD_LOCAL);
            int (*score_of)(void) = module ? (int (*)(void))dlsym(module, "ggml_backend_score") : NULL;
            int score = score_of ? score_of() : 0;
            if (score > best_score) {
                best_score = score;
                best = found.gl_pathv[i];
            }
            if (module) dlclose(module);
        }
    }
    if (!best || !ggml_backend_load(best)) ggml_backend_load_all();
    globfree(&found);
}

// Without a GPU's device file, only Vulkan's software renderer could be found, which needs LLVM: 45 MB that stay in memory while
// weights are evicted and read again. It can still be named explicitly, as for any ggml program.
static bool may_have_gpu(void) {
#ifdef __linux__
    static const char *const nodes[] = {
        "/dev/dri/renderD*", "/dev/nvidiactl",       // Mesa and NVIDIA
        "/dev/kfd",          "/dev/dxg",             // ROCm, Windows' subsystem
        "/dev/kgsl-3d0",     "/dev/mali0",           // phones
        "/dev/nvhost-gpu",   "/dev/nvhost-ctrl-gpu", // Jetson
        "/sys/module/nvidia"                         // its device files are created when a program first asks for them
    };
    const char *named = getenv("GGML_VK_VISIBLE_DEVICES");
    bool found = named && named[0];
    for (size_t i = 0; i < sizeof nodes / sizeof *nodes && !found; i++) {
        glob_t g = {0};
        found = glob(nodes[i], GLOB_NOSORT, NULL, &g) == 0;
        globfree(&g);
    }
    return found;
#else
    return true;
#endif
}

kin_device_options kin_device_options_defaults(void) {
    return (kin_device_options){.repack = true};
}

static void *device_proc(ggml_backend_dev_t dev, const char *name) {
    return ggml_backend_reg_get_proc_address(ggml_backend_dev_backend_reg(dev), name);
}

static bool stop_requested(void *user) {
    const kin_device_options *o = user;
    if (o->n_signs) atomic_fetch_add_explicit(o->n_signs, 1, memory_order_relaxed);
    return atomic_load_explicit(o->stop, memory_order_relaxed);
}

// Set by the lab's preload, to compute at the pace of a slower processor (lab/preload/slow_compute.c); no other program has it.
#define PACE_FUNCTION "kin_lab_compute"

static int open_team(kin_devices *ds, kin_err *err) {
    kin_compute *c = &ds->cpu.compute;
    if (!ds->cpu.kernels) return 0;
    c->repeats_small = ds->options.repeats_small;
    if (kin_team_open(&c->team, ds->n_threads, err) != 0) return KIN_FAIL;
    if (ds->options.stop) {
        c->stops = stop_requested;
        c->stops_user = &ds->options;
    }
    *(void **)&c->pace = dlsym(RTLD_DEFAULT, PACE_FUNCTION);
    return 0;
}

static int open_device(kin_device *d, ggml_backend_dev_t dev, kin_err *err) {
    d->dev = dev;
    d->backend = ggml_backend_dev_init(dev, NULL);
    if (!d->backend) return kin_err_set(err, "cannot open the device %s", ggml_backend_dev_name(dev));
    d->buft = ggml_backend_dev_buffer_type(dev);
    d->is_gpu = ggml_backend_dev_type(dev) != GGML_BACKEND_DEVICE_TYPE_CPU;
    snprintf(d->name, sizeof d->name, "%s", ggml_backend_dev_name(dev));
    return 0;
}

static ggml_backend_buffer_type_t find_repack_buft(ggml_backend_dev_t dev) {
    ggml_backend_dev_get_extra_bufts_t get =
        (ggml_backend_dev_get_extra_bufts_t)device_proc(dev, "ggml_backend_dev_get_extra_bufts");
    ggml_backend_buffer_type_t *bufts = get ? get(dev) : NULL;
    for (; bufts && *bufts; bufts++) {
        if (strcmp(ggml_backend_buft_name(*bufts), "CPU_REPACK") == 0) return *bufts;
    }
    return NULL;
}

static void describe_variant(kin_devices *ds) {
    size_t n = sizeof ds->cpu_variant;
    int used = snprintf(ds->cpu_variant, n, "ggml %s", ggml_version());
    ggml_backend_get_features_t get = (ggml_backend_get_features_t)device_proc(ds->cpu.dev, "ggml_backend_get_features");
    for (struct ggml_backend_feature *f = get ? get(ggml_backend_dev_backend_reg(ds->cpu.dev)) : NULL; f && f->name; f++) {
        if (used > 0 && (size_t)used < n) used += snprintf(ds->cpu_variant + used, n - (size_t)used, " %s=%s", f->name, f->value);
    }
}

// The portable C kernels are used only when named, for comparison: on a CPU without a supported vector unit ggml's kernels are
// four times as fast.
static int choose_kernels(const kin_kernels **out, kin_err *err) {
    const char *named = getenv("KIN_CPU");
    const kin_kernels *k = kin_kernels_choose(err);
    if (!k) return KIN_FAIL;
    *out = (named && named[0]) || strcmp(k->name, "scalar") != 0 ? k : NULL;
    return 0;
}

bool kin_device_has_kernels(void) {
    const kin_kernels *k;
    kin_err err;
    return choose_kernels(&k, &err) == 0 && k;
}

static int open_cpu(kin_devices *ds, const kin_device_options *o, kin_err *err) {
    ggml_backend_dev_t dev = ggml_backend_dev_by_type(GGML_BACKEND_DEVICE_TYPE_CPU);
    if (!dev) return kin_err_set(err, "ggml has no CPU backend; its package may be incomplete");
    if (open_device(&ds->cpu, dev, err) != 0) return KIN_FAIL;

    ds->n_threads = o->n_threads > 0 ? o->n_threads : kin_cpu_n_cores();
    ggml_backend_set_n_threads_t set_threads = (ggml_backend_set_n_threads_t)device_proc(dev, "ggml_backend_set_n_threads");
    if (set_threads) set_threads(ds->cpu.backend, ds->n_threads);
    ggml_backend_set_abort_callback_t set_abort =
        (ggml_backend_set_abort_callback_t)device_proc(dev, "ggml_backend_set_abort_callback");
    if (set_abort && o->stop) set_abort(ds->cpu.backend, stop_requested, &ds->options);
    if (o->repack) ds->cpu.repack_buft = find_repack_buft(dev);
    if (!o->ggml_kernels && choose_kernels(&ds->cpu.kernels, err) != 0) return KIN_FAIL;
    ds->cpu.packs = o->repack;
    describe_variant(ds);
    return open_team(ds, err);
}

static int open_gpu(kin_devices *ds, kin_err *err) {
    ggml_backend_dev_t dev = ggml_backend_dev_by_type(GGML_BACKEND_DEVICE_TYPE_GPU);
    if (!dev) dev = ggml_backend_dev_by_type(GGML_BACKEND_DEVICE_TYPE_IGPU);
    if (!dev) return kin_err_set(err, "no GPU found (ggml sees none; check that the package of its GPU backend is installed)");
    return open_device(&ds->gpu, dev, err);
}

int kin_devices_open(kin_devices *ds, const kin_device_options *o, kin_err *err) {
    static pthread_once_t cpu_once = PTHREAD_ONCE_INIT, all_once = PTHREAD_ONCE_INIT;
    bool wants_gpu = o->gpu || (o->gpu_if_any && may_have_gpu());
    if (wants_gpu)
        pthread_once(&all_once, load_all);
    else
        pthread_once(&cpu_once, load_cpu);

    *ds = (kin_devices){.options = *o};
    bool ok = open_cpu(ds, o, err) == 0;
    if (ok && wants_gpu) ok = open_gpu(ds, err) == 0 || !o->gpu;
    if (!ok) kin_devices_close(ds);
    return ok ? 0 : KIN_FAIL;
}

void kin_devices_close_gpu(kin_devices *ds) {
    if (ds->gpu.backend) ggml_backend_free(ds->gpu.backend);
    ds->gpu = (kin_device){0};
}

void kin_devices_close(kin_devices *ds) {
    if (!ds) return;
    kin_devices_close_gpu(ds);
    kin_team_close(ds->cpu.compute.team);
    if (ds->cpu.backend) ggml_backend_free(ds->cpu.backend);
    *ds = (kin_devices){0};
}

static bool can_repack(const kin_device *cpu, int type, const int64_t ne[3]) {
    if (!cpu->repack_buft || ne[1] == 1) return false;
    // ggml decides by an operation whose weight is in a buffer of that kind; an empty buffer suffices.
    struct ggml_init_params params = {.mem_size = 8 * ggml_tensor_overhead(), .no_alloc = true};
    struct ggml_context *ctx = ggml_init(params);
    ggml_backend_buffer_t empty = ggml_backend_buft_alloc_buffer(cpu->repack_buft, 0);
    bool experts = ne[2] > 1;

    struct ggml_tensor *w = ggml_new_tensor_3d(ctx, (enum ggml_type)type, ne[0], ne[1], ne[2]);
    struct ggml_tensor *x = ggml_new_tensor_2d(ctx, GGML_TYPE_F32, ne[0], 1);
    struct ggml_tensor *ids = ggml_new_tensor_2d(ctx, GGML_TYPE_I32, 1, 1);
    w->buffer = empty;
    struct ggml_tensor *op =
        experts ? ggml_mul_mat_id(ctx, w, ggml_reshape_3d(ctx, x, ne[0], 1, 1), ids) : ggml_mul_mat(ctx, w, x);
    bool can = ggml_backend_dev_supports_op(cpu->dev, op);

    ggml_backend_buffer_free(empty);
    ggml_free(ctx);
    return can;
}

kin_layout kin_device_layout(const kin_device *cpu, int type, const int64_t ne[3]) {
    if (!cpu->kernels) return can_repack(cpu, type, ne) ? KIN_LAYOUT_REPACK : KIN_LAYOUT_PLAIN;
    return kin_kernel_packs(type) && cpu->packs && ne[1] >= KIN_PANEL_ROWS ? KIN_LAYOUT_PANELS : KIN_LAYOUT_PLAIN;
}
