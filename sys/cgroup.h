// Control groups: visits the group of this process and all its ancestors, wherever they are mounted (v1 and v2). A limit may be
// set on any level.
//
// A container may see its own group as the root, whatever its name. Thread: any. No state is kept between calls.
#pragma once

#include <stdbool.h>

// Called for one group: its folder, and whether it is v2, where files have other names.
typedef void kin_cgroup_visit(const char *dir, bool is_v2, void *user);

// Visits the groups from this process's up to the root. controller: "cpu" or "memory", used for v1. Unreadable groups are
// skipped. root: "" or, for tests, a folder with ROOT/proc/self/cgroup, ROOT/proc/self/mounts and the groups themselves.
void kin_cgroup_walk(const char *root, const char *controller, kin_cgroup_visit *visit, void *user);

// Parses at most two numbers at the beginning of a group's file; returns how many were found ("max" is not a number).
int kin_cgroup_numbers(const char *dir, const char *file, double numbers[2]);
