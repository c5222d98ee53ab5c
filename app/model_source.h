// Models by name: where a command takes a file, it also takes hf:OWNER/REPO, ollama:NAME, a web address, a short name, or the
// name of a model that 'kin pull' has fetched. docs/PULL.md describes names.
//
// Thread: the command's.
#pragma once

#include "cluster/session.h"
#include "pull/pull.h"

// Where this user's models are, and the file of the user's short names. The strings live until the next call.
kin_pull_options kin_model_source_options(void);

// True if a word that is no file names a model.
bool kin_model_source_is_name(const char *word);

// Replaces a name in o->model by its file, which is downloaded if it is not here. The path lives until the next call.
int kin_model_source_resolve(kin_session_options *o, kin_err *err);

// Downloads show one line that is overwritten; other sentences go to stderr.
int kin_model_source_pull(kin_pull_options *o, const char *name, kin_model_record *record, kin_err *err);
