// The headers of gpt-oss's messages. A reply continues "<|start|>assistant" and is any number of messages:
//
//   <|channel|>analysis<|message|>REASONING<|end|><|start|>assistant
//   <|channel|>commentary to=functions.NAME <|constrain|>json<|message|>{ARGUMENTS}<|call|>
//   to=functions.NAME<|channel|>commentary json<|message|>{ARGUMENTS}<|call|>
//   <|channel|>final<|message|>TEXT<|return|>
//
// A message to another recipient is text with its header. Text on the channel "commentary" is part of the answer.
#include "pure/chat/reply_parser_channels.h"

#include <string.h>

enum { MAX_HEADER = 1024 };

// Returns the offset of the word in the text, or the text's length.
static size_t find(kin_str text, const char *word) {
    size_t n = strlen(word);
    for (size_t i = 0; i + n <= text.len; i++) {
        if (memcmp(text.at + i, word, n) == 0) return i;
    }
    return text.len;
}

static kin_str recipient_of(kin_str header) {
    size_t at = find(header, "to="), end = at += at < header.len ? 3 : 0;
    while (end < header.len && !kin_is_space(header.at[end]) && header.at[end] != '<') end++;
    return (kin_str){header.at + at, end - at};
}

static void enter_message(kin_reply_parser *p, kin_str header) {
    kin_str recipient = recipient_of(header);
    bool is_reasoning = find(header, "analysis") < header.len;
    if (recipient.len > 0) {
        int64_t tool = p->has_calls ? kin_reply_find_tool(p, recipient) : -1;
        if (tool >= 0)
            kin_reply_begin_json(p, tool, (kin_str){"", 0});
        else
            kin_reply_release(p);
        return;
    }
    if (is_reasoning)
        kin_reply_pass_reasoning_mark(p);
    else
        kin_reply_forget(p);
    p->drops_space = false;
    p->state = is_reasoning && p->options.reasoning ? KIN_REPLY_IN_REASONING : KIN_REPLY_IN_TEXT;
    if (!is_reasoning) p->at_beginning = false;
}

bool kin_reply_step_header(kin_reply_parser *p, char c) {
    static const char end[] = "<|message|>";
    enum { N_END = sizeof end - 1 };
    if (!kin_reply_hold(p, c)) return true;
    kin_str header = {p->held.at + p->label.begin, p->held.len - p->label.begin};
    if (header.len > MAX_HEADER) {
        kin_reply_release(p);
    } else if (c == '>' && header.len >= N_END && memcmp(header.at + header.len - N_END, end, N_END) == 0) {
        header.len -= N_END;
        enter_message(p, header);
    }
    return true;
}
