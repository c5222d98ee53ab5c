#include "sys/memory.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "sys/ring.h"

#ifdef __APPLE__

#include <mach/mach.h>
#include <sys/sysctl.h>

static kin_memory machine_memory(void) {
    kin_memory mem = {0};
    size_t len = sizeof mem.total;
    sysctlbyname("hw.memsize", &mem.total, &len, NULL, 0);

    vm_statistics64_data_t vm;
    mach_msg_type_number_t count = HOST_VM_INFO64_COUNT;
    if (host_statistics64(mach_host_self(), HOST_VM_INFO64, (host_info64_t)&vm, &count) == KERN_SUCCESS) {
        uint64_t pages = (uint64_t)vm.free_count + vm.inactive_count + vm.purgeable_count;
        mem.available = pages * (uint64_t)sysconf(_SC_PAGESIZE);
    }
    task_vm_info_data_t task;
    count = TASK_VM_INFO_COUNT;
    if (task_info(mach_task_self(), TASK_VM_INFO, (task_info_t)&task, &count) == KERN_SUCCESS) {
        mem.own = task.phys_footprint;
        mem.resident = task.resident_size;
    }
    return mem;
}

static void apply_cgroups(kin_memory *mem) {
    (void)mem;
}

#else

// The number after `key` in a file of "key value" lines (units: as the file has them); `fallback` if absent.
static uint64_t read_keyed(const char *path, const char *key, uint64_t fallback) {
    FILE *f = fopen(path, "re");
    if (!f) return fallback;
    char line[256];
    size_t n = strlen(key);
    uint64_t value = fallback;
    while (fgets(line, sizeof line, f)) {
        if (strncmp(line, key, n) == 0) {
            value = strtoull(line + n, NULL, 10);
            break;
        }
    }
    fclose(f);
    return value;
}

// A file with one number; "max" or nothing readable: `fallback`.
static uint64_t read_number(const char *dir, const char *file, uint64_t fallback) {
    char path[1024], text[64] = "";
    snprintf(path, sizeof path, "%s/%s", dir, file);
    FILE *f = fopen(path, "re");
    if (!f) return fallback;
    char *got = fgets(text, sizeof text, f);
    fclose(f);
    if (!got || text[0] < '0' || text[0] > '9') return fallback;
    return strtoull(text, NULL, 10);
}

static kin_memory machine_memory(void) {
    kin_memory mem = {0};
    mem.total = (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);
    mem.available = read_keyed("/proc/meminfo", "MemAvailable:", mem.total / 1024) * 1024;
    uint64_t shared = read_keyed("/proc/self/status", "RssShmem:", 0) * 1024; // what a ring has shows up to twice
    mem.rings = shared < kin_ring_bytes() ? shared : kin_ring_bytes();
    mem.own = read_keyed("/proc/self/status", "RssAnon:", 0) * 1024 + mem.rings;
    mem.resident = read_keyed("/proc/self/status", "VmRSS:", 0) * 1024;
    return mem;
}

// One cgroup's limit and usage. Page cache counts as usage there, but the kernel gives it back: it is available.
static void apply_cgroup(kin_memory *mem, const char *dir, const char *limit_file, const char *usage_file, const char *file_key,
                         const char *shared_key) {
    char stat[1024];
    uint64_t limit = read_number(dir, limit_file, UINT64_MAX);
    if (limit >= mem->total) return;
    uint64_t usage = read_number(dir, usage_file, 0);
    snprintf(stat, sizeof stat, "%s/memory.stat", dir);
    uint64_t file = read_keyed(stat, file_key, 0), shared = read_keyed(stat, shared_key, 0); // shared memory counts as file
    file = file > shared ? file - shared : 0;
    uint64_t used = usage > file ? usage - file : 0;
    mem->total = limit;
    uint64_t left = limit > used ? limit - used : 0;
    if (left < mem->available) mem->available = left;
}

// Walks from this process's cgroup up to the root: a limit may sit on any level (v1 "memory" controller, and v2).
static void apply_cgroups(kin_memory *mem) {
    FILE *f = fopen("/proc/self/cgroup", "re");
    if (!f) return;
    char line[512];
    while (fgets(line, sizeof line, f)) {
        line[strcspn(line, "\n")] = '\0';
        char *controllers = strchr(line, ':');
        char *path = controllers ? strchr(controllers + 1, ':') : NULL;
        if (!path) continue;
        *path++ = '\0';
        bool v2 = controllers[1] == '\0';
        if (!v2 && !strstr(controllers + 1, "memory")) continue;
        for (;;) {
            char dir[700];
            snprintf(dir, sizeof dir, v2 ? "/sys/fs/cgroup%s" : "/sys/fs/cgroup/memory%s", path);
            if (v2)
                apply_cgroup(mem, dir, "memory.max", "memory.current", "file ", "shmem ");
            else
                apply_cgroup(mem, dir, "memory.limit_in_bytes", "memory.usage_in_bytes", "total_cache ", "total_shmem ");
            char *slash = strrchr(path, '/');
            if (!slash || path[1] == '\0') break;
            slash[slash == path] = '\0';
        }
    }
    fclose(f);
}

#endif

kin_memory kin_memory_read(void) {
    kin_memory mem = machine_memory();
    apply_cgroups(&mem);
    return mem;
}

#ifdef __APPLE__

uint64_t kin_memory_peak(void) {
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return (uint64_t)usage.ru_maxrss;
}

bool kin_memory_reset_peak(void) {
    return false;
}

#else

// getrusage's peak is that of whoever started this program, too, and cannot be reset.
uint64_t kin_memory_peak(void) {
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return read_keyed("/proc/self/status", "VmHWM:", (uint64_t)usage.ru_maxrss) * 1024;
}

bool kin_memory_reset_peak(void) {
    FILE *f = fopen("/proc/self/clear_refs", "we");
    if (!f) return false;
    bool ok = fputs("5", f) >= 0;
    return fclose(f) == 0 && ok;
}

#endif
