// The engine's system functions for a web page: clock, processors, files, memory.
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "engine/governor.h"
#include "model/gguf.h"
#include "sys/cpu.h"
#include "sys/file.h"
#include "web/engine/threads.h"
#include "web/host.h"

kin_time kin_clock_now(void) {
    return (kin_time)(kin_host_now() * 1e6);
}

int kin_cpu_n_cores(void) {
    return kin_team_size(kin_web_team());
}

// ---- files: the beginning of a model's file, up to its weights, is kept in memory; the rest is read on demand

enum { HEADER_STEP = 1 << 20 };

static const char *open_name; // only one file is open at a time

static int load_header(kin_file *file, const char *name, kin_err *err) {
    uint64_t n = file->size < HEADER_STEP ? file->size : HEADER_STEP, reach;
    for (;;) {
        free((void *)file->bytes);
        if (n > SIZE_MAX / 2 || !(file->bytes = malloc((size_t)n)))
            return kin_err_set(err, "%s: out of memory for its header", name);
        if (kin_file_read(file, 0, (void *)file->bytes, (size_t)n) != 0) return kin_err_set(err, "%s: cannot be read", name);
        if (n == file->size || kin_header_measure(file->bytes, n, file->size, &reach, err) != KIN_HEADER_MORE) return 0;
        n = reach > file->size - HEADER_STEP ? file->size : reach + HEADER_STEP;
    }
}

int kin_file_open(kin_file *file, const char *path, kin_err *err) {
    double size = kin_host_size(path, strlen(path));
    *file = (kin_file){.fd = -1};
    if (size < 0) return kin_err_set(err, "%s: is not here", path);
    open_name = path;
    file->size = (uint64_t)size;
    file->fd = 0;
    return load_header(file, path, err);
}

void kin_file_close(kin_file *file) {
    free((void *)file->bytes);
    *file = (kin_file){.fd = -1};
}

int kin_file_read(const kin_file *file, uint64_t at, void *to, size_t n) {
    (void)file;
    return kin_host_read(open_name, strlen(open_name), (double)at, to, n) ? 0 : KIN_FAIL;
}

// A page's model does not change: its chunks are fetched by hash.
int kin_file_identify(int fd, kin_file_identity *identity) {
    (void)fd;
    *identity = (kin_file_identity){0};
    return 0;
}

int kin_file_identify_path(const char *path, kin_file_identity *identity) {
    (void)path;
    *identity = (kin_file_identity){0};
    return 0;
}

kin_file_state kin_file_check(const kin_file *file, const kin_file_identity *identity) {
    (void)file, (void)identity;
    return KIN_FILE_SAME;
}

bool kin_file_is_cut(const kin_file *file) {
    (void)file;
    return false;
}

void kin_file_guard(kin_file *file) {
    (void)file;
}

// ---- memory: only the memory that the page gave the module

uint64_t kin_governor_held(bool with_rings) {
    (void)with_rings;
    return 0;
}

uint64_t kin_governor_room(uint64_t memory) {
    return memory ? memory : UINT32_MAX;
}

int kin_governor_start(kin_governor **out, const kin_governor_options *options, kin_err *err) {
    (void)options, (void)err;
    *out = NULL;
    return 0;
}

void kin_governor_stop(kin_governor *governor) {
    (void)governor;
}

uint64_t kin_governor_budget(const kin_governor *governor) {
    (void)governor;
    return 0;
}
