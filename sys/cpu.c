#include "sys/cpu.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#ifdef __APPLE__

#include <sys/sysctl.h>

int kin_cpu_n_cores(void) {
    int n = 0;
    size_t len = sizeof n;
    // The performance cores: a matrix product waits for its slowest thread.
    if (sysctlbyname("hw.perflevel0.physicalcpu", &n, &len, NULL, 0) != 0) {
        sysctlbyname("hw.physicalcpu", &n, &len, NULL, 0);
    }
    return n > 0 ? n : 1;
}

#else

#include <sched.h>

// Whether `cpu` is the first of its core's hyper-threads: the first number of the list of siblings is its own.
static bool first_of_core(int cpu) {
    char path[128];
    snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%d/topology/thread_siblings_list", cpu);
    FILE *f = fopen(path, "re");
    if (!f) return true;
    int first = cpu;
    if (fscanf(f, "%d", &first) != 1) first = cpu;
    fclose(f);
    return first == cpu;
}

// Quota over period of a cgroup that limits CPU time, rounded up; `n` if there is none.
static int apply_quota(int n) {
    long quota = -1, period = 0;
    FILE *f = fopen("/sys/fs/cgroup/cpu.max", "re");
    if (f) {
        if (fscanf(f, "%ld %ld", &quota, &period) != 2) quota = -1;
        fclose(f);
    }
    if (quota <= 0 || period <= 0) return n;
    long whole = (quota + period - 1) / period;
    return whole < n ? (int)whole : n;
}

int kin_cpu_n_cores(void) {
    cpu_set_t allowed;
    int n_all = 0, n_first = 0;
    if (sched_getaffinity(0, sizeof allowed, &allowed) != 0) return 1;
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++) {
        if (!CPU_ISSET(cpu, &allowed)) continue;
        n_all++;
        n_first += first_of_core(cpu);
    }
    int n = n_first > 0 ? n_first : n_all;
    n = apply_quota(n);
    return n > 0 ? n : 1;
}

#endif
