#include "sys/quota.h"

#include <stdio.h>
#include <string.h>

// "50000 100000" or "max 100000", in microseconds.
static void apply_v2(kin_quota *q, const char *dir) {
    char path[1100];
    double quota, period;
    snprintf(path, sizeof path, "%s/cpu.max", dir);
    FILE *f = fopen(path, "re");
    if (!f) return;
    if (fscanf(f, "%lf %lf", &quota, &period) == 2 && quota > 0 && period > 0) {
        if (q->cores == 0 || quota / period < q->cores) q->cores = quota / period;
        if (period / 1e6 > q->period_s) q->period_s = period / 1e6;
    }
    fclose(f);
}

// One number; -1 where there is none.
static double read_number(const char *dir, const char *file) {
    char path[1100];
    double value;
    snprintf(path, sizeof path, "%s/%s", dir, file);
    FILE *f = fopen(path, "re");
    if (!f) return -1;
    if (fscanf(f, "%lf", &value) != 1) value = -1;
    fclose(f);
    return value;
}

static void apply_v1(kin_quota *q, const char *dir) {
    double quota = read_number(dir, "cpu.cfs_quota_us"), period = read_number(dir, "cpu.cfs_period_us");
    if (quota <= 0 || period <= 0) return;
    if (q->cores == 0 || quota / period < q->cores) q->cores = quota / period;
    if (period / 1e6 > q->period_s) q->period_s = period / 1e6;
}

// "cpu" among "cpu,cpuacct".
static int lists_cpu(const char *controllers) {
    char list[256];
    snprintf(list, sizeof list, ",%s,", controllers);
    return strstr(list, ",cpu,") != NULL;
}

// All groups from `path` (with its leading /) up to the root.
static void walk(kin_quota *q, char *path, const char *root, void (*apply)(kin_quota *, const char *)) {
    char dir[1024];
    for (char *end = path + strlen(path);; end = strrchr(path, '/')) {
        *end = '\0';
        snprintf(dir, sizeof dir, "%s%s", root, path);
        apply(q, dir);
        if (end == path) return;
    }
}

kin_quota kin_quota_read(void) {
    kin_quota q = {0};
    char line[1024];
    FILE *f = fopen("/proc/self/cgroup", "re");
    while (f && fgets(line, sizeof line, f)) { // "4:cpu,cpuacct:/a/b", "0::/a/b"
        line[strcspn(line, "\n")] = '\0';
        char *controllers = strchr(line, ':'), *path = controllers ? strchr(controllers + 1, ':') : NULL;
        if (!path || path[1] != '/') continue;
        *path++ = '\0';
        controllers++;
        if (*controllers == '\0')
            walk(&q, path, "/sys/fs/cgroup", apply_v2);
        else if (lists_cpu(controllers))
            walk(&q, path, "/sys/fs/cgroup/cpu", apply_v1);
    }
    if (f) fclose(f);
    apply_v2(&q, "/sys/fs/cgroup"); // a container sees its own group as the root
    return q;
}
