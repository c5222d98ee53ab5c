// Chat format: a description of how a model writes its reasoning and its calls of tools. The reply parser (reply_parser.h) reads
// replies by it, the grammar (reply_grammar.h) is made of it, derive.h finds it from a chat template.
//
// A reply is: reasoning, text, calls. Calls are
//
//   calls_begin  (call_begin name_begin NAME name_end ARGUMENTS arguments_end call_end)...  calls_end
//
// where each mark may be empty, and `syntax` says how a name and its arguments are written. White space around marks has no
// meaning, and neither has white space within them, except in calls_begin, call_begin and think_begin, which are searched for in
// text.
//
// KIN_MARK_DIGITS in a mark is a number: the index that Kimi K3 gives each call. KIN_MARK_NAME in call_begin is the name of a
// tool, which stands there as the recipient of a message.
//
// Plain data: may be copied and compared. The known formats are constants.
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "base/str.h"

#define KIN_MARK_DIGITS "\1"
#define KIN_MARK_NAME "\2"

enum { KIN_CHAT_MAX_MARK = 80, KIN_CHAT_MAX_KEY = 24 }; // bytes with the final NUL

typedef enum kin_call_syntax {
    KIN_CALL_NONE,       // no calls
    KIN_CALL_OBJECT,     // {"name": NAME, "arguments": {...}}, the keys in any order
    KIN_CALL_JSON,       // NAME name_end {...}
    KIN_CALL_PARAMETERS, // NAME name_end, then each parameter between marks of its own; a string is plain text
    KIN_CALL_PYTHON,     // NAME(KEY=VALUE, ...), values as in Python
    KIN_CALL_QUOTED,     // NAME{KEY:VALUE, ...}, strings between `quote`, keys without
    KIN_CALL_CHANNELS,   // gpt-oss: messages with a header that names a channel and a recipient
    KIN_CALL_N_SYNTAXES,
} kin_call_syntax;

typedef struct kin_chat_format {
    kin_call_syntax syntax;
    bool is_list;  // the calls are items of a list: [call, call]
    bool is_bare;  // without marks: a call may be the whole reply, and several are separated by ';'
    bool id_names; // JSON: instead of the name the model writes the id, functions.NAME:0
    bool id_first; // OBJECT
    bool is_raw;   // PYTHON: strings have no escapes, but for those in lists and objects
    bool is_begun; // the prompt ends with call_begin: a reply begins after it, and text with the rest of text_begin
    char calls_begin[KIN_CHAT_MAX_MARK], calls_end[KIN_CHAT_MAX_MARK];
    char call_begin[KIN_CHAT_MAX_MARK], call_end[KIN_CHAT_MAX_MARK];
    char name_begin[KIN_CHAT_MAX_MARK], name_end[KIN_CHAT_MAX_MARK], arguments_end[KIN_CHAT_MAX_MARK];
    char id_begin[KIN_CHAT_MAX_MARK]; // JSON: NAME id_begin ID name_end; may be left out
    // OBJECT. An empty name_key: the object is {NAME: {...}}. id_key: a member that the model may write after the arguments; with
    // id_first it begins the object.
    char name_key[KIN_CHAT_MAX_KEY], arguments_key[KIN_CHAT_MAX_KEY], id_key[KIN_CHAT_MAX_KEY];
    // PARAMETERS: key_begin KEY key_end VALUE value_end; or key_begin KEY key_end TYPE type_end VALUE value_end, where the type
    // is string_type for strings.
    char key_begin[KIN_CHAT_MAX_MARK], key_end[KIN_CHAT_MAX_MARK], value_end[KIN_CHAT_MAX_MARK];
    char type_end[KIN_CHAT_MAX_MARK], string_type[KIN_CHAT_MAX_KEY], other_type[KIN_CHAT_MAX_KEY];
    bool pads_values;             // a line end before and after a value belongs to the format
    char quote[KIN_CHAT_MAX_KEY]; // QUOTED
    char think_begin[KIN_CHAT_MAX_MARK], think_end[KIN_CHAT_MAX_MARK]; // empty: the model does not reason
    char text_begin[KIN_CHAT_MAX_MARK], text_end[KIN_CHAT_MAX_MARK];   // around the text of an answer; left out of it
    char turn_end[KIN_CHAT_MAX_MARK];                                  // text before the token that ends the reply; left out
    bool ends_messages;                                                // text_end stands between calls too: each is a message
} kin_chat_format;

