// Chat templates of GGUF files: found by name and rendered.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "model/chat_template.h"
#include "pure/jinja/jinja.h"
#include "testkit/gguf_write.h"

static void templates_are_found_by_name(void **state) {
    (void)state;
    kin_gguf_writer *w = kin_gguf_writer_new();
    kin_gguf *gguf;
    kin_str source;
    kin_err err;
    uint8_t *bytes;
    size_t size;
    kin_gguf_writer_put_str(w, "general.architecture", "llama");
    kin_gguf_writer_put_str(w, "tokenizer.chat_template", "{{ bos_token }}plain");
    kin_gguf_writer_put_str(w, "tokenizer.chat_template.tool_use", "{{ bos_token }}tools");
    kin_gguf_writer_put_int(w, "tokenizer.chat_template.bad", KIN_GGUF_U8, 1);
    kin_gguf_writer_save_bytes(w, &bytes, &size);
    kin_gguf_writer_free(w);
    assert_int_equal(kin_gguf_open_bytes(&gguf, "m.gguf", bytes, size, NULL), 0);

    assert_int_equal(kin_chat_template_source(gguf, NULL, &source, &err), 0);
    assert_true(kin_str_eq(source, "{{ bos_token }}plain"));
    assert_int_equal(kin_chat_template_source(gguf, "tool_use", &source, &err), 0);
    assert_true(kin_str_eq(source, "{{ bos_token }}tools"));
    assert_int_equal(kin_chat_template_source(gguf, "rag", &source, &err), 1);
    assert_int_equal(kin_chat_template_source(gguf, "bad", &source, &err), KIN_FAIL);
    char name[200] = "";
    memset(name, 'x', sizeof name - 1);
    assert_int_equal(kin_chat_template_source(gguf, name, &source, &err), KIN_FAIL);

    assert_int_equal(kin_chat_template_source(gguf, "tool_use", &source, &err), 0);
    kin_jinja *jinja;
    kin_jinja_text text;
    kin_values *values = kin_values_new(1 << 20);
    kin_value *variables = kin_value_dict(values);
    kin_value_put(values, variables, "bos_token", 9, kin_value_string(values, "<s>", 3, KIN_ORIGIN_TEMPLATE));
    assert_int_equal(kin_jinja_new(&jinja, source.at, source.len, &err), 0);
    kin_gguf_close(gguf); // the template holds a copy
    free(bytes);
    assert_int_equal(kin_jinja_render(jinja, values, variables, 0, &text, &err), 0);
    assert_string_equal(text.at, "<s>tools");
    kin_values_free(values);
    kin_jinja_free(jinja);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(templates_are_found_by_name)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
