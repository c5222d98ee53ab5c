#include "sys/cpu.h"

#include <stdbool.h>
#include <stdio.h>
#include <unistd.h>

#ifdef __APPLE__

#include <sys/sysctl.h>

int kin_cpu_n_cores(void) {
    int n = 0;
    size_t len = sizeof n;
    // Counts performance cores only: a matrix product waits for its slowest thread.
    if (sysctlbyname("hw.perflevel0.physicalcpu", &n, &len, NULL, 0) != 0) {
        sysctlbyname("hw.physicalcpu", &n, &len, NULL, 0);
    }
    return n > 0 ? n : 1;
}

int kin_cpu_n_threads(void) {
    long n = sysconf(_SC_NPROCESSORS_ONLN);
    return n > 0 ? (int)n : 1;
}

#else

#include <math.h>
#include <sched.h>

#include "sys/quota.h"

// True if `cpu` is the first of its core's hyper-threads: the list of siblings begins with it.
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

int kin_cpu_n_threads(void) {
    cpu_set_t allowed;
    return sched_getaffinity(0, sizeof allowed, &allowed) == 0 && CPU_COUNT(&allowed) > 0 ? CPU_COUNT(&allowed) : 1;
}

// With more threads than the quota allows, some are throttled while the others wait for them: 187 ms per token with 2 threads in
// a quota of one core, 83 with 1.
static int within_quota(int n) {
    double cores = ceil(kin_quota_read().cores);
    return cores > 0 && cores < n ? (int)cores : n;
}

int kin_cpu_n_cores(void) {
    cpu_set_t allowed;
    int n = 0;
    if (sched_getaffinity(0, sizeof allowed, &allowed) != 0) return 1;
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++) n += CPU_ISSET(cpu, &allowed) && first_of_core(cpu);
    return within_quota(n > 0 ? n : kin_cpu_n_threads());
}

#endif
