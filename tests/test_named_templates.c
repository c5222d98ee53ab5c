// Chat templates by name: each gives the same prompt for one chat as llama.cpp 0.7.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

#include "pure/chat/named_templates.h"
#include "pure/jinja/jinja.h"
#include "testkit/json_value.h"
#include "tests/place.h"

static void expect_printed(const char *name, const char *expected) {
    kin_err err = {""};
    kin_jinja *jinja = NULL;
    kin_jinja_text text = {0};
    const char *source = kin_named_template(name);
    json_t *variables =
        json_loads("{\"messages\": [{\"role\": \"system\", \"content\": \"Be kind.\"}, {\"role\": \"user\", \"content\": \"Hi\"},"
                   "{\"role\": \"assistant\", \"content\": \"Hello\"}, {\"role\": \"user\", \"content\": \"Bye\"}],"
                   "\"add_generation_prompt\": true}",
                   0, NULL);
    kin_values *values = kin_values_new(1 << 20);
    assert_non_null(source);
    if (kin_jinja_new(&jinja, source, strlen(source), &err) != 0) fail_msg("%s: %s", name, err.text);
    if (kin_jinja_render(jinja, values, json_variables(values, variables), 0, &text, &err) != 0)
        fail_msg("%s: %s", name, err.text);
    if (text.len != strlen(expected) || memcmp(text.at, expected, text.len) != 0)
        fail_msg("%s: '%.*s', not '%s'", name, (int)text.len, text.at, expected);
    kin_jinja_free(jinja);
    kin_values_free(values);
    json_decref(variables);
}
#define expect_printed(...) FROM_TEST(expect_printed(__VA_ARGS__))

