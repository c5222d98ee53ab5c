// The cache folder: which files are evicted when it is full (engine/cache_dir.h).
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
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "engine/cache_dir.h"
#include "testkit/os.h"
#include "tests/place.h"

enum { FILE_BYTES = 64 << 10 };

typedef struct folder {
    char path[64];
    char names[3][96];
} folder;

// Three cache files of 64 KiB, of which a.pack was used longest ago, and one file that is not kin's.
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
#define make_folder(...) FROM_TEST(make_folder(__VA_ARGS__))

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

static void no_entry_is_removed_while_there_is_room(void **state) {
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

// ---- fetched models

#define HASH_A "00000000000000aa"
#define HASH_B "00000000000000bb"

static void put_file(const char *path, size_t n, time_t used) {
    static char bytes[FILE_BYTES];
    int fd = open(path, O_RDWR | O_CREAT, 0600);
    memset(bytes, 7, sizeof bytes);
    assert_true(fd >= 0 && write(fd, bytes, n) == (ssize_t)n && fsync(fd) == 0);
    const struct timespec times[2] = {{.tv_sec = used}, {.tv_sec = used}};
    assert_int_equal(futimens(fd, times), 0);
    close(fd);
}

typedef struct path {
    char text[160];
} path;

static path in_folder(const folder *f, const char *name) {
    path p;
    snprintf(p.text, sizeof p.text, "%s/%s", f->path, name);
    return p;
}

static bool has(const folder *f, const char *name) {
    struct stat st;
    return lstat(in_folder(f, name).text, &st) == 0;
}

static void make_model(const folder *f, const char *hash, time_t used) {
    char name[64];
    mkdir(in_folder(f, "models").text, 0700);
    snprintf(name, sizeof name, "models/%s", hash);
    assert_int_equal(mkdir(in_folder(f, name).text, 0700), 0);
    snprintf(name, sizeof name, "models/%s/model.gguf", hash);
    put_file(in_folder(f, name).text, FILE_BYTES, used);
    snprintf(name, sizeof name, "models/%s/manifest", hash);
    put_file(in_folder(f, name).text, 100, used);
}
#define make_model(...) FROM_TEST(make_model(__VA_ARGS__))

static void remove_all(folder *f) {
    char command[128];
    snprintf(command, sizeof command, "rm -rf %s", f->path);
    assert_int_equal(system(command), 0);
}
#define remove_all(...) FROM_TEST(remove_all(__VA_ARGS__))

static void notes_leave_with_their_packed_file(void **state) {
    (void)state;
    folder f = make_folder();
    kin_err err;
    put_file(in_folder(&f, "a.pack.checked").text, 40, 1000);
    put_file(in_folder(&f, "a.pack.experts").text, 4000, 1000);
    put_file(in_folder(&f, "b.pack.experts").text, 4000, 1001);
    assert_int_equal(kin_cache_dir_make_room(f.path, FILE_BYTES, 3 * FILE_BYTES + 8192, &err), 0);
    assert_false(has(&f, "a.pack") || has(&f, "a.pack.checked") || has(&f, "a.pack.experts"));
    assert_true(has(&f, "b.pack") && has(&f, "b.pack.experts"));
    remove_all(&f);
}

static void packs_and_fetched_models_are_listed_the_oldest_first(void **state) {
    (void)state;
    folder f = make_folder();
    kin_cache_entry *entries;
    make_model(&f, HASH_A, 999);
    make_model(&f, HASH_B, 2000);
    assert_int_equal(mkdir(in_folder(&f, "models/other").text, 0700), 0);
    assert_int_equal(symlink(in_folder(&f, "models/" HASH_A).text, in_folder(&f, "models/00000000000000cc").text), 0);
    size_t n = kin_cache_dir_list(f.path, &entries);
    assert_int_equal(n, 5);
    assert_string_equal(kin_cache_entry_name(&entries[0]), HASH_A);
    assert_int_equal(entries[0].kind, KIN_CACHE_MODEL);
    assert_in_range(entries[0].bytes, FILE_BYTES, FILE_BYTES + 8192);
    assert_string_equal(kin_cache_entry_name(&entries[1]), "a.pack");
    assert_int_equal(entries[1].kind, KIN_CACHE_PACK);
    assert_string_equal(kin_cache_entry_name(&entries[4]), HASH_B);
    free(entries);
    remove_all(&f);
}

static void fetched_models_leave_for_others_but_not_those_in_use(void **state) {
    (void)state;
    folder f = make_folder();
    kin_err err;
    make_model(&f, HASH_A, 10);
    make_model(&f, HASH_B, 20);
    int fd = open(in_folder(&f, "models/" HASH_A "/manifest").text, O_RDONLY);
    assert_int_equal(flock(fd, LOCK_SH), 0);
    assert_int_equal(kin_cache_dir_make_room_for_model(f.path, FILE_BYTES, 2 * FILE_BYTES + 16384, &err), 0);
    assert_true(has(&f, "models/" HASH_A) && !has(&f, "models/" HASH_B));
    for (int i = 0; i < 3; i++) assert_true(there(&f, i)); // the disk has room for these
    assert_int_equal(kin_cache_dir_make_room_for_model(f.path, FILE_BYTES, FILE_BYTES + 16384, &err), KIN_FAIL);
    assert_non_null(strstr(err.text, "in use"));
    assert_int_equal(kin_cache_dir_make_room_for_model(f.path, 2 * FILE_BYTES, FILE_BYTES, &err), KIN_FAIL);
    assert_non_null(strstr(err.text, "--cache-size"));
    assert_true(has(&f, "models/" HASH_A "/model.gguf"));
    close(fd);
    remove_all(&f);
}

static void removing_a_model_follows_no_links(void **state) {
    (void)state;
    folder f = make_folder(), elsewhere = make_folder();
    kin_cache_entry *entries;
    kin_err err;
    make_model(&f, HASH_A, 10);
    assert_int_equal(symlink(elsewhere.names[0], in_folder(&f, "models/" HASH_A "/link").text), 0);
    assert_int_equal(symlink(elsewhere.path, in_folder(&f, "models/" HASH_A "/folder").text), 0);
    size_t n = kin_cache_dir_list(f.path, &entries);
    for (size_t i = 0; i < n; i++) {
        if (entries[i].kind == KIN_CACHE_MODEL) assert_int_equal(kin_cache_dir_remove(&entries[i], &err), 0);
    }
    free(entries);
    assert_false(has(&f, "models/" HASH_A));
    for (int i = 0; i < 3; i++) assert_true(there(&elsewhere, i));
    unlink(f.names[0]);
    assert_int_equal(symlink(elsewhere.names[0], f.names[0]), 0); // a symbolic link in place of a packed file
    n = kin_cache_dir_list(f.path, &entries);
    for (size_t i = 0; i < n; i++) assert_int_equal(kin_cache_dir_remove(&entries[i], &err), 0);
    free(entries);
    assert_false(has(&f, "a.pack"));
    assert_true(there(&elsewhere, 0));
    remove_all(&f);
    remove_all(&elsewhere);
}

// Runs in a child process with a private mount of 10 MiB. Returns 0 on success, 77 if mounting is not allowed, else the number
// of the check that failed.
static int use_small_disk(const char *dir) {
    enum { DISK = 10 << 20 };
    folder f;
    kin_err err;
    if (!mount_small_disk(dir, "10m")) return 77;
    snprintf(f.path, sizeof f.path, "%s", dir);
    if (kin_cache_dir_make_room_for_model(dir, DISK - DISK / 20 - 65536, DISK, &err) != 0) return 1;
    if (kin_cache_dir_make_room_for_model(dir, DISK - DISK / 20 + 65536, DISK, &err) == 0) return 2; // 5 % stays free
    if (!strstr(err.text, "free on the disk")) return 3;
    put_file(in_folder(&f, "a.pack").text, FILE_BYTES, 10);
    if (kin_cache_dir_make_room_for_model(dir, DISK - DISK / 20 - 32768, DISK, &err) != 0) return 4;
    return has(&f, "a.pack") ? 5 : 0; // prepacked weights were evicted for fetched ones
}
#define use_small_disk(...) FROM_TEST(use_small_disk(__VA_ARGS__))

static void a_disk_is_not_filled_to_the_brim(void **state) {
    (void)state;
    char dir[] = "/tmp/kin-cache-dir-XXXXXX";
    int status;
    assert_non_null(mkdtemp(dir));
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) _exit(use_small_disk(dir));
    assert_int_equal(waitpid(child, &status, 0), child);
    rmdir(dir);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 77) skip();
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

