#include "pure/text/chat/format.h"

#include <string.h>

#include "base/err.h"

#define THINK_TAGS .think_begin = "<think>", .think_end = "</think>"
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
};

const kin_chat_format *kin_chat_format_known(kin_chat_known which) {
    kin_assert(which >= 0 && which < KIN_CHAT_N_KNOWN);
    return &known[which];
}

bool kin_chat_format_has_token(const kin_chat_format *f, kin_str name) {
    const char *const marks[] = {f->calls_begin, f->calls_end, f->call_begin,  f->call_end,   f->name_begin, f->name_end,
                                 f->id_begin,    f->key_begin, f->key_end,     f->type_end,   f->value_end,  f->arguments_end,
                                 f->quote,       f->think_end, f->think_begin, f->text_begin, f->text_end};
    for (size_t i = 0; i < sizeof marks / sizeof *marks && name.len > 0; i++) {
        for (const char *at = marks[i]; strlen(at) >= name.len; at++)
            if (memcmp(at, name.at, name.len) == 0) return true;
    }
    return false;
}

static bool is_space(char c) {
    return c == ' ' || c == '\n' || c == '\t' || c == '\r';
}

kin_mark_match kin_chat_mark_match(const char *mark, kin_str bytes) {
    for (size_t i = 0;; i++, mark++) {
        while (i < bytes.len && is_space(bytes.at[i])) i++;
        while (is_space(*mark)) mark++;
        if (i == bytes.len) return *mark ? KIN_MARK_PREFIX : KIN_MARK_EQUAL;
        if (*mark != bytes.at[i]) return KIN_MARK_DIFFERS;
    }
}
