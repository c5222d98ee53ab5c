// Loading a model anew after its files have changed, for the commands that serve one model.
//
// Owner and thread: the computing thread.
#pragma once

#include "cluster/model_files.h"
#include "serve/loaded_model.h"
#include "serve/server.h"

// Returns a wait for the files that these options load. chat_template_file may be NULL.
kin_model_wait kin_reload_wait(const kin_session_options *options, const char *chat_template_file);

// True if the model is loaded, and its files have changed since.
bool kin_reload_is_due(const kin_loaded_model *model);

// Withdraws the model from the server, which tells clients `why` or which file is missing, and closes it. Returns when the files
// are complete again, or when the program has to end. prints: these sentences, for programs whose terminal does not show an
// answer.
void kin_reload_await(kin_model_wait *wait, kin_server *server, kin_loaded_model *model, const kin_err *why, bool prints);
