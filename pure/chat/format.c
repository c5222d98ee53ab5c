#include "pure/chat/format.h"

#include <string.h>

#include "base/err.h"

#define THINK_TAGS .think_begin = "<think>", .think_end = "</think>"
// DeepSeek's marks are written with a full-width bar and a lower block instead of | and _.
#define BAR "\xef\xbd\x9c"
#define GAP "\xe2\x96\x81"
#define DEEPSEEK_MARKS                                                                                                           \
    .calls_begin = "<" BAR "tool" GAP "calls" GAP "begin" BAR ">", .calls_end = "<" BAR "tool" GAP "calls" GAP "end" BAR ">",    \
    .call_begin = "<" BAR "tool" GAP "call" GAP "begin" BAR ">", .call_end = "<" BAR "tool" GAP "call" GAP "end" BAR ">"
#define DEEPSEEK_SEP "<" BAR "tool" GAP "sep" BAR ">"
#define DSML BAR "DSML" BAR
#define NAME_AND_ARGUMENTS .name_key = "name", .arguments_key = "arguments"

static const kin_chat_format known[] = {
    [KIN_CHAT_PLAIN] = {THINK_TAGS},
    [KIN_CHAT_HERMES] =
        {.syntax = KIN_CALL_OBJECT, .call_begin = "<tool_call>", .call_end = "</tool_call>", NAME_AND_ARGUMENTS, THINK_TAGS},
    [KIN_CHAT_XML] = {.syntax = KIN_CALL_PARAMETERS,
                      .call_begin = "<tool_call>",
                      .call_end = "</tool_call>",
                      .name_begin = "<function=",
                      .name_end = ">",
                      .arguments_end = "</function>",
                      .key_begin = "<parameter=",
                      .key_end = ">",
                      .value_end = "</parameter>",
                      .pads_values = true,
                      THINK_TAGS},
    [KIN_CHAT_LLAMA] = {.syntax = KIN_CALL_OBJECT,
                        .is_bare = true,
                        .calls_begin = "<|python_tag|>",
                        .name_key = "name",
                        .arguments_key = "parameters",
                        THINK_TAGS},
    [KIN_CHAT_MISTRAL] = {.syntax = KIN_CALL_OBJECT,
                          .is_list = true,
                          .calls_begin = "[TOOL_CALLS]",
                          NAME_AND_ARGUMENTS,
                          .id_key = "id",
                          THINK_TAGS},
    [KIN_CHAT_MISTRAL_LABELS] =
        {.syntax = KIN_CALL_JSON, .call_begin = "[TOOL_CALLS]", .id_begin = "[CALL_ID]", .name_end = "[ARGS]", THINK_TAGS},
    [KIN_CHAT_DEEPSEEK] = {.syntax = KIN_CALL_JSON,
                           DEEPSEEK_MARKS,
                           .name_begin = "function" DEEPSEEK_SEP,
                           .name_end = "```json",
                           .arguments_end = "```",
                           THINK_TAGS},
    [KIN_CHAT_DEEPSEEK_31] = {.syntax = KIN_CALL_JSON, DEEPSEEK_MARKS, .name_end = DEEPSEEK_SEP, THINK_TAGS},
    [KIN_CHAT_DSML] = {.syntax = KIN_CALL_PARAMETERS,
                       .calls_begin = "<" DSML "function_calls>",
                       .calls_end = "</" DSML "function_calls>",
                       .name_begin = "<" DSML "invoke name=\"",
                       .name_end = "\">",
                       .arguments_end = "</" DSML "invoke>",
                       .key_begin = "<" DSML "parameter name=\"",
                       .key_end = "\" string=\"",
                       .string_type = "true",
                       .other_type = "false",
                       .type_end = "\">",
                       .value_end = "</" DSML "parameter>",
                       THINK_TAGS},
    [KIN_CHAT_GLM] = {.syntax = KIN_CALL_PARAMETERS,
                      .call_begin = "<tool_call>",
                      .call_end = "</tool_call>",
                      .key_begin = "<arg_key>",
                      .key_end = "</arg_key>\n<arg_value>",
                      .value_end = "</arg_value>",
                      THINK_TAGS},
    [KIN_CHAT_KIMI] = {.syntax = KIN_CALL_JSON,
                       .id_names = true,
                       .calls_begin = "<|tool_calls_section_begin|>",
                       .calls_end = "<|tool_calls_section_end|>",
                       .call_begin = "<|tool_call_begin|>",
                       .call_end = "<|tool_call_end|>",
                       .name_end = "<|tool_call_argument_begin|>",
                       THINK_TAGS},
    [KIN_CHAT_KIMI_3] = {.syntax = KIN_CALL_PARAMETERS,
                         .calls_begin = "<|open|>tools<|sep|>",
                         .calls_end = "<|close|>tools<|sep|>",
                         .name_begin = "<|open|>call tool=\"",
                         .name_end = "\" index=\"" KIN_MARK_DIGITS "\"<|sep|>",
                         .arguments_end = "<|close|>call<|sep|>",
                         .key_begin = "<|open|>argument key=\"",
                         .key_end = "\" type=\"",
                         .string_type = "string",
                         .type_end = "\"<|sep|>",
                         .value_end = "<|close|>argument<|sep|>",
                         .think_begin = "<|open|>think<|sep|>",
                         .think_end = "<|close|>think<|sep|>",
                         .text_begin = "<|open|>response<|sep|>",
                         .text_end = "<|close|>response<|sep|>",
                         .turn_end = "<|close|>message<|sep|>"},
    [KIN_CHAT_MINIMAX] = {.syntax = KIN_CALL_PARAMETERS,
                          .calls_begin = "<minimax:tool_call>",
                          .calls_end = "</minimax:tool_call>",
                          .name_begin = "<invoke name=\"",
                          .name_end = "\">",
                          .arguments_end = "</invoke>",
                          .key_begin = "<parameter name=\"",
                          .key_end = "\">",
                          .value_end = "</parameter>",
                          THINK_TAGS},
    [KIN_CHAT_SEED] = {.syntax = KIN_CALL_PARAMETERS,
                       .call_begin = "<seed:tool_call>",
                       .call_end = "</seed:tool_call>",
                       .name_begin = "<function=",
                       .name_end = ">",
                       .arguments_end = "</function>",
                       .key_begin = "<parameter=",
                       .key_end = ">",
                       .value_end = "</parameter>",
                       .think_begin = "<seed:think>",
                       .think_end = "</seed:think>"},
    [KIN_CHAT_GEMMA] = {.syntax = KIN_CALL_QUOTED,
                        .call_begin = "<|tool_call>",
                        .call_end = "<tool_call|>",
                        .name_begin = "call:",
                        .quote = "<|\"|>",
                        .think_begin = "<|channel>thought\n",
                        .think_end = "<channel|>"},
    [KIN_CHAT_HARMONY] = {.syntax = KIN_CALL_CHANNELS,
                          .call_begin = "<|start|>",
                          .name_begin = "<|channel|>",
                          .name_end = "<|constrain|>",
                          .arguments_end = "<|message|>",
                          .call_end = "<|call|>",
                          .think_begin = "<|channel|>analysis<|message|>",
                          .think_end = "<|end|>"},
    [KIN_CHAT_LFM] = {.syntax = KIN_CALL_PYTHON,
                      .is_list = true,
                      .calls_begin = "<|tool_call_start|>",
                      .calls_end = "<|tool_call_end|>",
                      THINK_TAGS},
    [KIN_CHAT_OLMO] = {.syntax = KIN_CALL_PYTHON,
                       .calls_begin = "<function_calls>",
                       .calls_end = "</function_calls>",
                       THINK_TAGS},
    [KIN_CHAT_PYTHONIC] = {.syntax = KIN_CALL_PYTHON, .is_list = true, .is_bare = true, THINK_TAGS},
    [KIN_CHAT_COMMAND] = {.syntax = KIN_CALL_OBJECT,
                          .is_list = true,
                          .calls_begin = "<|START_ACTION|>",
                          .calls_end = "<|END_ACTION|>",
                          .id_first = true,
                          .id_key = "tool_call_id",
                          .name_key = "tool_name",
                          .arguments_key = "parameters",
                          .think_begin = "<|START_THINKING|>",
                          .think_end = "<|END_THINKING|>",
                          .text_begin = "<|START_RESPONSE|>",
                          .text_end = "<|END_RESPONSE|>"},
    [KIN_CHAT_GRANITE] =
        {.syntax = KIN_CALL_OBJECT, .is_list = true, .calls_begin = "<|tool_call|>", NAME_AND_ARGUMENTS, THINK_TAGS},
    [KIN_CHAT_PHI] = {.syntax = KIN_CALL_OBJECT,
                      .is_list = true,
                      .calls_begin = "<|tool_call|>",
                      .calls_end = "<|/tool_call|>",
                      NAME_AND_ARGUMENTS},
    [KIN_CHAT_NEMOTRON] = {.syntax = KIN_CALL_OBJECT,
                           .is_list = true,
                           .calls_begin = "<TOOLCALL>",
                           .calls_end = "</TOOLCALL>",
                           NAME_AND_ARGUMENTS,
                           THINK_TAGS},
    [KIN_CHAT_APERTUS] = {.syntax = KIN_CALL_OBJECT,
                          .is_list = true,
                          .calls_begin = "<|tools_prefix|>",
                          .calls_end = "<|tools_suffix|>",
                          .think_begin = "<|inner_prefix|>",
                          .think_end = "<|inner_suffix|>"},
    [KIN_CHAT_MINIMAX_1] =
        {.syntax = KIN_CALL_OBJECT, .calls_begin = "<tool_calls>", .calls_end = "</tool_calls>", NAME_AND_ARGUMENTS, THINK_TAGS},
    [KIN_CHAT_FUNCTION] = {.syntax = KIN_CALL_JSON, .call_begin = "<function=", .name_end = ">", .call_end = "</function>"},
    [KIN_CHAT_FIREFUNCTION] = {.syntax = KIN_CALL_OBJECT, .is_list = true, .calls_begin = "functools", NAME_AND_ARGUMENTS},
    [KIN_CHAT_RECIPIENTS] = {.syntax = KIN_CALL_JSON, .is_begun = true, .call_begin = ">>>", .text_begin = ">>>all\n"},
    [KIN_CHAT_GIGACHAT] = {.syntax = KIN_CALL_OBJECT,
                           .call_begin = "function call<|role_sep|>",
                           NAME_AND_ARGUMENTS,
                           THINK_TAGS,
                           .text_end = "<|message_sep|>"},
    [KIN_CHAT_MUSE] = {.syntax = KIN_CALL_PARAMETERS,
                       .call_begin = "to=" KIN_MARK_NAME "<|message|><atem:function_calls>",
                       .call_end = "</atem:function_calls>",
                       .name_begin = "<atem:invoke name=\"",
                       .name_end = "\">",
                       .arguments_end = "</atem:invoke>",
                       .key_begin = "<atem:parameter name=\"",
                       .key_end = "\">",
                       .value_end = "</atem:parameter>",
                       .think_begin = "to=self<|message|>",
                       .think_end = "<|eom|><|start|>assistant",
                       .text_begin = "to=user<|message|>",
                       .text_end = "<|eom|><|start|>assistant",
                       .ends_messages = true},
};

