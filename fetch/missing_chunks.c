#include "fetch/missing_chunks.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "model/gguf.h"
#include "model/model.h"
#include "model/ranges.h"

// ---- headers

// Returns the contiguous bytes present from the start of a file.
static uint64_t bytes_here(kin_store *store, int i_file) {
    const kin_manifest_file *file = &kin_store_manifest(store)->files[i_file];
    uint32_t i = file->chunk_begin;
    while (i < file->chunk_end && kin_store_has(store, i)) i++;
    uint64_t n = (uint64_t)(i - file->chunk_begin) * kin_store_manifest(store)->chunk_bytes;
    return n < file->size ? n : file->size;
}

static int measure(kin_store *store, int i_file, kin_header_state *state, uint64_t *reach, kin_err *err) {
    const char *path = kin_store_path(store, i_file);
    uint64_t size = kin_store_manifest(store)->files[i_file].size, n = bytes_here(store, i_file);
    if (n == 0) {
        *state = kin_header_measure(NULL, 0, size, reach, err);
        return 0;
    }
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return kin_err_set(err, "%s: %s", path, strerror(errno));
    void *bytes = mmap(NULL, n, PROT_READ, MAP_SHARED, fd, 0);
    close(fd);
    if (bytes == MAP_FAILED) return kin_err_set(err, "%s: %s", path, strerror(errno));
    *state = kin_header_measure(bytes, n, size, reach, err);
    munmap(bytes, n);
    return 0;
}

static void add_chunk(kin_missing_chunks *s, bool *seen, uint32_t i_chunk) {
    if (!seen[i_chunk]) s->chunks[s->n++] = i_chunk;
    seen[i_chunk] = true;
}

// Collects the chunks of all headers, as far as known, and sets is_whole.
static int scan_headers(kin_missing_chunks *s, kin_store *store, bool *seen, kin_err *err) {
    s->is_whole = true;
    for (int i = 0; i < kin_store_manifest(store)->n_files; i++) {
        kin_header_state state = KIN_HEADER_BROKEN;
        uint64_t reach = 0;
        uint32_t begin, end;
        if (measure(store, i, &state, &reach, err) != 0) return KIN_FAIL;
        if (state == KIN_HEADER_BROKEN) return kin_err_prefix(err, "file %d of the head's model", i + 1);
        if (kin_store_chunks_of_range(store, i, 0, reach, &begin, &end, err) != 0) return KIN_FAIL;
        for (uint32_t c = begin; c < end; c++) add_chunk(s, seen, c);
        s->is_whole = s->is_whole && state == KIN_HEADER_WHOLE;
    }
    return 0;
}

// ---- windows

static int scan_window(kin_missing_chunks *s, kin_store *store, const kin_gguf *gguf, const kin_ranges_wanted *wanted, bool *seen,
                       kin_err *err) {
    kin_range *ranges;
    uint32_t *chunks = NULL;
    size_t n_ranges, n_chunks = 0;
    if (kin_ranges_list(gguf, wanted, &ranges, &n_ranges, err) != 0) return KIN_FAIL;
    int rc = kin_ranges_chunks(kin_store_manifest(store), ranges, n_ranges, &chunks, &n_chunks, err);
    for (size_t i = 0; i < n_chunks && rc == 0; i++) add_chunk(s, seen, chunks[i]);
    if (rc == 0) free(chunks);
    free(ranges);
    s->ends[s->n_groups++] = s->n;
    return rc;
}

static int scan_windows(kin_missing_chunks *s, kin_store *store, const kin_windows *windows, const kin_share *share, bool *seen,
                        kin_err *err) {
    kin_model model;
    if (kin_model_open(&model, kin_store_path(store, 0), err) != 0) return KIN_FAIL;
    kin_ranges_wanted wanted = {.header = true};
    int rc = kin_ranges_private(model.gguf, kin_store_manifest(store), s->is_private, err);
    if (rc == 0) rc = scan_window(s, store, model.gguf, &wanted, seen, err);
    wanted = (kin_ranges_wanted){.slices = kin_share_slices(share, &model)}; // kin_ranges_list checks it
    for (int i = 0; i < windows->n && rc == 0; i++) {
        wanted.layer_begin = windows->at[i].layer_begin;
        wanted.layer_end = windows->at[i].layer_end;
        rc = scan_window(s, store, model.gguf, &wanted, seen, err);
    }
    kin_model_close(&model);
    return rc;
}

int kin_missing_chunks_make(kin_missing_chunks *s, kin_store *store, const kin_windows *windows, const kin_share *share,
                            kin_err *err) {
    uint32_t n_chunks = kin_store_manifest(store)->n_chunks;
    bool *seen = calloc(n_chunks, sizeof *seen);
    *s = (kin_missing_chunks){.chunks = calloc(n_chunks, sizeof *s->chunks)};
    int rc = seen && s->chunks ? 0 : kin_err_set(err, "out of memory for a list of %u chunks", (unsigned)n_chunks);
    if (rc == 0) rc = scan_headers(s, store, seen, err);
    if (rc == 0 && s->is_whole) s->is_private = calloc(n_chunks, sizeof *s->is_private);
    if (rc == 0 && s->is_whole && !s->is_private) rc = kin_err_set(err, "out of memory");
    if (rc == 0 && s->is_whole) {
        rc = scan_windows(s, store, windows, share, seen, err);
    } else if (rc == 0) {
        s->ends[s->n_groups++] = s->n;
    }
    free(seen);
    if (rc != 0) kin_missing_chunks_fini(s);
    return rc;
}

void kin_missing_chunks_fini(kin_missing_chunks *s) {
    free(s->chunks);
    free(s->is_private);
    s->chunks = NULL;
    s->is_private = NULL;
    s->n = 0;
}
