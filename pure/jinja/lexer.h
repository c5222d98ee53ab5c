// Splits a template into tokens: text, and the contents of {{ }} and {% %}. Applies white space control, with trim_blocks and
// lstrip_blocks as in transformers: the newline after a block is removed, and the white space between the start of a line and a
// block.
#pragma once

#include "pure/jinja/value_impl.h"

typedef enum kin_token_kind {
    KIN_LEX_END,
    KIN_LEX_DATA,
    KIN_LEX_PRINT, // {{
    KIN_LEX_PRINT_END,
    KIN_LEX_BLOCK, // {%
    KIN_LEX_BLOCK_END,
    KIN_LEX_NAME,
    KIN_LEX_STRING,
    KIN_LEX_INT,
    KIN_LEX_FLOAT,
    KIN_LEX_OPERATOR,
} kin_token_kind;

#define KIN_OP(a, b) ((uint16_t)((a) | (b) << 8)) // an operator of two characters; one of a single character is that character

typedef struct kin_token {
    kin_token_kind kind;
    uint16_t op;
    uint32_t line;
    kin_str text; // name; for data and strings the decoded text
    int64_t i;
    double f;
} kin_token;

typedef struct kin_lexer {
    kin_values *values; // holds decoded strings
    const char *at;     // the source, newlines normalized
    size_t len, pos;
    uint32_t line;
    kin_token_kind mode;    // mode at pos: KIN_LEX_DATA, _PRINT or _BLOCK
    kin_token_kind pending; // KIN_LEX_PRINT or _BLOCK: a tag of this kind begins here, after the text that was returned
    bool raw;               // in a raw block
    int nesting;            // open brackets in {{ }}
    bool line_starts;       // the last tag consumed the newline after it
} kin_lexer;

// The source is borrowed as long as the lexer and its tokens are used; it must be UTF-8. Returns false if memory runs out.
bool kin_lexer_init(kin_lexer *lexer, kin_values *values, const char *source, size_t len);

// Returns 0, or KIN_FAIL with a sentence that begins with the line.
int kin_lexer_next(kin_lexer *lexer, kin_token *token, kin_err *err);
