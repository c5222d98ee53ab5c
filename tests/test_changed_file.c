// Model files that change while in use: what counts as a change, for one file and for split files, and what a missing page
// reads as.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <fcntl.h>
#include <ggml.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "engine/shard.h"
#include "model/gguf.h"
#include "model/model.h"
#include "sys/file.h"
#include "testkit/gguf_write.h"
#include "testkit/model_gen.h"
#include "tests/place.h"

enum { N = 64 << 10 }; // values of a tensor, which fill many pages

typedef struct fixture {
    char dir[64], path[128], other[128];
    kin_gguf *gguf;
} fixture;

static void write_model(const char *path, float first, int n_parts) {
    static float numbers[2][N];
    kin_err err;
    kin_gguf_writer *w = kin_gguf_writer_new();
    kin_gguf_writer_put_str(w, "general.architecture", "llama");
    for (int i = 0; i < 2; i++) {
        for (int k = 0; k < N; k++) numbers[i][k] = first + (float)(i + k);
        kin_gguf_writer_add(w, i ? "b.weight" : "a.weight", GGML_TYPE_F32, 1, (int64_t[]){N}, numbers[i]);
    }
    int rc = n_parts > 1 ? kin_gguf_writer_save_split(w, path, n_parts, &err) : kin_gguf_writer_save(w, path, &err);
    if (rc != 0) fail_msg("%s", err.text);
    kin_gguf_writer_free(w);
}
#define write_model(...) FROM_TEST(write_model(__VA_ARGS__))

// Waits until a file written now gets a later timestamp than this one's. The clock of a file system may tick in milliseconds.
static void await_tick(const char *path) {
    char probe[160];
    kin_file_identity of, now;
    snprintf(probe, sizeof probe, "%s.tick", path);
    assert_int_equal(kin_file_identify_path(path, &of), 0);
    do {
        int fd = open(probe, O_WRONLY | O_CREAT | O_TRUNC, 0600);
        assert_true(fd >= 0 && write(fd, "x", 1) == 1 && kin_file_identify(fd, &now) == 0);
        close(fd);
    } while (now.written_s == of.written_s && now.written_ns == of.written_ns);
    unlink(probe);
}
#define await_tick(...) FROM_TEST(await_tick(__VA_ARGS__))

static kin_gguf *open_model(const char *path) {
    kin_err err;
    kin_gguf *gguf;
    uint64_t sample;
    if (kin_gguf_open(&gguf, path, &err) != 0 || kin_gguf_sample(gguf, &sample, &err) != 0) fail_msg("%s", err.text);
    return gguf;
}
#define open_model(...) FROM_TEST(open_model(__VA_ARGS__))

static int make(void **state) {
    fixture *f = *state = calloc(1, sizeof *f);
    snprintf(f->dir, sizeof f->dir, "/tmp/kin-test-changed-XXXXXX");
    if (!mkdtemp(f->dir)) return -1;
    snprintf(f->path, sizeof f->path, "%s/m.gguf", f->dir);
    snprintf(f->other, sizeof f->other, "%s/other.gguf", f->dir);
    write_model(f->path, 1, 1);
    write_model(f->other, 2, 1);
    await_tick(f->other);
    f->gguf = open_model(f->path);
    return 0;
}

static int drop(void **state) {
    fixture *f = *state;
    kin_gguf_close(f->gguf);
    unlink(f->path);
    unlink(f->other);
    rmdir(f->dir);
    free(f);
    return 0;
}

static void expect_same(kin_gguf *gguf) {
    kin_err err;
    if (kin_gguf_check_files(gguf, &err) != 0) fail_msg("%s", err.text);
}
#define expect_same(...) FROM_TEST(expect_same(__VA_ARGS__))

static void expect_changed(kin_gguf *gguf, const char *path) {
    kin_err err = {""};
    assert_int_equal(kin_gguf_check_files(gguf, &err), KIN_FAIL);
    if (strncmp(err.text, path, strlen(path)) != 0 || !strstr(err.text, "was overwritten or truncated"))
        fail_msg("'%s' does not name %s", err.text, path);
}
#define expect_changed(...) FROM_TEST(expect_changed(__VA_ARGS__))

