// Downloads one file: several ranges at once, continued where an earlier attempt ended, checked against its SHA-256.
//
// Blocking; any thread. Two processes that want the same file share one download: the second one waits for the first, and takes
// over if it ends early.
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

typedef enum kin_download_phase {
    KIN_DOWNLOAD_FETCHING,
    KIN_DOWNLOAD_WAITING,  // for another process that downloads the same file
    KIN_DOWNLOAD_PAUSED,   // until the server may be asked again
    KIN_DOWNLOAD_CHECKING, // its hash
} kin_download_phase;

typedef struct kin_download_progress {
    kin_download_phase phase;
    uint64_t done, total; // bytes of this file
    double bytes_s;       // 0: not known yet
} kin_download_progress;

typedef struct kin_download_options {
    const char *url;
    const char *token; // for the URL's host; NULL: none
    const char *path;  // of the file; its folder exists
    uint64_t size;
    const char *sha256; // 64 digits; empty: not known
    const char *etag;   // without a hash: identifies the content; empty: not known, so nothing can be continued
    bool accepts_ranges;
    int n_connections;
    int patience_s;          // fails if less than KIN_RATE_FLOOR_BYTES_S comes on average for so long; 0: never
    const atomic_bool *stop; // NULL: none
    // True: the file is there, because another process has finished it.
    bool (*is_there)(void *user);
    // Called with the complete and checked file, before it gets its name.
    int (*finished)(void *user, kin_err *err);
    void (*progress)(void *user, const kin_download_progress *progress); // several times a second
    void *user;
} kin_download_options;

enum { KIN_DOWNLOAD_PATIENCE_S = 60, KIN_DOWNLOAD_CONNECTIONS = 4, KIN_DOWNLOAD_MAX_CONNECTIONS = 16 };

// After KIN_FAIL the same call continues, except if the content had another hash.
int kin_download(const kin_download_options *options, kin_err *err);
