// Reading and writing small files as a whole (sys/whole_file.h).
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "sys/whole_file.h"

static char folder[64];

static int make_folder(void **state) {
    (void)state;
    snprintf(folder, sizeof folder, "/tmp/whole-file-XXXXXX");
    return mkdtemp(folder) ? 0 : -1;
}

static int remove_folder(void **state) {
    (void)state;
    return rmdir(folder);
}

static void what_is_read_is_what_was_written_and_a_nul(void **state) {
    (void)state;
    static const size_t sizes[] = {0, 1, 4094, 4095, 4096, 4097, 100000};
    char path[80];
    kin_err err;
    snprintf(path, sizeof path, "%s/file", folder);
#ifdef M_PERTURB
    mallopt(M_PERTURB, 0x55); // fills new memory, so that uninitialised bytes are not 0
#endif
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        size_t n = sizes[i], got;
        uint8_t *bytes, *written = malloc(n + 1);
        assert_non_null(written);
        memset(written, 'x', n + 1);
        assert_int_equal(kin_whole_file_write(path, written, n, &err), 0);
        for (int as_input = 0; as_input < 2; as_input++) {
            int rc =
                as_input ? kin_whole_input_read(path, n, &bytes, &got, &err) : kin_whole_file_read(path, n, &bytes, &got, &err);
            assert_int_equal(rc, 0);
            assert_int_equal(got, n);
            assert_memory_equal(bytes, written, n);
            assert_int_equal(bytes[n], 0);
            free(bytes);
        }
        if (n > 0) assert_int_equal(kin_whole_input_read(path, n - 1, &bytes, &got, &err), KIN_FAIL);
        if (n > 0) assert_int_equal(kin_whole_file_read(path, n - 1, &bytes, &got, &err), KIN_FAIL);
        free(written);
    }
    unlink(path);
    assert_int_equal(kin_whole_file_read(path, 1, &(uint8_t *){NULL}, &(size_t){0}, &err), KIN_ABSENT);
}

static void a_pipe_without_a_writer_is_refused(void **state) {
    (void)state;
    char path[80];
    uint8_t *bytes;
    size_t n;
    kin_err err;
    snprintf(path, sizeof path, "%s/pipe", folder);
    assert_int_equal(mkfifo(path, 0600), 0);
    alarm(60); // ends the test if it waits for a writer
    assert_int_equal(kin_whole_file_read(path, 100, &bytes, &n, &err), KIN_FAIL);
    alarm(0);
    assert_null(bytes);
    assert_non_null(strstr(err.text, "not a regular file"));
    unlink(path);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(what_is_read_is_what_was_written_and_a_nul, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(a_pipe_without_a_writer_is_refused, make_folder, remove_folder),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
