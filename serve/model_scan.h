// Looks into the folder of --models-dir every other second, so that files that are put there are served without a restart.
//
// The folder is read in libuv's pool: its files only when a name, a size or a time of it has changed.
// Owner: the server. Thread: the loop's, for every function and for `found`.
#pragma once

#include <uv.h>

#include "base/clock.h"
#include "node/model_files.h"

typedef struct kin_model_scan kin_model_scan;

typedef struct kin_model_scan_options {
    uv_loop_t *loop;
    const char *dir;                                       // lives as long as the scan
    void (*found)(void *user, const kin_model_file *file); // every usable one, whenever something has changed
    void *user;
} kin_model_scan_options;

kin_model_scan *kin_model_scan_open(const kin_model_scan_options *options); // NULL: no memory
void kin_model_scan_tick(kin_model_scan *scan, kin_time now);
void kin_model_scan_close(kin_model_scan *scan); // when the loop has ended; NULL is allowed
