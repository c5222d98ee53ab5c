// CPU time limits: the share of each period that control groups grant this process.
#pragma once

typedef struct kin_quota {
    double cores;    // in processors; 0: no limit
    double period_s; // the longest period over which it is enforced
} kin_quota;

// Returns the tightest limit of this process's group and its ancestors (v1 "cpu", and v2, wherever they are mounted). Never
// fails: a limit that cannot be read counts as none.
kin_quota kin_quota_read(void);

// The same with another root (sys/cgroup.h). For tests.
kin_quota kin_quota_read_below(const char *root);
