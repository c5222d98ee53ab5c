// The place of a failure: an assertion that fails in a helper names the test's
// own line too, "tests/test_a.c:12, in tests/trace.h:39".
//
//     static void expect_sum(int n) {
//         assert_int_equal(sum(), n);
//     }
//     #define expect_sum(...) FROM_TEST(expect_sum(__VA_ARGS__))
//
// A helper that calls another one keeps the test's line: only in a test the
// name `state` is a parameter of type void **. Each thread has a place of its
// own; where no test called, the assertion's own line is the only one.
#pragma once

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdbool.h>
#include <stdio.h>

static const char state[1] __attribute__((unused));

#define IN_TEST _Generic(state, void ** : true, default : false)
#define FROM_TEST(call) (set_place(IN_TEST, __FILE__, __LINE__), call)

// `said`: for that line and file of a helper, `text` is made already.
static _Thread_local struct {
    const char *file, *said;
    int line, said_line;
    char text[512];
} place_now;

static inline void set_place(bool in_test, const char *file, int line) {
    if (!in_test) return;
    place_now.file = file;
    place_now.line = line;
}

static inline const char *place_of(bool in_test, const char *file) {
    if (in_test || !place_now.file) return file;
    if (place_now.said != file || place_now.said_line != place_now.line) {
        snprintf(place_now.text, sizeof place_now.text, "%s:%d, in %s", place_now.file, place_now.line, file);
        place_now.said = file;
        place_now.said_line = place_now.line;
    }
    return place_now.text;
}

// cmocka's functions below its macros.
#define PLACE(file) place_of(IN_TEST, file)
#define _fail(file, line) _fail(PLACE(file), line)
#define _assert_true(c, text, file, line) _assert_true(c, text, PLACE(file), line)
#define _assert_int_equal(a, b, file, line) _assert_int_equal(a, b, PLACE(file), line)
#define _assert_int_not_equal(a, b, file, line) _assert_int_not_equal(a, b, PLACE(file), line)
#define _assert_float_equal(a, b, most, file, line) _assert_float_equal(a, b, most, PLACE(file), line)
#define _assert_string_equal(a, b, file, line) _assert_string_equal(a, b, PLACE(file), line)
#define _assert_string_not_equal(a, b, file, line) _assert_string_not_equal(a, b, PLACE(file), line)
#define _assert_memory_equal(a, b, n, file, line) _assert_memory_equal(a, b, n, PLACE(file), line)
#define _assert_memory_not_equal(a, b, n, file, line) _assert_memory_not_equal(a, b, n, PLACE(file), line)
#define _assert_in_range(value, min, max, file, line) _assert_in_range(value, min, max, PLACE(file), line)