typedef enum kin_chat_known {
    KIN_CHAT_PLAIN,          // no calls
    KIN_CHAT_HERMES,         // <tool_call>{"name": ..., "arguments": {...}}</tool_call>. Also the generic format
    KIN_CHAT_XML,            // Qwen3-Coder: <tool_call><function=NAME><parameter=KEY>VALUE</parameter></function></tool_call>
    KIN_CHAT_LLAMA,          // Llama 3: the whole reply is {"name": ..., "parameters": {...}}, or follows <|python_tag|>
    KIN_CHAT_MISTRAL,        // [TOOL_CALLS][{"name": ..., "arguments": {...}, "id": ...}, ...]
    KIN_CHAT_MISTRAL_LABELS, // [TOOL_CALLS]NAME[CALL_ID]ID[ARGS]{...}
    KIN_CHAT_DEEPSEEK,       // V3, R1: NAME and JSON in a code block
    KIN_CHAT_DEEPSEEK_31,    // V3.1: NAME and JSON
    KIN_CHAT_DSML,           // DeepSeek V3.2: parameters between tags with a prefix
    KIN_CHAT_GLM,            // GLM 4.5 and later: <tool_call>NAME<arg_key>KEY</arg_key><arg_value>VALUE</arg_value></tool_call>
    KIN_CHAT_KIMI,           // Kimi K2: functions.NAME:0 and JSON
    KIN_CHAT_KIMI_3,         // Kimi K3: arguments with a type, channels between <|open|> and <|close|>
    KIN_CHAT_MINIMAX,      // MiniMax M2: <minimax:tool_call><invoke name="NAME"><parameter name="KEY">VALUE</parameter></invoke>
    KIN_CHAT_SEED,         // Seed-OSS: Qwen3-Coder's in other tags
    KIN_CHAT_GEMMA,        // gemma 4: <|tool_call>call:NAME{KEY:<|"|>VALUE<|"|>}<tool_call|>
    KIN_CHAT_HARMONY,      // gpt-oss
    KIN_CHAT_LFM,          // LFM2: <|tool_call_start|>[NAME(KEY="VALUE")]<|tool_call_end|>
    KIN_CHAT_OLMO,         // Olmo 3: <function_calls>, a call as in Python on each line
    KIN_CHAT_PYTHONIC,     // Llama 3.2, 4: the whole reply is [NAME(KEY="VALUE")]
    KIN_CHAT_COMMAND,      // Command R7B, A: <|START_ACTION|>[{"tool_call_id": ..., "tool_name": ..., "parameters": {...}}]
    KIN_CHAT_GRANITE,      // Granite 3: <|tool_call|>[{"name": ..., "arguments": {...}}]
    KIN_CHAT_PHI,          // Phi-4-mini: the same with an end, <|/tool_call|>
    KIN_CHAT_NEMOTRON,     // Nemotron Nano 2: <TOOLCALL>[...]</TOOLCALL>
    KIN_CHAT_APERTUS,      // Apertus: <|tools_prefix|>[{NAME: {...}}]<|tools_suffix|>
    KIN_CHAT_MINIMAX_1,    // MiniMax M1: <tool_calls>, an object on each line
    KIN_CHAT_FUNCTION,     // Functionary 3.1: <function=NAME>{...}</function>
    KIN_CHAT_FIREFUNCTION, // Firefunction 2: functools[{"name": ..., "arguments": {...}}]
    KIN_CHAT_RECIPIENTS,   // Functionary 3.2: >>>NAME and JSON on the next line; text is >>>all
    KIN_CHAT_GIGACHAT,     // GigaChat 3: a message of the role "function call" with {"name": ..., "arguments": {...}}
    KIN_CHAT_MUSE,         // Muse Glimmer: messages to=NAME, each with a call in tags of its own
    KIN_CHAT_N_KNOWN,
} kin_chat_known;

const kin_chat_format *kin_chat_format_known(kin_chat_known which);

// True if the text, which is the name of a control token, is a mark of the format or a part of one. Such tokens must be pushed
// into the reply parser, though they print nothing.
bool kin_chat_format_has_token(const kin_chat_format *format, kin_str name);

static inline bool kin_chat_format_thinks(const kin_chat_format *format) {
    return format->think_begin[0] != 0;
}

// Compares a mark with bytes, both without their white space: KIN_MARK_PREFIX: the bytes are the beginning of the mark.
typedef enum kin_mark_match { KIN_MARK_DIFFERS, KIN_MARK_PREFIX, KIN_MARK_EQUAL } kin_mark_match;
kin_mark_match kin_chat_mark_match(const char *mark, kin_str bytes);
