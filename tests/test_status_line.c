// The line on a terminal that says what the program waits for (app/terminal/terminal.c).
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <termios.h>
#include <unistd.h>

#include "app/terminal/terminal.c"
#include "pure/text/utf8.h"

atomic_bool kin_app_stop;

// Returns a pseudo-terminal's own side, whose other side is stderr until *was, a copy of stderr, is put back.
static int replace_stderr(int *was) {
    int own = posix_openpt(O_RDWR | O_NOCTTY);
    if (own < 0 || grantpt(own) != 0 || unlockpt(own) != 0) skip();
    int other = open(ptsname(own), O_RDWR | O_NOCTTY);
    *was = dup(STDERR_FILENO);
    if (other < 0 || *was < 0) skip();
    dup2(other, STDERR_FILENO);
    close(other);
    return own;
}

static void a_long_line_ends_between_characters(void **state) {
    (void)state;
    for (int n_before = 0; n_before < 3; n_before++) {
        char line[256] = "", shown[512];
        int was;
        for (int i = 0; i < n_before; i++) strcat(line, "a");
        for (int i = 0; i < 60; i++) strcat(line, "ж");
        setenv("TERM", "xterm", 1);
        int own = replace_stderr(&was);
        kin_app_status(line);
        ssize_t n = read(own, shown, sizeof shown);
        kin_app_progress_clear();
        fflush(stderr);
        dup2(was, STDERR_FILENO);
        close(was);
        close(own);
        size_t n_text = n > 0 ? strcspn(shown, "\r") : 0;
        if (n_text > (size_t)n) n_text = (size_t)n;
        assert_in_range(n_text, 90, 100);
        for (size_t i = 0; i < n_text;) {
            int len = kin_utf8_len(shown + i, n_text - i);
            assert_true(len > 0);
            i += (size_t)len;
        }
        assert_memory_equal(shown, line, n_text);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_long_line_ends_between_characters),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
