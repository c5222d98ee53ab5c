#include "cluster/doctor/doctor_machine.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/units.h"
#include "engine/device.h"
#include "sys/cgroup.h"
#include "sys/cpu.h"
#include "sys/disk.h"
#include "sys/memory.h"
#include "sys/quota.h"
#include "sys/whole_file.h"

enum { DISK_BYTES = 32 << 20, FEW_FILES = 1024 };

static const uint64_t LITTLE_MEMORY = 256 << 20, LITTLE_ROOM = UINT64_C(4) << 30;
static const double SLOW_DISK = 0.5e9; // bytes/s: two seconds for each GB that is streamed per token

static bool is_there(const kin_doctor_options *o, const char *path) {
    char buf[KIN_DOCTOR_PATH];
    return access(kin_doctor_path(o, path, buf), F_OK) == 0;
}

// ---- limits of control groups

typedef struct limited {
    const char *v1, *v2; // file names
    char path[KIN_DOCTOR_PATH];
    const char *unlimited; // value that means no limit
    double least;
} limited;

static void visit_group(const char *dir, bool is_v2, void *user) {
    limited *l = user;
    double n[2];
    const char *file = is_v2 ? l->v2 : l->v1;
    if (kin_cgroup_numbers(dir, file, n) < 1 || n[0] < 0 || (l->path[0] && n[0] >= l->least)) return;
    l->least = n[0];
    l->unlimited = is_v2 ? "max" : "-1";
    snprintf(l->path, sizeof l->path, "%.900s/%s", dir, file);
}

// Adds the command that lifts the limit; for a container it must be run outside.
static void mend_limit(kin_finding *f, const kin_doctor_options *o, const char *controller, limited *l, const char *docker) {
    bool is_container = is_there(o, "/.dockerenv") || is_there(o, "/run/.containerenv");
    kin_cgroup_walk(o->root, controller, visit_group, l);
    if (is_container || !l->path[0])
        kin_doctor_mend(f, "docker update %s CONTAINER", docker);
    else
        kin_doctor_mend(f, "echo %s | sudo tee %.180s", l->unlimited, l->path);
}

// ---- parts

void kin_doctor_processor(kin_doctor_report *report, const kin_doctor_options *o) {
    kin_err err;
    const kin_kernels *kernels = kin_kernels_choose(&err);
    kin_quota quota = kin_quota_read_below(o->root);
    int n_cores = kin_cpu_n_cores(), n_threads = kin_cpu_n_threads();
    limited l = {.v1 = "cpu.cfs_quota_us", .v2 = "cpu.max"};
    if (!kernels) {
        kin_doctor_add(report, KIN_FINDING_PROBLEM, "processor", "%s", err.text);
        return;
    }
    if (strcmp(kernels->name, "scalar") == 0)
        kin_doctor_add(report, KIN_FINDING_NOTE, "processor",
                       "no supported vector unit (AVX2, AVX-512, NEON): computing is slow");
    else
        kin_doctor_add(report, KIN_FINDING_OK, "processor", "computes on %d core%s with %s", n_cores, n_cores == 1 ? "" : "s",
                       kernels->name);
    if (quota.cores <= 0 || quota.cores >= n_threads) return;
    mend_limit(kin_doctor_add(report, KIN_FINDING_NOTE, "processor", "a control group limits kin to %.1f of %d processors",
                              quota.cores, n_threads),
               o, "cpu", &l, "--cpus 0");
}

void kin_doctor_memory(kin_doctor_report *report, const kin_doctor_options *o) {
    char a[32], b[32];
    kin_memory mem = kin_memory_read_below(o->root);
    uint64_t machine = (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);
    limited l = {.v1 = "memory.limit_in_bytes", .v2 = "memory.max"};
    kin_size_format(mem.available, a, sizeof a);
    if (mem.available < LITTLE_MEMORY)
        kin_doctor_mend(kin_doctor_add(report, KIN_FINDING_NOTE, "memory",
                                       "only %s are free: weights will be streamed from disk for every token", a),
                        "ps aux --sort=-rss | head");
    else
        kin_doctor_add(report, KIN_FINDING_OK, "memory",
                       "%s of %s are free; what a model needs beyond that is streamed from the disk", a,
                       kin_size_format(mem.total, b, sizeof b));
    if ((double)mem.total > 0.95 * (double)machine) return;
    kin_finding *f = kin_doctor_add(report, KIN_FINDING_NOTE, "memory", "a control group limits it to %s of the machine's %s",
                                    kin_size_format(mem.total, a, sizeof a), kin_size_format(machine, b, sizeof b));
    mend_limit(f, o, "memory", &l, "--memory SIZE --memory-swap -1");
}

// Returns the maker of the GPU that the system reports; NULL: none.
static const char *gpu_maker(const kin_doctor_options *o) {
    static const struct { const char *id, *name; } makers[] = {{"0x10de", "NVIDIA"}, {"0x1002", "AMD"}, {"0x8086", "Intel"}};
    char path[KIN_DOCTOR_PATH];
    uint8_t *bytes;
    size_t n;
    if (is_there(o, "/dev/nvidiactl")) return "NVIDIA";
    if (kin_whole_file_read(kin_doctor_path(o, "/sys/class/drm/renderD128/device/vendor", path), 64, &bytes, &n, NULL) != 0)
        return is_there(o, "/dev/dri/renderD128") ? "an unknown vendor" : NULL;
    const char *name = "an unknown vendor";
    for (size_t i = 0; i < sizeof makers / sizeof *makers; i++) {
        if (n >= 6 && memcmp(bytes, makers[i].id, 6) == 0) name = makers[i].name;
    }
    free(bytes);
    return name;
}