// Overwrites a file in place, as cp does: the same inode with other bytes.
static void copy_over(const char *from, const char *to) {
    static uint8_t bytes[1 << 20];
    int in = open(from, O_RDONLY), out = open(to, O_WRONLY | O_TRUNC);
    ssize_t n = read(in, bytes, sizeof bytes);
    assert_true(in >= 0 && out >= 0 && n > 0 && n < (ssize_t)sizeof bytes);
    assert_int_equal(write(out, bytes, (size_t)n), n);
    close(in);
    close(out);
}
#define copy_over(...) FROM_TEST(copy_over(__VA_ARGS__))

static void put_byte(const char *path, off_t at, uint8_t byte) {
    int fd = open(path, O_WRONLY);
    assert_true(fd >= 0);
    assert_int_equal(pwrite(fd, &byte, 1, at), 1);
    close(fd);
}
#define put_byte(...) FROM_TEST(put_byte(__VA_ARGS__))

static void set_written(const char *path, const struct stat *as) {
#ifdef __APPLE__
    const struct timespec times[] = {as->st_atimespec, as->st_mtimespec};
#else
    const struct timespec times[] = {as->st_atim, as->st_mtim};
#endif
    assert_int_equal(utimensat(AT_FDCWD, path, times, 0), 0);
}
#define set_written(...) FROM_TEST(set_written(__VA_ARGS__))

static void a_file_that_is_not_written_is_the_same(void **state) {
    fixture *f = *state;
    expect_same(f->gguf);
    expect_same(f->gguf);
}

static void one_that_is_copied_over_has_changed(void **state) {
    fixture *f = *state;
    copy_over(f->other, f->path);
    expect_changed(f->gguf, f->path);
}

static void one_that_is_patched_in_place_has_changed(void **state) {
    fixture *f = *state;
    put_byte(f->path, 100000, 7);
    expect_changed(f->gguf, f->path);
}

static void one_that_is_emptied_has_changed(void **state) {
    fixture *f = *state;
    assert_int_equal(truncate(f->path, 0), 0);
    expect_changed(f->gguf, f->path);
}

static void permissions_and_links_change_nothing(void **state) {
    fixture *f = *state;
    char link_path[160];
    snprintf(link_path, sizeof link_path, "%s/link", f->dir);
    assert_int_equal(chmod(f->path, 0600), 0);
    expect_same(f->gguf);
    assert_int_equal(link(f->path, link_path), 0);
    expect_same(f->gguf);
    unlink(link_path);
    expect_same(f->gguf);
    put_byte(f->path, 100000, 7); // a later change is still noticed
    expect_changed(f->gguf, f->path);
}

static void a_time_of_writing_that_is_set_back_hides_nothing(void **state) {
    fixture *f = *state;
    struct stat st;
    assert_int_equal(stat(f->path, &st), 0);
    copy_over(f->other, f->path);
    set_written(f->path, &st);
    expect_changed(f->gguf, f->path);
}

static void a_file_that_a_rename_replaces_stays_readable_while_open(void **state) {
    fixture *f = *state;
    kin_err err;
    assert_int_equal(kin_gguf_check_names(f->gguf, &err), 0);
    assert_int_equal(rename(f->other, f->path), 0);
    expect_same(f->gguf);
    assert_int_equal(kin_gguf_check_names(f->gguf, &err), KIN_FAIL);
    assert_non_null(strstr(err.text, "was renamed or removed"));
}

static void of_a_file_that_is_filled_only_the_end_counts(void **state) {
    fixture *f = *state;
    kin_gguf_set_filled(f->gguf);
    put_byte(f->path, 100000, 7);
    expect_same(f->gguf);
    assert_int_equal(truncate(f->path, 5000), 0);
    expect_changed(f->gguf, f->path);
}

static void each_version_of_a_file_has_a_number(void **state) {
    fixture *f = *state;
    uint64_t before = kin_gguf_version(f->gguf);
    kin_gguf *again = open_model(f->path);
    assert_int_equal(kin_gguf_version(again), before);
    kin_gguf_close(again);
    put_byte(f->path, 100000, 7);
    again = open_model(f->path);
    assert_int_not_equal(kin_gguf_version(again), before);
    kin_gguf_close(again);
}

