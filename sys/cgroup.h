// Control groups: the group of this process and all above it, wherever they are mounted (v1 and v2). A limit may sit on any
// level.
//
// A container may see its own group as the root, whatever it is called. Thread: any. Nothing is kept between calls.
#pragma once

#include <stdbool.h>

// One group: its folder, and whether it is of v2 (its files have other names there).
typedef void kin_cgroup_visit(const char *dir, bool is_v2, void *user);

// From this process's group up to the root. controller: of v1, "cpu" or "memory". What cannot be read is not visited.
// root: "" or, for tests, a folder with ROOT/proc/self/cgroup, ROOT/proc/self/mounts and the groups themselves.
void kin_cgroup_walk(const char *root, const char *controller, kin_cgroup_visit *visit, void *user);

// The numbers at the beginning of a group's file, at most two; returns how many there are ("max" is none).
int kin_cgroup_numbers(const char *dir, const char *file, double numbers[2]);
