// GBNF: the grammar language of llama.cpp, read into a tree. What a tree means is compiled in grammar.h.
//
//   root   ::= greeting ("," " "? name){0,3} "\n"     # a rule a line; inside of ( ) and after ::= and | lines may be broken
//   name   ::= [A-Z] [a-z]* | [^a-zA-Z0-9\x00-\x1F]+   # classes of Unicode code points, negated with ^
//   any    ::= .                                       # any code point
//
//   pin    ::= &("0" [0-9]* $ | "7") [0-9]{4,9}         # what follows in the rule begins so, and ends at $
//   word   ::= !("the" $) [a-z]+                       # it does not
//   even   ::= &("-"? %2 $) "-"? [1-9] [0-9]{0,9}      # %N: a decimal number that is a multiple of N, which may have a fraction
//
// The last three are kin's own. A rule with & or ! is regular: it, and the rules that it mentions, do not recur, and mention no
// other rule with & or !. What follows the rule in others is not looked at.
//
// Repetitions: * + ? {m} {m,} {m,n}. Escapes: \n \r \t \\ \" \[ \] \- \xHH \uHHHH \UHHHHHHHH (code points).
// The first rule is not special; the text begins with the rule `root`. The grammar's own text is UTF-8.
//   call  ::= <[5]> "{" [^}]* "}"                      # the control token 5 of the vocabulary (token_reference.h)
//
// A reference to a token that is no control token matches nothing. llama.cpp's references by name, <think>, and their negations
// are refused.
//
// The tree is plain data, owned by whoever parsed it.
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
    KIN_GBNF_MAX_STACKED = 4,  // repetitions of one element, as in "a"*?
    KIN_GBNF_MAX_NAME = 128,
    KIN_GBNF_MAX_FRACTION = 9, // digits after the point of %N
};

#define KIN_GBNF_MAX_REPEAT INT32_MAX // in {m,n}
#define KIN_GBNF_UNBOUNDED UINT32_MAX // max of {m,}

typedef enum kin_gbnf_kind {
    KIN_GBNF_BYTES,    // these bytes: [begin, end) of `bytes`
    KIN_GBNF_CLASS,    // one code point of ranges [begin, end); none of them: nothing matches
    KIN_GBNF_SEQUENCE, // the children, one after the other; without any: the empty text
    KIN_GBNF_CHOICE,   // one of the children
    KIN_GBNF_REPEAT,   // the child, min to max times
    KIN_GBNF_RULE,     // rule number `rule`
    KIN_GBNF_AHEAD,    // nothing, where the child matches what follows in the rule (negated: where it does not)
    KIN_GBNF_END,      // $: the rule ends here
    KIN_GBNF_MULTIPLE, // a decimal number that is a multiple of number / 10^n_fraction
} kin_gbnf_kind;

typedef struct kin_gbnf_node {
    uint8_t kind;         // kin_gbnf_kind
    uint32_t child, next; // first child, next sibling: numbers of nodes; 0: none
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

typedef struct kin_gbnf_range { // of code points, both included
    uint32_t lo, hi;
} kin_gbnf_range;

typedef struct kin_gbnf {
    kin_gbnf_node *nodes; // [n_nodes]; node 0 is none
    kin_gbnf_range *ranges;
    uint8_t *bytes;
    uint32_t n_nodes, cap_nodes, n_ranges, cap_ranges, n_bytes, cap_bytes;

    kin_string_table names;      // of the rules; the number of a name is that of the rule
    uint32_t *rules;             // [names.n] node of what the rule is
    uint32_t root;               // number of the rule `root`
    uint32_t n_rules, cap_rules; // n_rules is names.n
} kin_gbnf;

// Fails with a sentence that names the line: bad syntax, bad UTF-8, a rule defined twice or not at all, no rule `root`, a limit.
// After a failure there is nothing to free.
int kin_gbnf_parse(kin_gbnf *out, const char *text, size_t len, kin_err *err);
void kin_gbnf_fini(kin_gbnf *gbnf);
