#include "sys/quota.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

enum { DIR_BYTES = 1024, PATH_BYTES = DIR_BYTES + 1024, LINE_BYTES = 4096 };

static void apply(kin_quota *q, double quota_us, double period_us) {
    if (quota_us <= 0 || period_us <= 0) return;
    if (q->cores == 0 || quota_us / period_us < q->cores) q->cores = quota_us / period_us;
    if (period_us / 1e6 > q->period_s) q->period_s = period_us / 1e6;
}

// "50000 100000" or "max 100000", in microseconds.
static void apply_v2(kin_quota *q, const char *dir) {
    char path[PATH_BYTES];
    double quota, period;
    snprintf(path, sizeof path, "%s/cpu.max", dir);
    FILE *f = fopen(path, "re");
    if (!f) return;
    if (fscanf(f, "%lf %lf", &quota, &period) == 2) apply(q, quota, period);
    fclose(f);
}

// One number; -1 where there is none.
static double read_number(const char *dir, const char *file) {
    char path[PATH_BYTES];
    double value;
    snprintf(path, sizeof path, "%s/%s", dir, file);
    FILE *f = fopen(path, "re");
    if (!f) return -1;
    if (fscanf(f, "%lf", &value) != 1) value = -1;
    fclose(f);
    return value;
}

static void apply_v1(kin_quota *q, const char *dir) {
    apply(q, read_number(dir, "cpu.cfs_quota_us"), read_number(dir, "cpu.cfs_period_us"));
}

// "cpu" among "cpu,cpuacct".
static bool lists_cpu(const char *list) {
    char between[LINE_BYTES];
    snprintf(between, sizeof between, ",%s,", list);
    return strstr(between, ",cpu,") != NULL;
}

// Where the groups are mounted: v2, or the v1 controller "cpu". Empty: nowhere.
static void find_mount(const char *root, bool v2, char dir[DIR_BYTES]) {
    char path[PATH_BYTES], line[LINE_BYTES], at[512], type[64], options[1024];
    dir[0] = '\0';
    snprintf(path, sizeof path, "%s/proc/self/mounts", root);
    FILE *f = fopen(path, "re");
    while (f && fgets(line, sizeof line, f)) { // "cgroup /sys/fs/cgroup/cpu,cpuacct cgroup rw,relatime,cpu,cpuacct 0 0"
        if (sscanf(line, "%*s %511s %63s %1023s", at, type, options) != 3) continue;
        bool is_it = v2 ? strcmp(type, "cgroup2") == 0 : strcmp(type, "cgroup") == 0 && lists_cpu(options);
        if (!is_it) continue;
        snprintf(dir, DIR_BYTES, "%.400s%s", root, at);
        break;
    }
    if (f) fclose(f);
}

// The group `path` (with its leading /) and all above it. A container may see its own group as the root, whatever it is called.
static void walk(kin_quota *q, const char *mount, char *path, void (*apply_group)(kin_quota *, const char *)) {
    char dir[DIR_BYTES];
    for (char *end = path + strlen(path); end; end = strrchr(path, '/')) {
        *end = '\0';
        if (snprintf(dir, sizeof dir, "%s%s", mount, path) < DIR_BYTES) apply_group(q, dir);
    }
}

kin_quota kin_quota_read_below(const char *root) {
    kin_quota q = {0};
    char line[LINE_BYTES], path[PATH_BYTES], v1[DIR_BYTES], v2[DIR_BYTES];
    find_mount(root, false, v1);
    find_mount(root, true, v2);
    snprintf(path, sizeof path, "%s/proc/self/cgroup", root);
    FILE *f = fopen(path, "re");
    while (f && fgets(line, sizeof line, f)) { // "4:cpu,cpuacct:/a/b", "0::/a/b"
        line[strcspn(line, "\n")] = '\0';
        char *controllers = strchr(line, ':'), *group = controllers ? strchr(controllers + 1, ':') : NULL;
        if (!group) continue;
        *group++ = '\0';
        controllers++;
        if (*controllers == '\0' && v2[0])
            walk(&q, v2, group, apply_v2);
        else if (lists_cpu(controllers) && v1[0])
            walk(&q, v1, group, apply_v1);
    }
    if (f) fclose(f);
    return q;
}

kin_quota kin_quota_read(void) {
    return kin_quota_read_below("");
}
