// Prompts of chats: the template chosen from a model's file, and the template's variables.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "serve/prompt.h"
#include "testkit/gguf_write.h"
#include "testkit/small_vocab.h"
#include "tests/place.h"

typedef struct model {
    kin_session session;
    kin_prompter *prompter;
    uint8_t *bytes;
} model;

// Opens a model with these templates (NULL: none). The model has no weights and cannot compute.
static void open_model(model *m, const char *chat, const char *tool_use) {
    kin_vocab_spec spec = small_spm_spec();
    kin_gguf_writer *w = kin_gguf_writer_new();
    size_t size;
    kin_err err;
    *m = (model){0};
    kin_gguf_writer_put_str(w, "general.architecture", "llama");
    if (chat) kin_gguf_writer_put_str(w, "tokenizer.chat_template", chat);
    if (tool_use) kin_gguf_writer_put_str(w, "tokenizer.chat_template.tool_use", tool_use);
    kin_gguf_writer_save_bytes(w, &m->bytes, &size);
    kin_gguf_writer_free(w);
    assert_int_equal(kin_gguf_open_bytes(&m->session.model.gguf, "m.gguf", m->bytes, size, NULL), 0);
    assert_int_equal(kin_vocab_new(&m->session.vocab, &spec, &err), 0);
    assert_int_equal(kin_prompter_open(&m->prompter, &m->session, NULL, &err), 0);
}
#define open_model(...) FROM_TEST(open_model(__VA_ARGS__))

static void close_model(model *m) {
    kin_prompter_close(m->prompter);
    kin_vocab_free(m->session.vocab);
    kin_gguf_close(m->session.model.gguf);
    free(m->bytes);
}

#define USER "[{\"role\":\"user\",\"content\":\"Hi\"}]"
#define TOOLS                                                                                                                    \
    "[{\"type\":\"function\",\"function\":{\"name\":\"add\",\"description\":\"d\",\"parameters\":{\"type\":\"object\","          \
    "\"properties\":{\"a\":{\"type\":\"integer\",\"description\":\"x\"}},\"required\":[\"a\"]}}}]"

static int render(const model *m, const char *messages, const char *tools, kin_prompt *prompt, kin_api_error *err) {
    json_t *said = json_loads(messages, 0, NULL), *offered = tools ? json_loads(tools, 0, NULL) : NULL;
    kin_request r = {.is_chat = true, .add_generation_prompt = true, .thinking = KIN_UNSET, .messages = said, .tools = offered};
    int rc = kin_prompter_render(m->prompter, &r, prompt, err);
    json_decref(said);
    json_decref(offered);
    return rc;
}

#define expect_prompt(m, tools, wanted)                                                                                          \
    do {                                                                                                                         \
        kin_prompt prompt_ = {0};                                                                                                \
        kin_api_error err_ = {0};                                                                                                \
        if (render(m, USER, tools, &prompt_, &err_) != 0) fail_msg("%s", err_.message);                                          \
        kin_text_put(&prompt_.text, "", 1);                                                                                      \
        assert_string_equal(prompt_.text.at, wanted);                                                                            \
        kin_prompt_fini(&prompt_);                                                                                               \
    } while (0)

static void tools_that_are_not_there_may_be_looped_over(void **state) {
    (void)state;
    model m;
    open_model(&m, "{% for t in tools %}{{ t.function.name }}{% endfor %}{{ messages[0].content }}", NULL);
    expect_prompt(&m, NULL, "Hi");
    close_model(&m);
    open_model(&m, "{% for d in documents %}{{ d.text }}{% endfor %}{{ messages[0].content }}", NULL);
    expect_prompt(&m, NULL, "Hi");
    close_model(&m);
}

static void tools_that_are_not_there_are_none_where_the_template_asks(void **state) {
    (void)state;
    model m;
    open_model(&m, "{% if tools is not none %}Tools: {% endif %}{{ messages[0].content }}", NULL);
    expect_prompt(&m, NULL, "Hi");
    close_model(&m);
}

static void a_template_that_does_not_compile_refuses_chats_only(void **state) {
    (void)state;
    static const char *const bad[] = {"{% extends 'a' %}", "{% include 'b' %}x", "{{ f(*) }}", "{% for %}"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        model m;
        kin_prompt prompt;
        kin_api_error err = {0};
        open_model(&m, bad[i], NULL);
        assert_int_equal(render(&m, USER, NULL, &prompt, &err), KIN_FAIL);
        assert_int_equal(err.status, 501);
        assert_non_null(strstr(err.message, "chat template does not compile"));
        assert_non_null(strstr(err.message, "--chat-template-file"));
        assert_non_null(strstr(err.message, "line 1"));
        assert_int_equal(render(&m, USER, TOOLS, &prompt, &err), KIN_FAIL);
        assert_int_equal(err.status, 501);
        assert_true(kin_str_eq(kin_prompter_template(m.prompter), bad[i]));
        close_model(&m);
    }
}

static void a_template_for_tools_that_does_not_compile_leaves_the_other_one(void **state) {
    (void)state;
    model m;
    open_model(&m, "{{ messages[-1].content }}", "{% include 'b' %}");
    expect_prompt(&m, NULL, "Hi");
    assert_true(kin_prompter_format(m.prompter)->is_generic);
    close_model(&m);
}

static void a_template_given_by_the_user_must_compile(void **state) {
    (void)state;
    model m;
    kin_prompter *prompter;
    kin_err err;
    open_model(&m, NULL, NULL);
    assert_int_equal(kin_prompter_open(&prompter, &m.session, "{% include 'b' %}", &err), KIN_FAIL);
    close_model(&m);
}

static void the_template_for_tools_is_used_with_tools_only(void **state) {
    (void)state;
    static const char tool_use[] =
        "{% for t in tools %}<tools>{{ t | tojson }}</tools>{% endfor %}"
        "{% for m in messages %}{{ m.content }}{% for c in m.tool_calls %}<tool_call>{\"name\": \"{{ c.function.name }}\", "
        "\"arguments\": {{ c.function.arguments | tojson }}}</tool_call>{% endfor %}{% endfor %}";
    model m;
    kin_prompt prompt = {0};
    kin_api_error err = {0};
    open_model(&m, "plain {{ messages[-1].content }}", tool_use);
    assert_false(kin_prompter_format(m.prompter)->is_generic);
    expect_prompt(&m, NULL, "plain Hi");
    assert_int_equal(render(&m, USER, TOOLS, &prompt, &err), 0);
    assert_non_null(memmem(prompt.text.at, prompt.text.len, "<tools>{\"type\"", 14));
    kin_prompt_fini(&prompt);
    close_model(&m);
}

static void dates_are_todays(void **state) {
    (void)state;
    char wanted[64];
    time_t now = time(NULL);
    strftime(wanted, sizeof wanted, "%d %b %Y", localtime(&now));
    model m;
    open_model(&m, "{% if not date_string is defined %}{% set date_string = '26 Jul 2024' %}{% endif %}{{ date_string }}", NULL);
    expect_prompt(&m, NULL, wanted);
    close_model(&m);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tools_that_are_not_there_may_be_looped_over),
        cmocka_unit_test(tools_that_are_not_there_are_none_where_the_template_asks),
        cmocka_unit_test(a_template_that_does_not_compile_refuses_chats_only),
        cmocka_unit_test(a_template_for_tools_that_does_not_compile_leaves_the_other_one),
        cmocka_unit_test(a_template_given_by_the_user_must_compile),
        cmocka_unit_test(the_template_for_tools_is_used_with_tools_only),
        cmocka_unit_test(dates_are_todays),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
