// GBNF: parses llama.cpp's grammar language into a tree. grammar.h compiles the tree.
//
//   root   ::= greeting ("," " "? name){0,3} "\n"     # one rule per line; lines may be broken within ( ) and after ::= and |
//   name   ::= [A-Z] [a-z]* | [^a-zA-Z0-9\x00-\x1F]+   # classes of Unicode code points, negated with ^
//   any    ::= .                                       # any code point
//   call   ::= <[5]> "{" [^}]* "}"                     # control token 5 of the vocabulary (token_reference.h)
//
//   pin    ::= &("0" [0-9]* $ | "7") [0-9]{4,9}        # look-ahead: the rest of the rule must begin like this; $ is its end
//   word   ::= !("the" $) [a-z]+                       # negative look-ahead
//   even   ::= &("-"? %2 $) "-"? [1-9] [0-9]{0,9}      # %N: a decimal number that is a multiple of N, which may have a fraction
//
// The last three are extensions of kin. A rule with & or ! must be regular: it and the rules that it uses must not be
// recursive, nor use another rule with & or !. Look-ahead sees only the text of its rule, not the text after it.
//
// Repetitions: * + ? {m} {m,} {m,n}. Escapes: \n \r \t \\ \" \[ \] \- \xHH \uHHHH \UHHHHHHHH (code points). A text must match
// the rule `root`, which need not be the first one. The grammar is UTF-8.
//
// A reference to a token that is not a control token matches nothing. llama.cpp's references by name (<think>) and negated
// references are rejected.
//
// The tree is plain data, owned by the caller of kin_gbnf_parse.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "pure/text/string_table.h"

enum { // limits of one grammar
    KIN_GBNF_MAX_BYTES = 1 << 22,
    KIN_GBNF_MAX_RULES = 1 << 14,
    KIN_GBNF_MAX_NODES = 1 << 20,
    KIN_GBNF_MAX_RANGES = 1 << 16,
    KIN_GBNF_MAX_NESTING = 64, // parentheses
    KIN_GBNF_MAX_STACKED = 4,  // repetition operators on one element, as in "a"*?
    KIN_GBNF_MAX_NAME = 128,
    KIN_GBNF_MAX_FRACTION = 9, // digits after the decimal point of %N
};

#define KIN_GBNF_MAX_REPEAT INT32_MAX // in {m,n}
#define KIN_GBNF_UNBOUNDED UINT32_MAX // max of {m,}

typedef enum kin_gbnf_kind {
    KIN_GBNF_BYTES,    // a literal: bytes [begin, end) of `bytes`
    KIN_GBNF_CLASS,    // one code point of ranges [begin, end); without ranges it matches nothing
    KIN_GBNF_SEQUENCE, // the children, one after the other; without children it matches the empty text
    KIN_GBNF_CHOICE,   // one of the children
    KIN_GBNF_REPEAT,   // the child, min to max times
    KIN_GBNF_RULE,     // rule number `rule`
    KIN_GBNF_AHEAD,    // matches the empty text if the child matches the rest of the rule (negated: if it does not)
    KIN_GBNF_END,      // $: the end of the rule
    KIN_GBNF_MULTIPLE, // a decimal number that is a multiple of number / 10^n_fraction
} kin_gbnf_kind;

typedef struct kin_gbnf_node {
    uint8_t kind;         // kin_gbnf_kind
    uint32_t child, next; // first child, next sibling: node indexes; 0: none
    union {
        struct {
            uint32_t begin, end;
        };
        struct {
            uint32_t min, max;
        };
        uint32_t rule;
        uint32_t negated;
        struct {
            uint32_t number, n_fraction;
        };
    };
} kin_gbnf_node;

typedef struct kin_gbnf_range { // code points, inclusive
    uint32_t lo, hi;
} kin_gbnf_range;

typedef struct kin_gbnf {
    kin_gbnf_node *nodes; // [n_nodes]; node 0 is unused
    kin_gbnf_range *ranges;
    uint8_t *bytes;
    uint32_t n_nodes, cap_nodes, n_ranges, cap_ranges, n_bytes, cap_bytes;

    kin_string_table names;      // of rules; a rule has the number of its name
    uint32_t *rules;             // [names.n] root node of each rule
    uint32_t root;               // number of the rule `root`
    uint32_t n_rules, cap_rules; // n_rules == names.n
} kin_gbnf;

// Fails with a sentence that names the line: bad syntax, invalid UTF-8, a rule that is defined twice or not at all, no rule
// `root`, an exceeded limit. After a failure there is nothing to free.
int kin_gbnf_parse(kin_gbnf *out, const char *text, size_t len, kin_err *err);
void kin_gbnf_fini(kin_gbnf *gbnf);