static void pages_of_texts_are_an_entry_and_can_be_removed(void **state) {
    (void)state;
    char dir[] = "/tmp/kin-cache-dir-XXXXXX", path[200];
    kin_cache_entry *list;
    kin_err err;
    assert_non_null(mkdtemp(dir));
    snprintf(path, sizeof path, "%s/kv", dir);
    assert_int_equal(mkdir(path, 0755), 0);
    snprintf(path, sizeof path, "%s/kv/0123456789abcdef", dir);
    assert_int_equal(mkdir(path, 0755), 0);
    snprintf(path, sizeof path, "%s/kv/0123456789abcdef/00", dir);
    int fd = open(path, O_RDWR | O_CREAT, 0600);
    assert_int_equal(ftruncate(fd, 1), 0);
    close(fd);
    assert_int_equal(kin_cache_dir_list(dir, &list), 1);
    assert_int_equal(list[0].kind, KIN_CACHE_KV);
    assert_string_equal(kin_cache_entry_name(&list[0]), "0123456789abcdef");
    assert_int_equal(kin_cache_dir_remove(&list[0], &err), 0);
    free(list);
    assert_int_equal(kin_cache_dir_list(dir, &list), 0);
    free(list);
    snprintf(path, sizeof path, "%s/kv", dir);
    assert_int_equal(rmdir(path), 0);
    assert_int_equal(rmdir(dir), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(least_recently_used_leaves_first),
        cmocka_unit_test(no_entry_is_removed_while_there_is_room),
        cmocka_unit_test(a_file_in_use_stays),
        cmocka_unit_test(more_than_the_cap_is_refused_and_removes_nothing),
        cmocka_unit_test(more_than_the_disk_is_refused_and_removes_nothing),
        cmocka_unit_test(notes_leave_with_their_packed_file),
        cmocka_unit_test(packs_and_fetched_models_are_listed_the_oldest_first),
        cmocka_unit_test(fetched_models_leave_for_others_but_not_those_in_use),
        cmocka_unit_test(removing_a_model_follows_no_links),
        cmocka_unit_test(a_disk_is_not_filled_to_the_brim),
        cmocka_unit_test(pages_of_texts_are_an_entry_and_can_be_removed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
