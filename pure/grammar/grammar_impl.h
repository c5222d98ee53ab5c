// Internals of kin_grammar, for the compiler and the matcher: machines and their states.
#pragma once

#include <stdbool.h>

#include "pure/grammar/gbnf.h"
#include "pure/grammar/grammar.h"

enum {                         // flags of a state
    KIN_STATE_ENDS = 1,        // the machine may end here
    KIN_STATE_READS = 2,       // it has a transition on some byte
    KIN_STATE_PLAIN = 4,       // every plain character (token_trie.h) leads back here; in a counted machine it is one repetition
    KIN_STATE_READS_PLAIN = 8, // it has a transition on the first byte of some plain character
};

typedef struct kin_grammar_state_row {
    uint16_t machine;
    uint16_t n_calls;
    uint32_t calls; // index of the first one
    uint8_t flags;
} kin_grammar_state_row;

typedef struct kin_grammar_call {
    uint16_t machine; // the called machine
    uint16_t next;    // state after the call
} kin_grammar_call;

typedef struct kin_grammar_machine {
    uint16_t start;
    bool counted;      // its states are those of one repetition; between min and max repetitions are needed
    uint32_t min, max; // max: KIN_GBNF_UNBOUNDED: no limit
    uint32_t rank;     // a machine has a lower rank than all machines that it can call before its first byte
    uint32_t rule;     // the rule that the machine implements or is part of
} kin_grammar_machine;

struct kin_grammar {
    uint8_t class_of[256]; // [byte] class; bytes of one class have the same transitions. Numbered in byte order
    uint32_t n_classes;
    uint32_t root; // machine

    uint32_t n_states, cap_states; // state 0 is unused
    kin_grammar_state_row *states;
    uint16_t *next; // [n_states][n_classes] state after a byte; 0: none
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
