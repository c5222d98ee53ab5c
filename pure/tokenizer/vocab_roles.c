// Assigns roles to tokens by their names, for GGUF files that lack the information or have it wrong.
//
// The list and the rules are llama.cpp's: models differ in how they end a turn, and their files often name only one of the
// tokens.
#include "pure/tokenizer/vocab_roles.h"

#include <string.h>

enum { // what the name of a token implies
    EOG = 1,
    EOT = 2,      // the end of a turn, if the file names none; the first one in the list wins
    EOM = 4,      // the end of a message, likewise
    CONTROL = 8,  // regardless of its type in the file
    VISIBLE = 16, // gpt-oss and Gemma 4 mark the parts of an answer with these tokens, so they are printed
};

static const struct {
    const char *name;
    unsigned roles;
} known_names[] = {
    {"<|eot_id|>", EOG | EOT | CONTROL},
    {"<|im_end|>", EOG | EOT | CONTROL},
    {"<|end|>", EOG | EOT | CONTROL},
    {"<end_of_turn>", EOG | EOT | CONTROL},
    {"<|endoftext|>", EOG | EOT | CONTROL},
    {"<|end_of_text|>", EOG | EOT | CONTROL},
    {"<EOT>", EOG | EOT | CONTROL},
    {"_<EOT>", EOG | EOT | CONTROL},
    {"[EOT]", EOG | EOT | CONTROL},
    {"<\xef\xbd\x9c"
     "end\xe2\x96\x81of\xe2\x96\x81sentence\xef\xbd\x9c>",
     EOG | EOT | CONTROL}, // DeepSeek
    {"<end_of_utterance>", EOG | EOT | CONTROL},
    {"<|eom_id|>", EOG | EOM | CONTROL},
    {"<|return|>", EOG | CONTROL},
    {"<|call|>", EOG | CONTROL},
    {"<|calls|>", EOG | CONTROL},
    {"<|flush|>", EOG | CONTROL},
    {"<turn|>", EOG | CONTROL},
    {"</s>", EOG | CONTROL},
    {"[EOS]", EOG | CONTROL},
    {"<eos>", EOG | CONTROL},
    // Fill in the middle: tokens of these three kinds end the filling.
    {"<|fim_pad|>", EOG | CONTROL},
    {"<fim-pad>", EOG | CONTROL},
    {"<fim_pad>", EOG | CONTROL},
    {"<PAD>", EOG | CONTROL},
    {"[PAD]", EOG | CONTROL},
    {"<|fim_repo|>", EOG | CONTROL},
    {"<|repo_name|>", EOG | CONTROL},
    {"<fim-repo>", EOG | CONTROL},
    {"<REPO>", EOG | CONTROL},
    {"<reponame>", EOG | CONTROL},
    {"<|file_sep|>", EOG | CONTROL},
    // These enclose it.
    {"<|fim_prefix|>", CONTROL},
    {"<fim-prefix>", CONTROL},
    {"<fim_prefix>", CONTROL},
    {"<PRE>", CONTROL},
    {"<\xef\xbd\x9c"
     "fim\xe2\x96\x81"
     "begin\xef\xbd\x9c>",
     CONTROL},
    {"\xe2\x96\x81<PRE>", CONTROL},
    {"<|fim_suffix|>", CONTROL},
    {"<fim-suffix>", CONTROL},
    {"<fim_suffix>", CONTROL},
    {"<SUF>", CONTROL},
    {"<\xef\xbd\x9c"
     "fim\xe2\x96\x81hole\xef\xbd\x9c>",
     CONTROL},
    {"\xe2\x96\x81<SUF>", CONTROL},
    {"<|fim_middle|>", CONTROL},
    {"<fim-middle>", CONTROL},
    {"<fim_middle>", CONTROL},
    {"<MID>", CONTROL},
    {"<\xef\xbd\x9c"
     "fim\xe2\x96\x81"
     "end\xef\xbd\x9c>",
     CONTROL},
    {"\xe2\x96\x81<MID>", CONTROL},
    {"<|channel|>", VISIBLE},
    {"<|message|>", VISIBLE},
    {"<|start|>", VISIBLE},
    {"<|constrain|>", VISIBLE},
    {"<|channel>", VISIBLE},
    {"<channel|>", VISIBLE},
    {"<|tool_call>", VISIBLE},
    {"<tool_call|>", VISIBLE},
    {"<|tool_response>", EOG | VISIBLE},
    {"<tool_response|>", VISIBLE},
    {"<|\"|>", VISIBLE},
};

static int32_t find_token(const kin_vocab_roles *r, const char *name) {
    int64_t id = kin_string_table_find(r->texts, name, strlen(name));
    return id < r->n_tokens ? (int32_t)id : KIN_TOKEN_NONE;
}

static void apply(kin_vocab_roles *r, int32_t id, unsigned roles) {
    if (roles & EOG) r->is_eog[id] = true;
    if (roles & CONTROL) r->types[id] = KIN_TOKEN_CONTROL;
    if (roles & VISIBLE) r->types[id] = KIN_TOKEN_USER_DEFINED;
    if (roles & EOT && r->eot == KIN_TOKEN_NONE) r->eot = id;
    if (roles & EOM && r->eom == KIN_TOKEN_NONE) r->eom = id;
}

// gpt-oss ends with <|return|> or <|call|>, Solar with <|calls|> or <|flush|>; their <|end|> ends only a part of the answer.
static void exempt_inner_end(kin_vocab_roles *r) {
    int32_t end = find_token(r, "<|end|>");
    if (end == KIN_TOKEN_NONE) return;
    bool has_call = find_token(r, "<|call|>") != KIN_TOKEN_NONE || find_token(r, "<|calls|>") != KIN_TOKEN_NONE;
    bool has_last = find_token(r, "<|return|>") != KIN_TOKEN_NONE || find_token(r, "<|flush|>") != KIN_TOKEN_NONE;
    if (!has_call || !has_last) return;
    r->is_eog[end] = false;
    r->types[end] = KIN_TOKEN_USER_DEFINED;
}

// Gemma 4's vocabulary has an HTML tag by this name, which ends nothing.
static void exempt_html(kin_vocab_roles *r) {
    const int32_t tag = find_token(r, "</s>");
    if (tag == KIN_TOKEN_NONE || find_token(r, "<|tool_response>") == KIN_TOKEN_NONE) return;
    r->is_eog[tag] = false;
    r->types[tag] = KIN_TOKEN_NORMAL;
}

void kin_vocab_roles_apply(kin_vocab_roles *r) {
    for (size_t i = 0; i < sizeof known_names / sizeof *known_names; i++) {
        int32_t id = find_token(r, known_names[i].name);
        if (id != KIN_TOKEN_NONE) apply(r, id, known_names[i].roles);
    }
    exempt_html(r);
    for (int role = KIN_FIM_PREFIX; role < KIN_FIM_COUNT; role++) {
        int32_t id = r->fim[role];
        if (id != KIN_TOKEN_NONE) apply(r, id, role >= KIN_FIM_REPO ? EOG | CONTROL : CONTROL);
    }
    if (r->eos != KIN_TOKEN_NONE) r->is_eog[r->eos] = true;
    if (r->eot != KIN_TOKEN_NONE) r->is_eog[r->eot] = true;
    if (r->eom != KIN_TOKEN_NONE) r->is_eog[r->eom] = true;
    exempt_inner_end(r);
}
