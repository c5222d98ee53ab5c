#include "sys/memory.h"

#ifdef __GLIBC__
#include <malloc.h>
#endif
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "sys/cgroup.h"
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

static void apply_cgroups(const char *root, kin_memory *mem) {
    (void)root, (void)mem;
}

#else

enum { KERNEL_STACK_BYTES = 16 << 10 }; // per thread, on Linux on x86-64 and arm64

// Returns the number after `key` in a file of "key value" lines, in the file's unit; `fallback` if absent.
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

static kin_memory machine_memory(void) {
    kin_memory mem = {0};
    mem.total = (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);
    mem.kernel = read_keyed("/proc/self/status", "VmPTE:", 0) * 1024;
    mem.kernel += read_keyed("/proc/self/status", "Threads:", 0) * KERNEL_STACK_BYTES;
    mem.available = read_keyed("/proc/meminfo", "MemAvailable:", mem.total / 1024) * 1024;
    // Rings are shared memory; a ring is counted up to twice
    uint64_t shared = read_keyed("/proc/self/status", "RssShmem:", 0) * 1024;
    mem.rings = shared < kin_ring_bytes() ? shared : kin_ring_bytes();
    mem.own = read_keyed("/proc/self/status", "RssAnon:", 0) * 1024 + mem.rings;
    mem.resident = read_keyed("/proc/self/status", "VmRSS:", 0) * 1024;
    return mem;
}

// Applies one cgroup's limit and usage. Its usage includes page cache, which the kernel can reclaim, so that counts as available.
static void apply_cgroup(const char *dir, bool is_v2, void *user) {
    kin_memory *mem = user;
    char stat[1100];
    double limit[2], usage[2] = {0};
    if (kin_cgroup_numbers(dir, is_v2 ? "memory.max" : "memory.limit_in_bytes", limit) == 0) return;
    if (limit[0] >= (double)mem->total) return;
    kin_cgroup_numbers(dir, is_v2 ? "memory.current" : "memory.usage_in_bytes", usage);
    snprintf(stat, sizeof stat, "%s/memory.stat", dir);
    double file = (double)read_keyed(stat, is_v2 ? "file " : "total_cache ", 0);
    double shared = (double)read_keyed(stat, is_v2 ? "shmem " : "total_shmem ", 0); // counted as file, too
    double used = fmax(usage[0] - fmax(file - shared, 0), 0), left = fmax(limit[0] - used, 0);
    mem->total = (uint64_t)limit[0];
    if (left < (double)mem->available) mem->available = (uint64_t)left;
}

static void apply_cgroups(const char *root, kin_memory *mem) {
    kin_cgroup_walk(root, "memory", apply_cgroup, mem);
}

#endif

kin_memory kin_memory_read_below(const char *root) {
    kin_memory mem = machine_memory();
    apply_cgroups(root, &mem);
    return mem;
}

kin_memory kin_memory_read(void) {
    return kin_memory_read_below("");
}

void kin_memory_trim(void) {
#ifdef __GLIBC__
    malloc_trim(0);
#endif
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

// getrusage's peak includes the program that executed this one, and cannot be reset.
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
