// Tokens whose names say what they do, where a GGUF file says nothing or the wrong thing.
//
// The list and the rules are llama.cpp's: models differ in how they end a turn, and their files often name only one of the
// tokens.
#pragma once

#include "pure/text/vocab.h"

// Sets types and is_eog (both [n_tokens]) and, where they are KIN_TOKEN_NONE, eot and eom of a vocabulary whose texts are in
// place.
void kin_token_roles_apply(kin_vocab *vocab);
