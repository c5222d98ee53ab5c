// Gets a model by its name: looks into the folder of models first, otherwise asks the registry that the name names, chooses a
// variant, downloads its files and records where they came from.
//
// Blocking; any thread. Nothing is contacted but the host of the name, and those that it redirects to.
#pragma once

#include "pull/model_store.h"
#include "pull/options.h"

// True if a text has the form of a name, or is a short name or the name of a fetched model: no file.
bool kin_pull_is_name(const kin_pull_options *o, const char *text);

// Fills `record` with the model's first file, whose path a command may open.
int kin_pull(const kin_pull_options *o, const char *name, kin_model_record *record, kin_err *err);

// Looks only into the folder. Returns 0, KIN_ABSENT or KIN_FAIL.
int kin_pull_find(const kin_pull_options *o, const char *name, kin_model_record *record, kin_err *err);
