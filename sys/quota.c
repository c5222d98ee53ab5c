#include "sys/quota.h"

#include "sys/cgroup.h"

static void apply_group(const char *dir, bool is_v2, void *user) {
    kin_quota *q = user;
    double us[2] = {0, 0}; // quota and period. v2: "50000 100000" or "max 100000"; v1: -1 without a limit
    if (is_v2) {
        kin_cgroup_numbers(dir, "cpu.max", us);
    } else {
        kin_cgroup_numbers(dir, "cpu.cfs_period_us", us);
        us[1] = us[0];
        if (kin_cgroup_numbers(dir, "cpu.cfs_quota_us", us) != 1) return;
    }
    if (us[0] <= 0 || us[1] <= 0) return;
    if (q->cores == 0 || us[0] / us[1] < q->cores) q->cores = us[0] / us[1];
    if (us[1] / 1e6 > q->period_s) q->period_s = us[1] / 1e6;
}

kin_quota kin_quota_read_below(const char *root) {
    kin_quota q = {0};
    kin_cgroup_walk(root, "cpu", apply_group, &q);
    return q;
}

kin_quota kin_quota_read(void) {
    return kin_quota_read_below("");
}
