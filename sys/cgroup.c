#include "sys/cgroup.h"

#include <stdio.h>
#include <string.h>

enum { DIR_BYTES = 1024, PATH_BYTES = DIR_BYTES + 1024, LINE_BYTES = 4096 };

// True if `controller` ("cpu") is in `list` ("cpu,cpuacct").
static bool lists(const char *list, const char *controller) {
    char all[LINE_BYTES], one[64];
    snprintf(all, sizeof all, ",%s,", list);
    snprintf(one, sizeof one, ",%s,", controller);
    return strstr(all, one) != NULL;
}

static FILE *open_below(const char *root, const char *file) {
    char path[PATH_BYTES];
    snprintf(path, sizeof path, "%s%s", root, file);
    return fopen(path, "re");
}

// Finds the mount point of v2, or of a v1 controller. Empty: not mounted.
static void find_mount(const char *root, const char *v1_controller, char dir[DIR_BYTES]) {
    char line[LINE_BYTES], at[512], type[64], options[1024];
    FILE *f = open_below(root, "/proc/self/mounts");
    dir[0] = '\0';
    while (f && fgets(line, sizeof line, f)) { // "cgroup /sys/fs/cgroup/cpu,cpuacct cgroup rw,relatime,cpu,cpuacct 0 0"
        if (sscanf(line, "%*s %511s %63s %1023s", at, type, options) != 3) continue;
        if (strcmp(type, v1_controller ? "cgroup" : "cgroup2") != 0) continue;
        if (v1_controller && !lists(options, v1_controller)) continue;
        snprintf(dir, DIR_BYTES, "%.400s%s", root, at);
        break;
    }
    if (f) fclose(f);
}

// Visits the group `path` (with its leading /) and its ancestors.
static void visit_up(const char *mount, char *path, bool is_v2, kin_cgroup_visit *visit, void *user) {
    char dir[DIR_BYTES];
    for (char *end = path + strlen(path); end; end = strrchr(path, '/')) {
        *end = '\0';
        if (snprintf(dir, sizeof dir, "%s%s", mount, path) < DIR_BYTES) visit(dir, is_v2, user);
    }
}

void kin_cgroup_walk(const char *root, const char *controller, kin_cgroup_visit *visit, void *user) {
    char line[LINE_BYTES], v1[DIR_BYTES], v2[DIR_BYTES];
    find_mount(root, controller, v1);
    find_mount(root, NULL, v2);
    FILE *f = open_below(root, "/proc/self/cgroup");
    while (f && fgets(line, sizeof line, f)) { // "4:cpu,cpuacct:/a/b", "0::/a/b"
        line[strcspn(line, "\n")] = '\0';
        char *controllers = strchr(line, ':'), *group = controllers ? strchr(controllers + 1, ':') : NULL;
        if (!group) continue;
        *group++ = '\0';
        controllers++;
        if (*controllers == '\0' && v2[0])
            visit_up(v2, group, true, visit, user);
        else if (lists(controllers, controller) && v1[0])
            visit_up(v1, group, false, visit, user);
    }
    if (f) fclose(f);
}

int kin_cgroup_numbers(const char *dir, const char *file, double numbers[2]) {
    char path[PATH_BYTES];
    snprintf(path, sizeof path, "%s/%s", dir, file);
    FILE *f = fopen(path, "re");
    if (!f) return 0;
    int n = fscanf(f, "%lf %lf", &numbers[0], &numbers[1]);
    fclose(f);
    return n > 0 ? n : 0;
}
