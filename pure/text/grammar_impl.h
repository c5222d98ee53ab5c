// Inside of kin_grammar: machines and their states. For the compiler and the matcher.
#pragma once

#include <stdbool.h>

#include "pure/text/gbnf.h"
#include "pure/text/grammar.h"

enum {                   // flags of a state
    KIN_STATE_ENDS = 1,  // the machine may end here
    KIN_STATE_READS = 2, // it has a transition by a byte
    KIN_STATE_PLAIN = 4, // any plain character (token_trie.h) leads back here; in a counted machine it is one repetition, and no
                         // more than that
    KIN_STATE_READS_PLAIN = 8, // there is a transition by the first byte of a plain character
};

typedef struct kin_grammar_state_row {
    uint16_t machine;
    uint16_t n_calls;
    uint32_t calls; // first one
    uint8_t flags;
} kin_grammar_state_row;

typedef struct kin_grammar_call {
    uint16_t machine; // that is called
    uint16_t next;    // state after it
} kin_grammar_call;

typedef struct kin_grammar_machine {
    uint16_t start;
    bool counted;      // its states are those of one repetition, of which there must be min to max
    uint32_t min, max; // max: KIN_GBNF_UNBOUNDED: any number
    uint32_t rank;     // a machine ranks before all that it can call before its first byte
    uint32_t rule;     // number of the rule that it is, or is part of
} kin_grammar_machine;

struct kin_grammar {
    uint8_t class_of[256]; // of a byte: bytes of one class are never told apart; in the order of the bytes
    uint32_t n_classes;
    uint32_t root; // machine

    uint32_t n_states, cap_states; // state 0 is none
    kin_grammar_state_row *states;
    uint16_t *next; // [n_states][n_classes] state after a byte, or 0
    uint32_t cap_next;

    uint32_t n_calls, cap_calls;
    kin_grammar_call *calls;

    uint32_t n_machines, cap_machines;
    kin_grammar_machine *machines;
    uint16_t *by_rank; // [n_machines]
};

static inline uint16_t kin_grammar_next(const kin_grammar *grammar, uint32_t state, uint32_t byte_class) {
    return grammar->next[state * grammar->n_classes + byte_class];
}
