// Scans the folder of --models-dir every two seconds, so that files that are put there or removed take effect without a restart.
//
// The folder is read in libuv's pool; its files are read only when a name, a size or a time has changed. Owner: the server.
// Thread: the loop's, for every function and for `listed`.
#pragma once

#include <uv.h>

#include "base/clock.h"
#include "cluster/model_files.h"

typedef struct kin_model_scan kin_model_scan;

typedef struct kin_model_scan_options {
    uv_loop_t *loop;
    const char *dir; // must outlive the scan
    // Gets all files of the folder [n], usable or not, after any change.
    void (*listed)(void *user, const kin_model_file *files, int n);
    void *user;
} kin_model_scan_options;

kin_model_scan *kin_model_scan_open(const kin_model_scan_options *options); // NULL: out of memory
void kin_model_scan_tick(kin_model_scan *scan, kin_time now);
void kin_model_scan_close(kin_model_scan *scan); // after the loop has ended; NULL is allowed
