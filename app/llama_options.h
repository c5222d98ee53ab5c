// Accepts llama-server's options in kin serve, so that a script switches by changing one word.
#pragma once

#include "app/options.h"

// Translates the options of argv [argc] that llama-server and kin name differently into kin's. Options that kin does not need are
// dropped with one line of warning; options that it cannot support fail with the reason. The caller frees the new array *out and
// the block *texts. The array's strings point into argv, to constants, or (for --name=value) into *texts. Options from
// llama-server's environment variables (LLAMA_ARG_CTX_SIZE and others) come first, so that the command line wins.
int kin_llama_options_translate(int argc, char **argv, char ***out, int *n, char **texts, kin_err *err);

// Call when the translated options could not be parsed with these tables; err has the reason. If the value came from one of
// llama-server's environment variables, adds the variable's name to err. It parses again, so the values that the tables set are
// unusable afterwards.
void kin_llama_options_explain(kin_option_tables tables, kin_err *err);

// Lists llama-server's option names, so that a misspelled one can be corrected.
enum { KIN_LLAMA_N_NAMES = 384 };
void kin_llama_options_names(kin_option table[KIN_LLAMA_N_NAMES]);
