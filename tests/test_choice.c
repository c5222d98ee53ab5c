// A choice (serve/choice.h): stop words beside tool calls.
#include "tests/demo_model.h"

#include <stdio.h>
#include <string.h>

#include "serve/choice.h"
#include "tests/place.h"

typedef struct heard {
    char text[1024]; // text of all events
    int n_takes;
} heard;

static void hear(void *user, int index, const kin_reply_event *events, int n) {
    heard *h = user;
    (void)index;
    h->n_takes++;
    for (int i = 0; i < n; i++) {
        const kin_reply_event *e = &events[i];
        static const char *const kinds[] = {"", "~", "(", "", ")"};
        size_t len = strlen(h->text);
        snprintf(h->text + len, sizeof h->text - len, "%s%.*s%.*s%s", kinds[e->kind], (int)e->name.len,
                 e->name.len ? e->name.at : "", (int)e->text.len, e->text.len ? e->text.at : "",
                 e->kind == KIN_REPLY_TOOL_BEGIN ? ":" : "");
    }
}

static const kin_reply_tool tools[] = {{.name = {"f", 1}}};

// Records what is heard of a reply that arrives in pieces of `piece` bytes, followed by "|WORD" if a stop word was found.
static void listen(heard *h, kin_chat_known format, const char *reply, size_t piece, const char *stop) {
    kin_request request = {.is_chat = true, .stops = {{stop, strlen(stop)}}, .n_stops = 1};
    kin_reply_options options = {.format = kin_chat_format_known(format), .tools = tools, .n_tools = 1, .reasoning = true};
    kin_choice c;
    kin_err err;
    *h = (heard){0};
    assert_int_equal(kin_choice_open(&c, demo.session.vocab, &request, &options, &err), 0);
    c.on_events = hear;
    c.user = h;
    for (size_t at = 0, len = strlen(reply); at < len && !kin_choice_is_cut(&c); at += piece)
        assert_int_equal(kin_choice_push(&c, -1, (kin_str){reply + at, len - at < piece ? len - at : piece}, &err), 0);
    assert_int_equal(kin_choice_flush(&c, kin_choice_is_cut(&c), &err), 0);
    assert_false(c.in_call);
    assert_int_equal(c.has_calls, strchr(h->text, ')') != NULL);
    assert_int_equal(c.has_new_line, strchr(h->text, '\n') != NULL);
    if (c.stop_word >= 0) strcat(h->text, "|");
    kin_choice_close(&c);
}
#define listen(...) FROM_TEST(listen(__VA_ARGS__))

#define CALL "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": \"x y\"}}\n</tool_call>"
#define HEARD "(f:{\"a\": \"x y\"})"

static void stop_words_do_not_match_inside_of_calls(void **state) {
    (void)state;
    static const struct {
        kin_chat_known format;
        const char *reply, *stop, *heard;
    } cases[] = {
        {KIN_CHAT_HERMES, "one " CALL, "{\"", "one" HEARD},
        {KIN_CHAT_HERMES, CALL, "x y", HEARD},
        {KIN_CHAT_HERMES, CALL, "f\", \"arg", HEARD},
        {KIN_CHAT_HERMES, CALL "\n" CALL, "name", HEARD HEARD},
        {KIN_CHAT_HERMES, CALL, "\n", HEARD "|"},            // after the object
        {KIN_CHAT_HERMES, "one " CALL, "call", "one" HEARD}, // in the marker
        {KIN_CHAT_HERMES, "one " CALL, "<tool", "one" HEARD},
        {KIN_CHAT_HERMES, "one " CALL, ">", "one" HEARD},
        {KIN_CHAT_HERMES, CALL CALL, "_call>", HEARD HEARD},
        {KIN_CHAT_HERMES, "a <tool box", "<tool", "a |"}, // no marker
        {KIN_CHAT_HERMES, "a <<tool_cal", "cal", "a <<tool_|"},
        {KIN_CHAT_HERMES, "a <tool_", "_", "a <tool|"},
        {KIN_CHAT_XML, "<tool_call>\n<function=f>\n</function>\n</tool_call>", "function", "(f:{})"},
        {KIN_CHAT_MISTRAL, "[TOOL_CALLS][{\"name\": \"f\", \"arguments\": {\"a\": \"x y\"}}]", "TOOL", HEARD},
        {KIN_CHAT_LLAMA, "{\"name\": \"f\", \"parameters\": {\"a\": \"x y\"}}", "{", HEARD},
        {KIN_CHAT_LLAMA, "a {b", "{", "a |"},
        {KIN_CHAT_HERMES, CALL "\nx y z", "x y", HEARD "|"},
        {KIN_CHAT_HERMES, "a x y " CALL, "x y", "a |"},
        {KIN_CHAT_HERMES, "one " CALL, "e <tool_call>\n{", "on|"},         // the stop word begins before the call
        {KIN_CHAT_HERMES, "one " CALL, "e <tool_call>\n{no", "one" HEARD}, // ... and turns out to be none
        {KIN_CHAT_HERMES, "<think>x y</think>" CALL, "x y", "|"},
        {KIN_CHAT_MISTRAL, "[TOOL_CALLS][{\"name\": \"f\", \"arguments\": {\"a\": \"x y\"}}]", "}", HEARD},
        {KIN_CHAT_LLAMA, "{\"name\": \"f\", \"parameters\": {\"a\": \"x y\"}}", "parameters", HEARD},
        {KIN_CHAT_PLAIN, "a x y", "x y", "a |"},
        {KIN_CHAT_PLAIN, "a\nb x y", "x y", "a\nb |"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        for (size_t piece = 1; piece < 120; piece += piece < 8 ? 1 : 37) {
            heard h;
            listen(&h, cases[i].format, cases[i].reply, piece, cases[i].stop);
            if (strcmp(h.text, cases[i].heard) != 0)
                fail_msg("%s stopped by %s in pieces of %zu: %s", cases[i].reply, cases[i].stop, piece, h.text);
        }
    }
}

static void what_comes_together_is_given_together(void **state) {
    (void)state;
    heard h;
    listen(&h, KIN_CHAT_HERMES, "one, two and three", 100, "never");
    assert_string_equal(h.text, "one, two and three");
    assert_true(h.n_takes <= 2);
    listen(&h, KIN_CHAT_HERMES, CALL, 100, "never");
    assert_true(h.n_takes <= 4);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(stop_words_do_not_match_inside_of_calls),
        cmocka_unit_test(what_comes_together_is_given_together),
    };
    return cmocka_run_group_tests(tests, open_demo, close_demo);
}
