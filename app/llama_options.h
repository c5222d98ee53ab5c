// llama-server's options for kin serve: scripts switch by changing one word.
#pragma once

#include "app/options.h"

// argv [argc] with the options that llama-server and kin call differently in kin's words. What kin does not need is left out,
// with one line that says so; what it cannot do fails with the reason. The result is a new array that the caller frees; its
// strings are argv's, constants', or (--name=value) of one block of memory at *texts, to be freed too. Before them are the words
// that llama-server's environment variables stand for (LLAMA_ARG_CTX_SIZE and others), so that the command line wins.
int kin_llama_options_translate(int argc, char **argv, char ***out, int *n, char **texts, kin_err *err);

// err: why those words could not be parsed with these tables. Where a value of llama-server's environment is what failed, its
// variable is named. It parses again, so what the tables set is of no use afterwards.
void kin_llama_options_explain(kin_option_tables tables, kin_err *err);

// Its names of options, for who misspells one.
enum { KIN_LLAMA_N_NAMES = 384 };
void kin_llama_options_names(kin_option table[KIN_LLAMA_N_NAMES]);