static void report_missing_gpu(kin_doctor_report *report, const kin_doctor_options *o, const char *maker) {
    char path[KIN_DOCTOR_PATH];
    const char *node = kin_doctor_path(o, "/dev/dri/renderD128", path);
    bool is_closed = access(node, F_OK) == 0 && access(node, R_OK | W_OK) != 0;
    if (is_closed)
        kin_doctor_mend(kin_doctor_add(report, KIN_FINDING_NOTE, "gpu",
                                       "there is a GPU of %s, but this user has no permission to use it", maker),
                        "sudo usermod -aG render \"$USER\", then log in again");
    else
        kin_doctor_mend(
            kin_doctor_add(report, KIN_FINDING_NOTE, "gpu", "there is a GPU of %s, but no ggml backend finds it", maker),
            "tools/setup --gpu");
}

void kin_doctor_gpu(kin_doctor_report *report, const kin_doctor_options *o) {
    kin_devices devices;
    kin_err err;
    kin_device_options d = kin_device_options_defaults();
    const char *maker = gpu_maker(o);
    d.gpu_if_any = true;
    if (kin_devices_open(&devices, &d, &err) != 0) {
        kin_doctor_mend(kin_doctor_add(report, KIN_FINDING_PROBLEM, "gpu", "%.300s", err.text), "kin run --gpu-layers 0 ...");
        return;
    }
    const char *title = devices.gpu.backend ? ggml_backend_dev_description(devices.gpu.dev) : "";
    if (strstr(title, "llvmpipe"))
        kin_doctor_mend(
            kin_doctor_add(report, KIN_FINDING_NOTE, "gpu", "%.100s: a software GPU, slower than the processor", title),
            "kin run --gpu-layers 0 ...");
    else if (title[0])
        kin_doctor_add(report, KIN_FINDING_OK, "gpu", "%.200s", title);
    else if (maker)
        report_missing_gpu(report, o, maker);
    else
        kin_doctor_add(report, KIN_FINDING_OK, "gpu", "no GPU: the processor computes all layers");
    kin_devices_close(&devices);
}

static void report_rate(kin_doctor_report *report, const kin_doctor_options *o) {
    kin_disk_speed speed;
    kin_err err;
    char a[32];
    struct statvfs fs;
    uint64_t room = statvfs(o->cache_dir, &fs) == 0 ? (uint64_t)fs.f_bavail * fs.f_frsize : 0;
    if (room < LITTLE_ROOM)
        kin_doctor_mend(kin_doctor_add(report, KIN_FINDING_NOTE, "disk",
                                       "only %s are free for prepacked and fetched weights in %.150s",
                                       kin_size_format(room, a, sizeof a), o->cache_dir),
                        "kin cache");
    if (kin_disk_measure(o->cache_dir, DISK_BYTES, o->stop, &speed, &err) != 0)
        kin_doctor_add(report, KIN_FINDING_NOTE, "disk", "cannot measure the disk: %.200s", err.text);
    else if (speed.bytes_s < SLOW_DISK)
        kin_doctor_mend(kin_doctor_add(report, KIN_FINDING_NOTE, "disk",
                                       "%.2f GB/s: a model larger than memory takes %.0f s per token for each GB "
                                       "beyond it",
                                       speed.bytes_s / 1e9, 1e9 / speed.bytes_s),
                        "kin run --cache /A/FASTER/DISK ...");
    else
        kin_doctor_add(report, KIN_FINDING_OK, "disk", "%.2f GB/s, %s free for weights in %.150s", speed.bytes_s / 1e9,
                       kin_size_format(room, a, sizeof a), o->cache_dir);
}

void kin_doctor_disk(kin_doctor_report *report, const kin_doctor_options *o) {
    kin_err err;
    if (!o->cache_dir) {
        kin_doctor_mend(kin_doctor_add(report, KIN_FINDING_NOTE, "disk",
                                       "there is no home directory for a cache: models are prepared at every start"),
                        "kin run --cache DIR ...");
        return;
    }
    if (kin_folder_make(o->cache_dir, &err) != 0) {
        kin_doctor_mend(kin_doctor_add(report, KIN_FINDING_PROBLEM, "disk", "cannot create the cache: %.200s", err.text),
                        "kin run --cache DIR ...");
    } else if (access(o->cache_dir, W_OK) != 0) {
        kin_doctor_mend(kin_doctor_add(report, KIN_FINDING_PROBLEM, "disk", "cannot write to the cache %.150s: %s", o->cache_dir,
                                       strerror(errno)),
                        "sudo chown -R \"$USER\" %.150s", o->cache_dir);
    } else {
        report_rate(report, o);
    }
}

void kin_doctor_files(kin_doctor_report *report, const kin_doctor_options *o) {
    struct rlimit limit;
    (void)o;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
    if (limit.rlim_max >= FEW_FILES)
        kin_doctor_add(report, KIN_FINDING_OK, "files", "the limit of open files is high enough");
    else
        kin_doctor_mend(kin_doctor_add(report, KIN_FINDING_NOTE, "files",
                                       "the limit of open files is %llu: kin serve accepts fewer clients",
                                       (unsigned long long)limit.rlim_max),
                        "sudo prlimit --pid $$ --nofile=4096:4096");
}
