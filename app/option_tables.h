// The options that commands share, as tables (app/options.h): of a session, of a cluster, of this machine's identity.
#pragma once

#include "app/options.h"
#include "node/session.h"

// Without an end: for a command's own table.
enum { KIN_IDENTITY_N_OPTIONS = 5 };
void kin_identity_option_table(kin_identity_options *o, kin_option table[KIN_IDENTITY_N_OPTIONS]);

enum { KIN_FLEET_N_OPTIONS = KIN_IDENTITY_N_OPTIONS + 12, KIN_SESSION_N_OPTIONS = 18 }; // with the table's end

// Tables whose values point into the session's options: what concerns this machine, and what concerns others.
typedef struct kin_session_tables {
    kin_option own[KIN_SESSION_N_OPTIONS];
    kin_option fleet[KIN_FLEET_N_OPTIONS];
} kin_session_tables;

void kin_session_option_tables(kin_session_options *o, kin_session_tables *tables);

// Of commands that write texts: drafts. Without an end.
enum { KIN_DRAFT_N_OPTIONS = 3 };
void kin_draft_option_table(kin_session_options *o, kin_option table[KIN_DRAFT_N_OPTIONS]);

// The option of commands that can draw a timeline.
kin_option kin_session_timeline_option(kin_session_options *o);

// Where pages of the KV cache are kept on the disk: of commands that keep texts. Without an end.
enum { KIN_KV_DISK_N_OPTIONS = 2 };
void kin_kv_disk_option_table(uint64_t *size, bool *none, kin_option table[KIN_KV_DISK_N_OPTIONS]);

// When all options are read. operand: a word of the command line that is no option, where it is the model's file; NULL is
// allowed. Fails if there is another model, or if what --draft, --draft-min and --draft-max say has no meaning.
int kin_session_end_parsing(kin_session_options *o, const char *operand, kin_err *err);

// Whether a word is meant as a model: NAME.gguf, a path, an address of the web, or any file that exists.
bool kin_session_is_model(const char *word);
