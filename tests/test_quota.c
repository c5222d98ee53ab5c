// Limits of CPU time and memory, read from trees of files like the kernel's.
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "sys/cpu.h"
#include "sys/memory.h"
#include "sys/quota.h"
#include "sys/whole_file.h"
#include "tests/place.h"

#define V1 "cgroup /sys/fs/cgroup/cpu,cpuacct cgroup rw,nosuid,relatime,cpu,cpuacct 0 0\n"
#define V2 "cgroup2 /sys/fs/cgroup cgroup2 rw,nosuid,relatime 0 0\n"
#define HYBRID "cgroup2 /sys/fs/cgroup/unified cgroup2 rw,relatime 0 0\n"

typedef struct tree {
    char root[64];
} tree;

static void put(const tree *t, const char *path, const char *text) {
    char full[512], folder[512];
    kin_err err;
    snprintf(full, sizeof full, "%s%s", t->root, path);
    snprintf(folder, sizeof folder, "%s", full);
    *strrchr(folder, '/') = '\0';
    if (kin_folder_make(folder, &err) != 0 || kin_whole_file_write(full, text, strlen(text), &err) != 0) fail_msg("%s", err.text);
}
#define put(...) FROM_TEST(put(__VA_ARGS__))

static tree make_tree(const char *mounts, const char *groups) {
    tree t = {"/tmp/kin-test-quota-XXXXXX"};
    assert_non_null(mkdtemp(t.root));
    put(&t, "/proc/self/mounts", mounts);
    put(&t, "/proc/self/cgroup", groups);
    return t;
}
#define make_tree(...) FROM_TEST(make_tree(__VA_ARGS__))

static void remove_tree(const tree *t) {
    char command[128];
    snprintf(command, sizeof command, "rm -rf %s", t->root);
    assert_int_equal(system(command), 0);
}
#define remove_tree(...) FROM_TEST(remove_tree(__VA_ARGS__))

static kin_quota read_and_remove(const tree *t) {
    kin_quota q = kin_quota_read_below(t->root);
    remove_tree(t);
    return q;
}
#define read_and_remove(...) FROM_TEST(read_and_remove(__VA_ARGS__))

static void without_limits_there_is_no_quota(void **state) {
    (void)state;
    tree t = make_tree(V1 V2, "3:cpu,cpuacct:/a\n0::/a\n");
    put(&t, "/sys/fs/cgroup/a/cpu.max", "max 100000\n");
    put(&t, "/sys/fs/cgroup/cpu,cpuacct/a/cpu.cfs_quota_us", "-1\n");
    put(&t, "/sys/fs/cgroup/cpu,cpuacct/a/cpu.cfs_period_us", "100000\n");
    assert_float_equal(read_and_remove(&t).cores, 0, 0);
    tree empty = make_tree("", "");
    assert_float_equal(read_and_remove(&empty).cores, 0, 0);
}

static void a_quota_of_a_nested_v2_group_counts(void **state) {
    (void)state;
    tree t = make_tree(V2, "0::/user/session/kin\n");
    put(&t, "/sys/fs/cgroup/user/session/kin/cpu.max", "max 100000\n");
    put(&t, "/sys/fs/cgroup/user/session/cpu.max", "150000 100000\n");
    put(&t, "/sys/fs/cgroup/user/cpu.max", "800000 200000\n");
    kin_quota q = read_and_remove(&t);
    assert_float_equal(q.cores, 1.5, 1e-9);
    assert_float_equal(q.period_s, 0.2, 1e-9);
}

static void a_quota_of_a_nested_v1_group_counts(void **state) {
    (void)state;
    tree t = make_tree(V1, "9:memory:/a/b\n4:cpu,cpuacct:/a/b\n2:cpuset:/\n");
    put(&t, "/sys/fs/cgroup/cpu,cpuacct/a/b/cpu.cfs_quota_us", "-1\n");
    put(&t, "/sys/fs/cgroup/cpu,cpuacct/a/b/cpu.cfs_period_us", "100000\n");
    put(&t, "/sys/fs/cgroup/cpu,cpuacct/a/cpu.cfs_quota_us", "50000\n");
    put(&t, "/sys/fs/cgroup/cpu,cpuacct/a/cpu.cfs_period_us", "100000\n");
    assert_float_equal(read_and_remove(&t).cores, 0.5, 1e-9);
}

