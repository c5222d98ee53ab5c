// Property lists of launchd for kin serve and kin join: the services of macOS.
//
// Plain functions; any thread.
#pragma once

#include "base/err.h"
#include "pure/text/text_buffer.h"

typedef struct kin_launchd_plist {
    const char *label, *program;
    char *const *words; // [n_words] the command and its options
    int n_words;
    const char *log;  // path of the file for what the service says
    const char *user; // the account that runs it; NULL: that of the session
} kin_launchd_plist;

// Fails if a word is not UTF-8 text without control characters, which XML cannot express.
int kin_launchd_plist_write(const kin_launchd_plist *plist, kin_text_buffer *out, kin_err *err);
