// The cache's folder: who leaves when it is full (engine/cache_dir.h).
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "engine/cache_dir.h"

enum { FILE_BYTES = 64 << 10 };

typedef struct folder {
    char path[64];
    char names[3][96];
} folder;

// Three files of 64 KiB, a.pack used longest ago, and one that is none of ours.
static folder make_folder(void) {
    static const char *const names[] = {"a.pack", "b.pack", "c.pack"};
    static char bytes[FILE_BYTES];
    folder f = {.path = "/tmp/kin-cache-dir-XXXXXX"};
    assert_non_null(mkdtemp(f.path));
    for (int i = 0; i < 3; i++) {
        snprintf(f.names[i], sizeof f.names[i], "%s/%s", f.path, names[i]);
        int fd = open(f.names[i], O_RDWR | O_CREAT, 0600);
        memset(bytes, i + 1, sizeof bytes);
        assert_int_equal(write(fd, bytes, sizeof bytes), sizeof bytes);
        assert_int_equal(fsync(fd), 0);
        struct timespec times[2] = {{.tv_sec = 1000 + i}, {.tv_sec = 1000 + i}};
        assert_int_equal(futimens(fd, times), 0);
        close(fd);
    }
    return f;
}

static void remove_folder(folder *f) {
    for (int i = 0; i < 3; i++) unlink(f->names[i]);
    rmdir(f->path);
}

static bool there(const folder *f, int i) {
    struct stat st;
    return stat(f->names[i], &st) == 0;
}

static void least_recently_used_leaves_first(void **state) {
    (void)state;
    folder f = make_folder();
    kin_err err;
    assert_int_equal(kin_cache_dir_make_room(f.path, FILE_BYTES, 3 * FILE_BYTES + 4096, &err), 0);
    assert_false(there(&f, 0));
    assert_true(there(&f, 1));
    assert_true(there(&f, 2));
    remove_folder(&f);
}

static void nobody_leaves_while_there_is_room(void **state) {
    (void)state;
    folder f = make_folder();
    kin_err err;
    assert_int_equal(kin_cache_dir_make_room(f.path, FILE_BYTES, 8 * FILE_BYTES, &err), 0);
    for (int i = 0; i < 3; i++) assert_true(there(&f, i));
    remove_folder(&f);
}

static void a_file_in_use_stays(void **state) {
    (void)state;
    folder f = make_folder();
    kin_err err;
    int fd = open(f.names[0], O_RDONLY);
    assert_int_equal(flock(fd, LOCK_SH), 0);
    assert_int_equal(kin_cache_dir_make_room(f.path, FILE_BYTES, 3 * FILE_BYTES + 4096, &err), 0);
    assert_true(there(&f, 0));
    assert_false(there(&f, 1));
    close(fd);
    remove_folder(&f);
}

static void more_than_the_cap_is_refused_and_removes_nothing(void **state) {
    (void)state;
    folder f = make_folder();
    kin_err err;
    assert_int_equal(kin_cache_dir_make_room(f.path, 9 * FILE_BYTES, 8 * FILE_BYTES, &err), KIN_FAIL);
    assert_non_null(strstr(err.text, "limit"));
    for (int i = 0; i < 3; i++) assert_true(there(&f, i));
    remove_folder(&f);
}

static void more_than_the_disk_is_refused_and_removes_nothing(void **state) {
    (void)state;
    folder f = make_folder();
    kin_err err;
    assert_int_equal(kin_cache_dir_make_room(f.path, (uint64_t)1 << 60, (uint64_t)1 << 62, &err), KIN_FAIL);
    assert_non_null(strstr(err.text, "free on the disk"));
    for (int i = 0; i < 3; i++) assert_true(there(&f, i));
    remove_folder(&f);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(least_recently_used_leaves_first),
        cmocka_unit_test(nobody_leaves_while_there_is_room),
        cmocka_unit_test(a_file_in_use_stays),
        cmocka_unit_test(more_than_the_cap_is_refused_and_removes_nothing),
        cmocka_unit_test(more_than_the_disk_is_refused_and_removes_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