static void a_v2_group_beside_v1_is_found_where_it_is_mounted(void **state) {
    (void)state;
    tree t = make_tree(V1 HYBRID, "4:cpu,cpuacct:/\n0::/a\n");
    put(&t, "/sys/fs/cgroup/unified/a/cpu.max", "200000 100000\n");
    assert_float_equal(read_and_remove(&t).cores, 2, 1e-9);
}

static void a_container_that_sees_its_group_as_the_root_is_limited_too(void **state) {
    (void)state;
    tree t = make_tree(V2, "0::/docker/4711\n");
    put(&t, "/sys/fs/cgroup/cpu.max", "100000 100000\n");
    assert_float_equal(read_and_remove(&t).cores, 1, 1e-9);
    t = make_tree(V1, "4:cpu,cpuacct:/docker/4711\n");
    put(&t, "/sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "300000\n");
    put(&t, "/sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us", "100000\n");
    assert_float_equal(read_and_remove(&t).cores, 3, 1e-9);
}

// The page cache is reclaimable, except for shared memory.
static void a_memory_limit_of_a_group_above_counts_without_its_page_cache(void **state) {
    (void)state;
    tree t = make_tree(V2, "0::/user/kin\n");
    put(&t, "/sys/fs/cgroup/user/kin/memory.max", "max\n");
    put(&t, "/sys/fs/cgroup/user/memory.max", "1000000\n");
    put(&t, "/sys/fs/cgroup/user/memory.current", "700000\n");
    put(&t, "/sys/fs/cgroup/user/memory.stat", "anon 1\nfile 500000\nshmem 100000\n");
    kin_memory m = kin_memory_read_below(t.root);
    assert_int_equal(m.total, 1000000);
    assert_int_equal(m.available, 700000);
    remove_tree(&t);

    t = make_tree("cgroup /memory cgroup rw,memory 0 0\n", "4:cpu,cpuacct:/\n9:memory:/a/b\n");
    put(&t, "/memory/a/b/memory.limit_in_bytes", "9223372036854771712\n");
    put(&t, "/memory/a/memory.limit_in_bytes", "2000000\n");
    put(&t, "/memory/a/memory.usage_in_bytes", "2500000\n");
    put(&t, "/memory/a/memory.stat", "total_cache 300000\ntotal_shmem 0\n");
    m = kin_memory_read_below(t.root);
    assert_int_equal(m.total, 2000000);
    assert_int_equal(m.available, 0);
    remove_tree(&t);
}

// Makes a real cgroup (v1 or v2) with half a processor. False if this process may not make one.
static bool make_group(char dir[128]) {
    static const char *const mounts[] = {"/sys/fs/cgroup/cpu", "/sys/fs/cgroup"};
    for (int i = 0; i < 2; i++) {
        char file[256];
        snprintf(dir, 128, "%s/kin-test-%d", mounts[i], (int)getpid());
        snprintf(file, sizeof file, "%s/%s", dir, i == 0 ? "cpu.cfs_quota_us" : "cpu.max");
        if (mkdir(dir, 0755) != 0) continue;
        FILE *f = fopen(file, "r+");
        bool ok = f && fputs(i == 0 ? "50000" : "50000 100000", f) >= 0;
        if (f && fclose(f) == 0 && ok) return true;
        rmdir(dir);
    }
    return false;
}

static void a_group_of_half_a_processor_has_one_thread(void **state) {
    (void)state;
    char dir[128], procs[192];
    if (kin_cpu_n_cores() < 2 || !make_group(dir)) skip();
    snprintf(procs, sizeof procs, "%s/cgroup.procs", dir);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        FILE *f = fopen(procs, "w");
        if (!f || fprintf(f, "%d", (int)getpid()) < 0 || fclose(f) != 0) _exit(77);
        _exit(kin_cpu_n_cores() == 1 && kin_cpu_n_threads() > 1 ? 0 : 1);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    rmdir(dir);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 77) skip();
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(without_limits_there_is_no_quota),
        cmocka_unit_test(a_quota_of_a_nested_v2_group_counts),
        cmocka_unit_test(a_quota_of_a_nested_v1_group_counts),
        cmocka_unit_test(a_v2_group_beside_v1_is_found_where_it_is_mounted),
        cmocka_unit_test(a_memory_limit_of_a_group_above_counts_without_its_page_cache),
        cmocka_unit_test(a_group_of_half_a_processor_has_one_thread),
        cmocka_unit_test(a_container_that_sees_its_group_as_the_root_is_limited_too),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
