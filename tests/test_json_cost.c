// Compares the estimated cost of parsed JSON (serve/http/json_cost.h) with the memory that jansson allocates.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "pure/text/text_buffer.h"
#include "serve/http/json_cost.h"
#include "testkit/os.h"

static size_t n_held, n_most;

// Counts 8 bytes of the allocator's overhead per allocation.
static void *count_malloc(size_t n) {
    void *at = malloc(n);
    if (at) n_held += allocated_bytes(at) + 8;
    if (n_held > n_most) n_most = n_held;
    return at;
}

static void count_free(void *at) {
    if (at) n_held -= allocated_bytes(at) + 8;
    free(at);
}

static size_t cost_of(const char *text, size_t len, size_t piece) {
    kin_json_cost cost = {0};
    for (size_t at = 0; at < len; at += piece) kin_json_cost_feed(&cost, text + at, len - at < piece ? len - at : piece);
    return cost.bytes;
}

// Prints begin, n times `item` separated by commas with each # replaced by the item's number, and end.
static void repeat(kin_text_buffer *to, const char *begin, const char *item, const char *end, int n) {
    *to = (kin_text_buffer){0};
    kin_text_print(to, "%s", begin);
    for (int i = 0; i < n; i++) {
        if (i > 0) kin_text_put(to, ",", 1);
        for (const char *c = item; *c; c++) {
            if (*c == '#')
                kin_text_print(to, "%d", i);
            else
                kin_text_put(to, c, 1);
        }
    }
    kin_text_print(to, "%s", end);
}

static void no_form_of_json_takes_more_than_it_is_counted_as(void **state) {
    (void)state;
    static const char *const items[][3] = {
        {"[", "1", "]"},
        {"[", "-1.5e3", "]"},
        {"[", "null", "]"},
        {"[", "\"\"", "]"},
        {"[", "\"abcdefgh\"", "]"},
        {"[", "\"\\u00e4\\n\\\"\"", "]"},
        {"[", "[]", "]"},
        {"[", "[1]", "]"},
        {"[", "[[[1,2,3,4,5,6,7,8,9]]]", "]"},
        {"[", "{}", "]"},
        {"[", "{\"a\":{}}", "]"},
        {"{", "\"#\":1", "}"},
        {"{", "\"#\":[]", "}"},
        {"{", "\"a long name of a member, that is #\":\"#\"", "}"},
        {"{\"messages\":[", "{\"role\":\"user\",\"content\":\"\"}", "]}"},
        {"{\"messages\":[", "{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"Hello, what is #?\"}]}", "]}"},
        {"[\"", "0123456789abcdef,", "\"]"},
    };
    static const int counts[] = {1, 8, 9, 1000, 33000, 66000};
    json_malloc_t old_malloc;
    json_free_t old_free;
    json_get_alloc_funcs(&old_malloc, &old_free);
    json_set_alloc_funcs(count_malloc, count_free);
    for (size_t i = 0; i < sizeof items / sizeof *items; i++) {
        for (size_t k = 0; k < sizeof counts / sizeof *counts; k++) {
            kin_text_buffer text;
            repeat(&text, items[i][0], items[i][1], items[i][2], counts[k]);
            n_held = n_most = 0;
            json_t *json = json_loadb(text.at, text.len, JSON_ALLOW_NUL, NULL);
            assert_non_null(json);
            json_decref(json);
            assert_int_equal(n_held, 0);
            size_t cost = cost_of(text.at, text.len, text.len);
            if (n_most > cost + 2048) fail_msg("%s %d times: takes %zu, counted %zu", items[i][1], counts[k], n_most, cost);
            if (counts[k] > 1000 && cost > 4 * n_most)
                fail_msg("%s %d times: takes %zu, counted %zu", items[i][1], counts[k], n_most, cost);
            assert_int_equal(cost_of(text.at, text.len, 3), cost); // however the text is cut
            kin_text_fini(&text);
        }
    }
    json_set_alloc_funcs(old_malloc, old_free);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(no_form_of_json_takes_more_than_it_is_counted_as)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
