// Model files with failing allocations (failing_malloc.h): GGUF, vocabulary, manifest, ranges, store, missing chunks, block table
// of the KV cache.
#include "failing_malloc.h"

#include <dirent.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "engine/kv/blocks.h"
#include "fetch/chunk_bitmap.h"
#include "fetch/missing_chunks.h"
#include "model/chat_template.h"
#include "model/model.h"
#include "model/ranges.h"
#include "model/store.h"
#include "model/vocab_load.h"
#include "sys/whole_file.h"
#include "testkit/model_gen.h"

enum { N_LAYER = 2, CHUNK = KIN_CHUNK_BYTES_MIN };

// A small model in two files, its manifest, and a folder for stores.
typedef struct context {
    char folder[64], path[2][128], cache[128];
    const char *paths[2];
    kin_manifest manifest;
    kin_gguf *gguf;
    uint8_t *chunk; // the first chunk
} context;

static int open_context(void **state) {
    context *w = calloc(1, sizeof *w);
    char prefix[96];
    kin_err err;
    kin_model_spec spec = kin_model_spec_defaults();
    spec.n_layer = N_LAYER;
    spec.n_embd = spec.n_ff = 64;
    spec.n_vocab = 300;
    spec.n_head = spec.n_head_kv = 2;
    *state = w;
    strcpy(w->folder, "/tmp/kin-no-memory-XXXXXX");
    if (!mkdtemp(w->folder)) return -1;
    snprintf(prefix, sizeof prefix, "%s/m", w->folder);
    snprintf(w->cache, sizeof w->cache, "%s/cache", w->folder);
    for (int i = 0; i < 2; i++) {
        snprintf(w->path[i], sizeof w->path[i], "%s-%05d-of-00002.gguf", prefix, i + 1);
        w->paths[i] = w->path[i];
    }
    kin_manifest_options o = kin_manifest_options_defaults();
    o.chunk_bytes = CHUNK;
    o.n_threads = 1;
    if (kin_model_gen_split(&spec, prefix, 2, &err) != 0 || kin_manifest_make(&w->manifest, w->paths, 2, &o, &err) != 0 ||
        kin_gguf_open(&w->gguf, w->path[0], &err) != 0) {
        print_error("%s\n", err.text);
        return -1;
    }
    uint8_t *bytes;
    size_t n;
    if (kin_whole_file_read(w->path[0], 64 << 20, &bytes, &n, &err) != 0) return -1;
    w->chunk = bytes;
    return 0;
}

static void remove_folder(const char *path) {
    DIR *dir = opendir(path);
    for (struct dirent *entry; dir && (entry = readdir(dir));) {
        char name[512];
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0) continue;
        snprintf(name, sizeof name, "%s/%s", path, entry->d_name);
        if (unlink(name) != 0) remove_folder(name);
    }
    if (dir) closedir(dir);
    rmdir(path);
}

static int close_context(void **state) {
    context *w = *state;
    kin_gguf_close(w->gguf);
    kin_manifest_fini(&w->manifest);
    remove_folder(w->folder);
    free(w->chunk);
    free(w);
    return 0;
}

// ---- the model's files

static int open_model(void *arg, kin_err *err) {
    const context *w = arg;
    kin_model model;
    kin_vocab *vocab;
    kin_str source;
    if (kin_model_open(&model, w->path[0], err) != 0) return KIN_FAIL;
    int rc = kin_vocab_load(&vocab, model.gguf, err);
    if (rc == 0) kin_vocab_free(vocab);
    if (rc == 0) kin_chat_template_source(model.gguf, NULL, &source, NULL);
    kin_model_close(&model);
    return rc;
}

static int open_bytes(void *arg, kin_err *err) {
    kin_gguf *gguf;
    uint8_t *bytes;
    size_t n;
    const context *w = arg;
    if (kin_whole_file_read(w->path[0], 64 << 20, &bytes, &n, err) != 0) return KIN_FAIL;
    uint64_t reach = 0;
    int rc = kin_header_measure(bytes, n, n, &reach, err) == KIN_HEADER_WHOLE ? 0 : KIN_FAIL;
    if (rc == 0 && kin_gguf_open_bytes(&gguf, "m", bytes, n, NULL) == 0) kin_gguf_close(gguf); // half a model: refused
    free(bytes);
    return rc;
}

static void opening_a_model(void **state) {
    without_memory(open_model, *state);
    without_memory(open_bytes, *state);
}

// ---- the manifest

static int make_manifest(void *arg, kin_err *err) {
    const context *w = arg;
    kin_manifest m, copy;
    kin_manifest_options o = kin_manifest_options_defaults();
    o.chunk_bytes = CHUNK;
    o.n_threads = 1;
    o.cache_dir = w->cache;
    if (kin_manifest_make(&m, w->paths, 2, &o, err) != 0) return KIN_FAIL;
    int rc = kin_manifest_copy(&copy, &m, err);
    if (rc == 0) kin_manifest_fini(&copy);
    kin_manifest_fini(&m);
    return rc;
}

static int parse_manifest(void *arg, kin_err *err) {
    const context *w = arg;
    kin_manifest m;
    size_t n = kin_manifest_bytes(&w->manifest);
    uint8_t *bytes = malloc(n);
    if (!bytes) return kin_err_set(err, "out of memory");
    kin_manifest_write(&w->manifest, bytes);
    int rc = kin_manifest_parse(&m, bytes, n, w->manifest.hash, err);
    if (rc == 0) kin_manifest_fini(&m);
    free(bytes);
    return rc;
}