static void a_part_that_changes_is_named(void **state) {
    (void)state;
    char dir[] = "/tmp/kin-test-changed-XXXXXX", prefix[64], parts[2][96];
    assert_non_null(mkdtemp(dir));
    snprintf(prefix, sizeof prefix, "%s/m", dir);
    write_model(prefix, 1, 2);
    for (int i = 0; i < 2; i++) snprintf(parts[i], sizeof parts[i], "%s-%05d-of-00002.gguf", prefix, i + 1);
    await_tick(parts[1]);
    for (int i = 0; i < 2; i++) {
        kin_gguf *gguf = open_model(parts[0]);
        expect_same(gguf);
        assert_int_equal(chmod(parts[i], 0600), 0);
        expect_same(gguf);
        put_byte(parts[i], 5000, 7);
        expect_changed(gguf, parts[i]);
        kin_gguf_close(gguf);
    }
    for (int i = 0; i < 2; i++) unlink(parts[i]);
    rmdir(dir);
}

// ---- prepacked weights

static void what_is_packed_of_a_file_that_was_written_to_is_not_used(void **state) {
    fixture *f = *state;
    kin_model_spec spec = kin_model_spec_defaults();
    kin_device_options o = kin_device_options_defaults();
    kin_devices devices;
    kin_model model;
    kin_shard *shard;
    kin_err err = {""};
    spec.mix = "q8_0";
    if (kin_model_gen(&spec, f->other, &err) != 0 || kin_model_open(&model, f->other, &err) != 0 ||
        kin_devices_open(&devices, &o, &err) != 0)
        fail_msg("%s", err.text);
    kin_shard_options so = kin_shard_options_defaults(&model);
    so.n_ctx = 64;
    if (kin_shard_open(&shard, &model, &devices, &so, &err) != 0) fail_msg("%s", err.text);
    kin_shard_close(shard);
    await_tick(f->other);
    put_byte(f->other, 1000000, 7);
    assert_int_equal(kin_shard_open(&shard, &model, &devices, &so, &err), KIN_FAIL);
    assert_non_null(strstr(err.text, "other.gguf: was overwritten or truncated"));
    kin_devices_close(&devices);
    kin_model_close(&model);
}

// ---- missing pages

static void on_bus_error(int sig, siginfo_t *info, void *context) {
    (void)sig, (void)context;
    if (!kin_file_mend((uintptr_t)info->si_addr)) _exit(9);
}

static void a_page_that_is_missing_is_zeros_and_noticed_though_the_file_is_whole_again(void **state) {
    fixture *f = *state;
    struct sigaction action = {.sa_sigaction = on_bus_error, .sa_flags = SA_SIGINFO}, before;
    struct stat st;
    const kin_gguf_tensor *t = kin_gguf_find_tensor(f->gguf, "b.weight");
    sigaction(SIGBUS, &action, &before);
    assert_int_equal(stat(f->path, &st), 0);
    assert_int_equal(truncate(f->path, 4096), 0);
    for (uint64_t i = 8192; i < t->n_bytes; i += 4096) assert_int_equal(t->data[i], 0);
    sigaction(SIGBUS, &before, NULL);
    assert_int_equal(truncate(f->path, st.st_size), 0);
    set_written(f->path, &st);
    expect_changed(f->gguf, f->path);
}

static void what_is_not_guarded_is_not_mended(void **state) {
    fixture *f = *state;
    const kin_gguf_tensor *t = kin_gguf_find_tensor(f->gguf, "b.weight");
    uintptr_t at = (uintptr_t)t->data;
    int elsewhere;
    assert_false(kin_file_mend((uintptr_t)&elsewhere));
    kin_gguf_close(f->gguf);
    f->gguf = NULL;
    assert_false(kin_file_mend(at));
}

#define WITH_MODEL(test) cmocka_unit_test_setup_teardown(test, make, drop)

int main(void) {
    const struct CMUnitTest tests[] = {
        WITH_MODEL(a_file_that_is_not_written_is_the_same),
        WITH_MODEL(one_that_is_copied_over_has_changed),
        WITH_MODEL(one_that_is_patched_in_place_has_changed),
        WITH_MODEL(one_that_is_emptied_has_changed),
        WITH_MODEL(permissions_and_links_change_nothing),
        WITH_MODEL(a_time_of_writing_that_is_set_back_hides_nothing),
        WITH_MODEL(a_file_that_a_rename_replaces_stays_readable_while_open),
        WITH_MODEL(of_a_file_that_is_filled_only_the_end_counts),
        WITH_MODEL(each_version_of_a_file_has_a_number),
        cmocka_unit_test(a_part_that_changes_is_named),
        WITH_MODEL(what_is_packed_of_a_file_that_was_written_to_is_not_used),
        WITH_MODEL(a_page_that_is_missing_is_zeros_and_noticed_though_the_file_is_whole_again),
        WITH_MODEL(what_is_not_guarded_is_not_mended),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
