// The roles of tokens that follow from their names, for a vocabulary that is being built. Plain function; thread: any.
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "pure/text/string_table.h"
#include "pure/tokenizer/token_type.h"

typedef struct kin_vocab_roles {
    int32_t n_tokens;
    const kin_string_table *texts; // the first n_tokens strings are the tokens; borrowed, as all arrays here
    const int32_t *fim;            // [KIN_FIM_COUNT] ids or KIN_TOKEN_NONE
    int32_t eos;                   // or KIN_TOKEN_NONE

    // changed:
    uint8_t *types;   // [n_tokens] kin_token_type
    bool *is_eog;     // [n_tokens]
    int32_t eot, eom; // set if they are KIN_TOKEN_NONE
} kin_vocab_roles;

// Sets types and is_eog from the names of tokens, and also eot and eom.
void kin_vocab_roles_apply(kin_vocab_roles *roles);