static int receive_manifest(void *arg, kin_err *err) {
    const context *w = arg;
    const kin_manifest *from = &w->manifest;
    const uint64_t sizes[] = {from->files[0].size, from->files[1].size};
    const char *names[] = {from->files[0].name, from->files[1].name};
    kin_manifest m;
    if (kin_manifest_begin(&m, CHUNK, 2, sizes, names, err) != 0) return KIN_FAIL;
    memcpy(m.hashes, from->hashes, from->n_chunks * sizeof *m.hashes);
    int rc = kin_manifest_finish(&m, from->hash, err);
    kin_manifest_fini(&m);
    return rc;
}

static void manifests(void **state) {
    without_memory(make_manifest, *state);
    without_memory(parse_manifest, *state);
    without_memory(receive_manifest, *state);
}

// ---- a device's chunks of a model, and its store

static int list_chunks(void *arg, kin_err *err) {
    const context *w = arg;
    const kin_ranges_wanted wanted = {.layer_end = N_LAYER, .header = true, .embedding = true, .output = true};
    kin_range *ranges;
    uint32_t *chunks;
    size_t n, n_chunks;
    if (kin_ranges_list(w->gguf, &wanted, &ranges, &n, err) != 0) return KIN_FAIL;
    int rc = kin_ranges_chunks(&w->manifest, ranges, n, &chunks, &n_chunks, err);
    if (rc == 0) free(chunks);
    free(ranges);
    return rc;
}

static int use_store(kin_store *store, const context *w, kin_err *err) {
    kin_chunk_bitmap bitmap;
    uint8_t back[64];
    size_t n = kin_manifest_chunk(&w->manifest, 0).bytes;
    if (kin_store_put(store, 0, w->chunk, n, err) != KIN_STORE_OK) return KIN_FAIL;
    if (kin_store_read(store, 0, 5, back, sizeof back, err) != 0 || kin_store_sync(store, err) != 0) return KIN_FAIL;
    assert_memory_equal(back, w->chunk + 5, sizeof back);
    if (kin_chunk_bitmap_init(&bitmap, store, err) != 0) return KIN_FAIL;
    kin_chunk_bitmap_want(&bitmap, 1, true);
    kin_chunk_bitmap_fini(&bitmap);
    return 0;
}

static int fill_store(void *arg, kin_err *err) {
    const context *w = arg;
    kin_store *store;
    remove_folder(w->cache);
    if (kin_store_open(&store, w->cache, &w->manifest, KIN_STORE_FILL, err) != 0) return KIN_FAIL;
    int rc = use_store(store, w, err);
    kin_store_close(store);
    return rc;
}

// Opens the store that the previous run made.
static int open_again(void *arg, kin_err *err) {
    const context *w = arg;
    kin_manifest m;
    kin_store *store;
    int rc = kin_store_find_manifest(&m, w->cache, w->manifest.hash, err);
    if (rc != 0) return rc == KIN_FAIL ? KIN_FAIL : kin_err_set(err, "the manifest is not there");
    rc = kin_store_open(&store, w->cache, &m, KIN_STORE_FILL, err);
    kin_manifest_fini(&m);
    if (rc != 0) return KIN_FAIL;
    rc = kin_store_verify(store, 1, NULL, err);
    if (rc == 0) assert_true(kin_store_has(store, 0));
    kin_store_close(store);
    return rc;
}

static int find_missing(void *arg, kin_err *err) {
    const context *w = arg;
    const kin_windows windows = {.n = 2, .at = {{.layer_begin = 0, .layer_end = 1}, {.layer_begin = 1, .layer_end = 2}}};
    kin_missing_chunks missing;
    kin_store *store;
    if (kin_store_open_files(&store, &w->manifest, w->paths, err) != 0) return KIN_FAIL;
    int rc = kin_missing_chunks_make(&missing, store, &windows, &(kin_share){0}, err);
    if (rc == 0) kin_missing_chunks_fini(&missing);
    kin_store_close(store);
    return rc;
}

static void stores_of_chunks(void **state) {
    without_memory(list_chunks, *state);
    without_memory(fill_store, *state);
    without_memory(open_again, *state);
    without_memory(find_missing, *state);
}

// ---- the KV cache's block table

static int use_blocks(void *arg, kin_err *err) {
    kin_kv_blocks *blocks;
    kin_kv_copy copy;
    int64_t cell;
    (void)arg;
    if (kin_kv_blocks_open(&blocks, 1024, 0, NULL, err) != 0) return KIN_FAIL;
    int rc = 0;
    for (int pos = 0; pos < 200 && rc == 0; pos++) rc = kin_kv_blocks_append(blocks, 3, pos, &cell, err);
    if (rc == 0) rc = kin_kv_blocks_apply(blocks, &(kin_kv_op){.seq = 500, .from = 3, .n = 150}, &copy, err);
    if (rc == 0) rc = kin_kv_blocks_append(blocks, 500, 150, &cell, err);
    for (int seq = 600; seq < 605 && rc == 0; seq++) rc = kin_kv_blocks_append(blocks, seq, 0, &cell, err);
    if (rc != 0) { // no block is lost
        kin_kv_op forget = {.seq = -1};
        assert_int_equal(kin_kv_blocks_apply(blocks, &forget, &copy, NULL), 0);
        assert_int_equal(kin_kv_blocks_n_free(blocks), kin_kv_blocks_n(blocks));
    }
    kin_kv_blocks_close(blocks);
    return rc;
}

static void blocks_of_the_kv_cache(void **state) {
    (void)state;
    without_memory(use_blocks, NULL);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(opening_a_model),
        cmocka_unit_test(manifests),
        cmocka_unit_test(stores_of_chunks),
        cmocka_unit_test(blocks_of_the_kv_cache),
    };
    return cmocka_run_group_tests(tests, open_context, close_context);
}