const kin_chat_format *kin_chat_format_known(kin_chat_known which) {
    kin_assert(which >= 0 && which < KIN_CHAT_N_KNOWN);
    return &known[which];
}

bool kin_chat_format_has_token(const kin_chat_format *f, kin_str name) {
    const char *const marks[] = {f->calls_begin, f->calls_end, f->call_begin,  f->call_end,   f->name_begin, f->name_end,
                                 f->id_begin,    f->key_begin, f->key_end,     f->type_end,   f->value_end,  f->arguments_end,
                                 f->quote,       f->think_end, f->think_begin, f->text_begin, f->text_end,   f->turn_end};
    for (size_t i = 0; i < sizeof marks / sizeof *marks && name.len > 0; i++) {
        for (const char *at = marks[i]; strlen(at) >= name.len; at++)
            if (memcmp(at, name.at, name.len) == 0) return true;
    }
    return false;
}

static bool is_digit(char c) {
    return c >= '0' && c <= '9';
}

// True for a byte of what the placeholder stands for.
static bool stands_for(char placeholder, char c) {
    return placeholder == KIN_MARK_DIGITS[0] ? is_digit(c) : !kin_is_space(c) && c != '<';
}

kin_mark_match kin_chat_mark_match(const char *mark, kin_str bytes) {
    for (size_t i = 0;; mark++) {
        while (i < bytes.len && kin_is_space(bytes.at[i])) i++;
        while (kin_is_space(*mark)) mark++;
        if (i == bytes.len) return *mark ? KIN_MARK_PREFIX : KIN_MARK_EQUAL;
        bool is_placeholder = *mark == KIN_MARK_DIGITS[0] || *mark == KIN_MARK_NAME[0];
        if (is_placeholder ? !stands_for(*mark, bytes.at[i]) : *mark != bytes.at[i]) return KIN_MARK_DIFFERS;
        for (i++; is_placeholder && i < bytes.len && stands_for(*mark, bytes.at[i]);) i++;
    }
}