static void each_prints_what_llama_cpp_prints(void **state) {
    (void)state;
    static const struct {
        const char *name, *expected;
    } cases[] = {
        {"chatml", "<|im_start|>system\nBe "
                   "kind.<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\nHello<|im_end|>\n<|im_start|>"
                   "user\nBye<|im_end|>\n<|im_start|>assistant\n"},
        {"llama2", "[INST] Be kind.\nHi [/INST]Hello</s>[INST] Bye [/INST]"},
        {"llama2-sys", "[INST] <<SYS>>\nBe kind.\n<</SYS>>\n\nHi [/INST]Hello</s>[INST] Bye [/INST]"},
        {"llama3", "<|start_header_id|>system<|end_header_id|>\n\nBe "
                   "kind.<|eot_id|><|start_header_id|>user<|end_header_id|>\n\nHi<|eot_id|><|start_header_id|>assistant<|end_"
                   "header_id|>\n\nHello<|eot_id|><|start_header_id|>user<|end_header_id|>\n\nBye<|eot_id|><|start_header_id|>"
                   "assistant<|end_header_id|>\n\n"},
        {"llama4", "<|header_start|>system<|header_end|>\n\nBe "
                   "kind.<|eot|><|header_start|>user<|header_end|>\n\nHi<|eot|><|header_start|>assistant<|header_end|>\n\nHello<|"
                   "eot|><|header_start|>user<|header_end|>\n\nBye<|eot|><|header_start|>assistant<|header_end|>\n\n"},
        {"mistral-v1", " [INST] Be kind.\n\nHi [/INST] Hello</s> [INST] Bye [/INST]"},
        {"mistral-v3", "[INST] Be kind.\n\nHi[/INST] Hello</s>[INST] Bye[/INST]"},
        {"mistral-v3-tekken", "[INST]Be kind.\n\nHi[/INST]Hello</s>[INST]Bye[/INST]"},
        {"mistral-v7", "[SYSTEM_PROMPT] Be kind.[/SYSTEM_PROMPT][INST] Hi[/INST] Hello</s>[INST] Bye[/INST]"},
        {"mistral-v7-tekken", "[SYSTEM_PROMPT]Be kind.[/SYSTEM_PROMPT][INST]Hi[/INST]Hello</s>[INST]Bye[/INST]"},
        {"phi3",
         "<|system|>\nBe kind.<|end|>\n<|user|>\nHi<|end|>\n<|assistant|>\nHello<|end|>\n<|user|>\nBye<|end|>\n<|assistant|>\n"},
        {"phi4", "<|im_start|>system<|im_sep|>Be "
                 "kind.<|im_end|><|im_start|>user<|im_sep|>Hi<|im_end|><|im_start|>assistant<|im_sep|>Hello<|im_end|><|im_start|>"
                 "user<|im_sep|>Bye<|im_end|><|im_start|>assistant<|im_sep|>"},
        {"zephyr", "<|system|>\nBe "
                   "kind.<|endoftext|>\n<|user|>\nHi<|endoftext|>\n<|assistant|>\nHello<|endoftext|>\n<|user|>\nBye<|endoftext|>"
                   "\n<|assistant|>\n"},
        {"monarch", "system\nBe kind.</s>\n<s>user\nHi</s>\n<s>assistant\nHello</s>\n<s>user\nBye</s>\n<s>assistant\n"},
        {"gemma", "<start_of_turn>user\nBe "
                  "kind.\n\nHi<end_of_turn>\n<start_of_turn>model\nHello<end_of_turn>\n<start_of_turn>user\nBye<end_of_turn>\n<"
                  "start_of_turn>model\n"},
        {"vicuna", "Be kind.\n\nUSER: Hi\nASSISTANT: Hello</s>\nUSER: Bye\nASSISTANT:"},
        {"vicuna-orca", "SYSTEM: Be kind.\nUSER: Hi\nASSISTANT: Hello</s>\nUSER: Bye\nASSISTANT:"},
        {"deepseek", "Be kind.### Instruction:\nHi\n### Response:\nHello\n<|EOT|>\n### Instruction:\nBye\n### Response:\n"},
        {"deepseek2", "Be kind.\n\nUser: Hi\n\nAssistant: Hello<｜end▁of▁sentence｜>User: Bye\n\nAssistant:"},
        {"deepseek3", "Be kind.\n\n<｜User｜>Hi<｜Assistant｜>Hello<｜end▁of▁sentence｜><｜User｜>Bye<｜Assistant｜>"},
        {"command-r", "<|START_OF_TURN_TOKEN|><|SYSTEM_TOKEN|>Be "
                      "kind.<|END_OF_TURN_TOKEN|><|START_OF_TURN_TOKEN|><|USER_TOKEN|>Hi<|END_OF_TURN_TOKEN|><|START_OF_TURN_"
                      "TOKEN|><|CHATBOT_TOKEN|>Hello<|END_OF_TURN_TOKEN|><|START_OF_TURN_TOKEN|><|USER_TOKEN|>Bye<|END_OF_TURN_"
                      "TOKEN|><|START_OF_TURN_TOKEN|><|CHATBOT_TOKEN|>"},
        {"chatglm3", "[gMASK]sop<|system|>\n Be kind.<|user|>\n Hi<|assistant|>\n Hello<|user|>\n Bye<|assistant|>"},
        {"chatglm4", "[gMASK]<sop><|system|>\nBe kind.<|user|>\nHi<|assistant|>\nHello<|user|>\nBye<|assistant|>\n"},
        {"openchat", "Be kind.<|end_of_turn|>GPT4 Correct User: Hi<|end_of_turn|>GPT4 Correct Assistant: "
                     "Hello<|end_of_turn|>GPT4 Correct User: Bye<|end_of_turn|>GPT4 Correct Assistant:"},
        {"falcon3", "<|system|>\nBe kind.\n<|user|>\nHi\n<|assistant|>\nHello\n<|user|>\nBye\n<|assistant|>\n"},
        {"granite", "<|start_of_role|>system<|end_of_role|>Be "
                    "kind.<|end_of_text|>\n<|start_of_role|>user<|end_of_role|>Hi<|end_of_text|>\n<|start_of_role|>assistant<|"
                    "end_of_role|>Hello<|end_of_text|>\n<|start_of_role|>user<|end_of_role|>Bye<|end_of_text|>\n<|start_of_role|>"
                    "assistant<|end_of_role|>"},
        {"exaone3", "[|system|]Be kind.[|endofturn|]\n[|user|]Hi\n[|assistant|]Hello[|endofturn|]\n[|user|]Bye\n[|assistant|]"},
    };
    int n = sizeof cases / sizeof cases[0];
    for (int i = 0; i < n; i++) {
        assert_string_equal(kin_named_template_at(i), cases[i].name);
        expect_printed(cases[i].name, cases[i].expected);
    }
    assert_null(kin_named_template_at(n));
    assert_null(kin_named_template_at(-1));
}

static void a_name_that_is_not_there_has_none(void **state) {
    (void)state;
    assert_null(kin_named_template("no-such"));
    assert_null(kin_named_template(""));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_prints_what_llama_cpp_prints),
        cmocka_unit_test(a_name_that_is_not_there_has_none),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
