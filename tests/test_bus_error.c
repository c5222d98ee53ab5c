// Finds the mapped file that an address belongs to. app/ is a program, not a library, so this part is compiled into the test.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include "app/bus_error.c"
#include "tests/place.h"

static int maps_of(const char *text) {
    char path[] = "/tmp/kin-test-maps-XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    unlink(path);
    assert_int_equal(write(fd, text, strlen(text)), strlen(text));
    assert_int_equal(lseek(fd, 0, SEEK_SET), 0);
    return fd;
}

static void expect(const char *text, uintptr_t at, const char *want) {
    char path[16] = "";
    int fd = maps_of(text);
    assert_int_equal(kin_bus_error_find(fd, at, path, sizeof path), want != NULL);
    if (want) assert_string_equal(path, want);
    close(fd);
}
#define expect(...) FROM_TEST(expect(__VA_ARGS__))

static void the_mapping_around_an_address_has_the_name(void **state) {
    (void)state;
    static const char maps[] = "1000-3000 r--p 00000000 fe:01 12    /bin/a b\n"
                               "3000-4000 rw-p 00000000 00:00 0 \n"
                               "7f00aa000000-7f00aa002000 r--s 00001000 fe:01 13   /m/\x1b[1m.gguf\n"
                               "ffff0000-ffffffff r-xp 00000000 00:00 0   [vdso]\n"
                               "ffffffff-fffffffff r--s 0 fe:01 99 /a/very/long/name/of/a/file\n";
    expect(maps, 0x0fff, NULL);
    expect(maps, 0x1000, "/bin/a b");
    expect(maps, 0x2fff, "/bin/a b");
    expect(maps, 0x3000, NULL);
    expect(maps, 0x7f00aa001fff, "/m/?[1m.gguf");
    expect(maps, 0xffff0000, NULL);
    expect(maps, 0xffffffff, "/a/very/long/na");
    expect("", 1, NULL);
    expect("1000", 0x1000, NULL);
    expect("nonsense\n1000-2000 r /a\n", 0x1000, NULL);
}

static void a_file_that_is_cut_while_mapped_is_named_and_ends_the_process_with_1(void **state) {
    (void)state;
    char path[] = "/tmp/kin-test-cut-XXXXXX", said[512];
    int fd = mkstemp(path), fds[2], status;
    assert_true(fd >= 0 && ftruncate(fd, 1 << 20) == 0 && pipe(fds) == 0);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        const volatile char *at = mmap(NULL, 1 << 20, PROT_READ, MAP_SHARED, fd, 0);
        dup2(fds[1], STDERR_FILENO);
        kin_bus_error_watch();
        if (ftruncate(fd, 0) != 0) _exit(2);
        _exit(3 + at[1 << 19]);
    }
    close(fds[1]);
    size_t n = 0;
    for (ssize_t got; n < sizeof said - 1 && (got = read(fds[0], said + n, sizeof said - 1 - n)) > 0;) n += (size_t)got;
    assert_int_equal(waitpid(child, &status, 0), child);
    close(fds[0]);
    close(fd);
    unlink(path);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 1);
    assert_true(n > 0);
    said[n] = '\0';
    assert_non_null(strstr(said, path));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_mapping_around_an_address_has_the_name),
        cmocka_unit_test(a_file_that_is_cut_while_mapped_is_named_and_ends_the_process_with_1),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
