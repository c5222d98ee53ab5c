// Messages of a chat fitted to a template that takes one system message, the first (serve/history.h).
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "serve/history.h"
#include "tests/place.h"

// Roles and contents as "role:content" with "|" between messages.
static json_t *messages_of(const char *text) {
    json_t *messages = json_array();
    char *copy = strdup(text), *rest = copy;
    for (char *one; (one = strtok_r(rest, "|", &rest));) {
        char *content = strchr(one, ':');
        assert_non_null(content);
        *content++ = '\0';
        json_array_append_new(messages, json_pack("{s:s, s:s}", "role", one, "content", content));
    }
    free(copy);
    return messages;
}

static void merges(const char *given, const char *expected) {
    json_t *messages = messages_of(given), *wanted = messages_of(expected);
    kin_history_merge_later_system(messages);
    if (!json_equal(messages, wanted)) {
        char *text = json_dumps(messages, 0);
        print_error("%s\n", text);
        free(text);
        fail_msg("not %s", expected);
    }
    json_decref(messages);
    json_decref(wanted);
}
#define merges(...) FROM_TEST(merges(__VA_ARGS__))

static void the_first_system_messages_become_one(void **state) {
    (void)state;
    merges("system:a|user:b", "system:a|user:b");
    merges("system:a|system:b|system:c|user:d", "system:a\n\nb\n\nc|user:d");
    merges("system:a|system:b", "system:a\n\nb");
}

static void later_ones_join_the_users_message_beside_them(void **state) {
    (void)state;
    merges("user:a|system:b|system:c|assistant:d", "user:a\n\nb\n\nc|assistant:d");
    merges("user:a|assistant:b|system:c|user:d", "user:a|assistant:b|user:c\n\nd");
    merges("user:a|assistant:b|system:c|system:d|user:e", "user:a|assistant:b|user:c\n\nd\n\ne");
}

static void others_become_one_message_of_the_user(void **state) {
    (void)state;
    merges("user:a|assistant:b|system:c|system:d|assistant:e", "user:a|assistant:b|user:c\n\nd|assistant:e");
    merges("user:a|assistant:b|system:c", "user:a|assistant:b|user:c");
}

static void results_of_calls_stay_together(void **state) {
    (void)state;
    merges("user:a|assistant:b|tool:c|system:d|tool:e|system:f|assistant:g",
           "user:a|assistant:b|tool:c|tool:e|user:d\n\nf|assistant:g");
    merges("user:a|assistant:b|system:c|tool:d|user:e", "user:a|assistant:b|tool:d|user:c\n\ne");
}

// Were the time quadratic in the messages, this would take a quarter of an hour.
static void a_million_of_them_are_merged(void **state) {
    (void)state;
    enum { N = 1000000 };
    json_t *messages = json_array(), *one = json_pack("{s:s, s:s}", "role", "system", "content", "a");
    for (int i = 0; i < N; i++) json_array_append(messages, one);
    json_array_set_new(messages, 0, json_deep_copy(one));
    kin_history_merge_later_system(messages);
    assert_int_equal(json_array_size(messages), 1);
    assert_int_equal(json_string_length(json_object_get(json_array_get(messages, 0), "content")), 3 * (N - 1) + 1);
    json_decref(messages);
    json_decref(one);
}

static void keys_of_schemas_are_sorted_as_dictsort_does(void **state) {
    (void)state;
    json_t *given =
        json_loads("{\"Zeta\":1,\"alpha\":[{\"b\":1,\"A\":2}],\"file_path\":2,\"filePath\":{},\"B\":3,\"b\":4}", 0, NULL);
    json_t *sorted = kin_history_sort_keys(given);
    char *text = json_dumps(sorted, JSON_COMPACT);
    // As ['Zeta', 'alpha', ...] | dictsort of Jinja 3.1: 'filepath' comes after 'file_path', because '_' is less than 'p'.
    assert_string_equal(text, "{\"alpha\":[{\"A\":2,\"b\":1}],\"B\":3,\"b\":4,\"file_path\":2,\"filePath\":{},\"Zeta\":1}");
    free(text);
    json_decref(sorted);
    json_decref(given);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_first_system_messages_become_one),  cmocka_unit_test(later_ones_join_the_users_message_beside_them),
        cmocka_unit_test(others_become_one_message_of_the_user), cmocka_unit_test(results_of_calls_stay_together),
        cmocka_unit_test(a_million_of_them_are_merged),          cmocka_unit_test(keys_of_schemas_are_sorted_as_dictsort_does),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
