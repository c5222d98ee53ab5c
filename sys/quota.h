// Limits of CPU time: what control groups allow this process in each period.
#pragma once

typedef struct kin_quota {
    double cores;    // processors' worth of time; 0: no limit
    double period_s; // the longest slice in which it is counted
} kin_quota;

// The tightest limit of this process's group and those above it (v1 "cpu", and v2, wherever they are mounted). Never fails:
// what cannot be read is no limit.
kin_quota kin_quota_read(void);

// The same below another root (sys/cgroup.h). For tests.
kin_quota kin_quota_read_below(const char *root);
