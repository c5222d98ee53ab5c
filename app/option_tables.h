// Option tables that several commands share (app/options.h): for a session, a cluster, and this machine's identity.
#pragma once

#include "app/options.h"
#include "cluster/session.h"

// Without a KIN_OPTION_END entry: for use inside a command's own table.
enum { KIN_IDENTITY_N_OPTIONS = 5 };
void kin_identity_option_table(kin_identity_options *o, kin_option table[KIN_IDENTITY_N_OPTIONS]);

enum { KIN_FLEET_N_OPTIONS = KIN_IDENTITY_N_OPTIONS + 13, KIN_SESSION_N_OPTIONS = 23 }; // includes the end entry

// Tables whose values point into the session's options: `own` for this machine, `fleet` for the cluster.
typedef struct kin_session_tables {
    kin_option own[KIN_SESSION_N_OPTIONS];
    kin_option fleet[KIN_FLEET_N_OPTIONS];
} kin_session_tables;

void kin_session_option_tables(kin_session_options *o, kin_session_tables *tables);

// For commands that generate text: drafts. Without an end entry.
enum { KIN_DRAFT_N_OPTIONS = 3 };
void kin_draft_option_table(kin_session_options *o, kin_option table[KIN_DRAFT_N_OPTIONS]);

// For commands that have no other option than --json. Includes the end entry.
enum { KIN_JSON_N_OPTIONS = 2 };
void kin_json_option_table(bool *json, kin_option table[KIN_JSON_N_OPTIONS]);

// Returns the option of commands that can draw a timeline.
kin_option kin_session_timeline_option(kin_session_options *o);

// For commands that keep pages of the KV cache on disk: size and location options. Without an end entry.
enum { KIN_KV_DISK_N_OPTIONS = 2 };
void kin_kv_disk_option_table(uint64_t *size, bool *none, kin_option table[KIN_KV_DISK_N_OPTIONS]);

// Call after all options are parsed. operand: the word on the command line that is not an option, taken as the model's file; NULL
// is allowed. Fails if no such file exists, if another model was given, or if the draft or window options are inconsistent.
int kin_session_end_parsing(kin_session_options *o, const char *operand, kin_err *err);

// True if a word denotes a model file: NAME.gguf, a path, a web address, or any existing file.
bool kin_session_is_model(const char *word);
