// The byte ranges that a device needs: all of its layers and little else. A sparse copy with only these bytes opens as the model.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "model/manifest.h"
#include "model/model.h"
#include "model/ranges.h"
#include "model/store.h"
#include "sys/whole_file.h"
#include "testkit/model_gen.h"
#include "tests/place.h"

enum { CHUNK = 16 << 10, N_PARTS = 3 };

typedef struct fixture {
    char folder[64];
    char whole[128], part[N_PARTS][160];
    kin_model_spec spec;
} fixture;

static int set_up(void **state) {
    fixture *f = calloc(1, sizeof *f);
    kin_err err;
    char prefix[128];
    strcpy(f->folder, "/tmp/kin-test-ranges-XXXXXX");
    if (!mkdtemp(f->folder)) return -1;
    f->spec = kin_model_spec_defaults();
    f->spec.rope_freqs = true;
    snprintf(f->whole, sizeof f->whole, "%s/whole.gguf", f->folder);
    snprintf(prefix, sizeof prefix, "%s/split", f->folder);
    for (int i = 0; i < N_PARTS; i++) snprintf(f->part[i], sizeof f->part[i], "%s-%05d-of-%05d.gguf", prefix, i + 1, N_PARTS);
    if (kin_model_gen(&f->spec, f->whole, &err) != 0 || kin_model_gen_split(&f->spec, prefix, N_PARTS, &err) != 0) return -1;
    *state = f;
    return 0;
}

static int tear_down(void **state) {
    fixture *f = *state;
    unlink(f->whole);
    for (int i = 0; i < N_PARTS; i++) unlink(f->part[i]);
    int rc = rmdir(f->folder);
    free(f);
    return rc;
}

static kin_gguf *open_gguf(const char *path) {
    kin_gguf *gguf;
    kin_err err;
    if (kin_gguf_open(&gguf, path, &err) != 0) fail_msg("%s", err.text);
    return gguf;
}
#define open_gguf(...) FROM_TEST(open_gguf(__VA_ARGS__))

typedef struct listed {
    kin_range *ranges;
    size_t n;
} listed;

static listed list(const kin_gguf *gguf, kin_ranges_wanted wanted) {
    listed l;
    kin_err err;
    if (kin_ranges_list(gguf, &wanted, &l.ranges, &l.n, &err) != 0) fail_msg("%s", err.text);
    return l;
}
#define list(...) FROM_TEST(list(__VA_ARGS__))

static bool covers(const listed *l, int i_file, uint64_t begin, uint64_t end) {
    for (size_t i = 0; i < l->n; i++) {
        const kin_range *r = &l->ranges[i];
        if (r->i_file == i_file && r->offset <= begin && end <= r->offset + r->bytes) return true;
    }
    return false;
}

static bool covers_tensor(const listed *l, const kin_gguf *gguf, const char *name) {
    const kin_gguf_tensor *t = kin_gguf_find_tensor(gguf, name);
    assert_non_null(t);
    return covers(l, t->i_file, t->offset, t->offset + t->n_bytes);
}
#define covers_tensor(...) FROM_TEST(covers_tensor(__VA_ARGS__))

// Expects exactly the tensors of the wanted layers, and those that the flags name.
static void expect_tensors(const kin_gguf *gguf, const listed *l, const kin_ranges_wanted *w) {
    uint64_t sum = 0;
    for (size_t i = 0; i < kin_gguf_n_tensors(gguf); i++) {
        const kin_gguf_tensor *t = kin_gguf_tensor_at(gguf, i);
        int il = -1;
        char name[80];
        snprintf(name, sizeof name, "%.*s", (int)t->name.len, t->name.at);
        bool wanted = strcmp(name, "rope_freqs.weight") == 0;
        if (sscanf(name, "blk.%d.", &il) == 1) wanted = il >= w->layer_begin && il < w->layer_end;
        if (strcmp(name, "token_embd.weight") == 0) wanted = w->embedding;
        if (strncmp(name, "output", 6) == 0) wanted = w->output;
        if (wanted) assert_true(covers(l, t->i_file, t->offset, t->offset + t->n_bytes));
        sum += wanted ? t->n_bytes : 0;
    }
    uint64_t listed_bytes = kin_ranges_bytes(l->ranges, l->n);
    assert_in_range(listed_bytes, sum, sum + 32 * kin_gguf_n_tensors(gguf)); // only padding, at most 32 bytes per tensor
}
#define expect_tensors(...) FROM_TEST(expect_tensors(__VA_ARGS__))

static void layers_bring_their_tensors_and_no_others(void **state) {
    fixture *f = *state;
    const char *const paths[] = {f->whole, f->part[0]};
    for (int p = 0; p < 2; p++) {
        kin_gguf *gguf = open_gguf(paths[p]);
        for (int begin = 0; begin <= f->spec.n_layer; begin++) {
            for (int end = begin; end <= f->spec.n_layer; end++) {
                for (int flags = 0; flags < 4; flags++) {
                    kin_ranges_wanted w = {.layer_begin = begin, .layer_end = end, .embedding = flags & 1, .output = flags & 2};
                    listed l = list(gguf, w);
                    expect_tensors(gguf, &l, &w);
                    free(l.ranges);
                }
            }
        }
        kin_gguf_close(gguf);
    }
}

static void neighbours_are_one_range(void **state) {
    fixture *f = *state;
    kin_gguf *gguf = open_gguf(f->whole);
    listed l = list(gguf, (kin_ranges_wanted){.layer_begin = 0, .layer_end = f->spec.n_layer});
    assert_in_range(l.n, 1, 2); // the generator writes layer after layer; the rope factors may lie apart
    free(l.ranges);
    kin_gguf_close(gguf);
}

static void the_header_comes_first_and_ends_at_the_first_tensor(void **state) {
    fixture *f = *state;
    kin_gguf *gguf = open_gguf(f->part[1]);
    listed l = list(gguf, (kin_ranges_wanted){.header = true, .layer_begin = 2, .layer_end = 3});
    for (int i = 0; i < N_PARTS; i++) {
        uint64_t first = kin_gguf_file_size(gguf, i);
        for (size_t k = 0; k < kin_gguf_n_tensors(gguf); k++) {
            const kin_gguf_tensor *t = kin_gguf_tensor_at(gguf, k);
            if (t->i_file == i && t->offset < first) first = t->offset;
        }
        assert_true(covers(&l, i, 0, first));
        assert_int_equal(l.ranges[i].i_file, i);
        assert_int_equal(l.ranges[i].offset, 0);
    }
    free(l.ranges);
    kin_gguf_close(gguf);
}

static void a_tied_output_brings_the_embedding(void **state) {
    fixture *f = *state;
    kin_err err;
    kin_model_spec spec = f->spec;
    char tied[160];
    spec.tied = true;
    snprintf(tied, sizeof tied, "%s/tied.gguf", f->folder);
    if (kin_model_gen(&spec, tied, &err) != 0) fail_msg("%s", err.text);
    kin_gguf *gguf = open_gguf(tied);
    for (int flags = 0; flags < 4; flags++) {
        listed l = list(gguf, (kin_ranges_wanted){.layer_end = 1, .embedding = flags & 1, .output = flags & 2});
        assert_int_equal(covers_tensor(&l, gguf, "token_embd.weight"), flags != 0);
        assert_int_equal(covers_tensor(&l, gguf, "output_norm.weight"), (flags & 2) != 0);
        free(l.ranges);
    }
    kin_gguf_close(gguf);
    unlink(tied);
}

static void layers_that_are_not_there_are_refused(void **state) {
    fixture *f = *state;
    kin_gguf *gguf = open_gguf(f->whole);
    const int pairs[][2] = {{-1, 1}, {2, 1}, {0, f->spec.n_layer + 1}, {f->spec.n_layer, f->spec.n_layer + 1}, {1000, 1001}};
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
        kin_range *ranges;
        size_t n;
        kin_err err = {""};
        kin_ranges_wanted w = {.layer_begin = pairs[i][0], .layer_end = pairs[i][1]};
        assert_int_equal(kin_ranges_list(gguf, &w, &ranges, &n, &err), KIN_FAIL);
        assert_null(ranges);
        assert_true(err.text[0]);
    }
    kin_gguf_close(gguf);
}

// ---- headers

static void a_header_is_measured_from_any_beginning(void **state) {
    fixture *f = *state;
    uint8_t *bytes;
    size_t size;
    uint64_t whole, reach;
    assert_int_equal(kin_whole_file_read(f->part[0], 1 << 28, &bytes, &size, NULL), 0);
    assert_int_equal(kin_header_measure(bytes, size, size, &whole, NULL), KIN_HEADER_WHOLE);
    kin_gguf *gguf = open_gguf(f->part[0]);
    uint64_t first = kin_gguf_file_size(gguf, 0);
    for (size_t k = 0; k < kin_gguf_n_tensors(gguf); k++) {
        const kin_gguf_tensor *t = kin_gguf_tensor_at(gguf, k);
        if (t->i_file == 0 && t->offset < first) first = t->offset;
    }
    kin_gguf_close(gguf);
    assert_in_range(first - whole, 0, 31); // padding
    for (uint64_t n = 0; n < whole; n += 1 + n / 50) {
        uint8_t *exact = malloc(n ? n : 1); // a tight buffer, so that sanitizers find a read beyond it
        memcpy(exact, bytes, n);
        assert_int_equal(kin_header_measure(exact, n, size, &reach, NULL), KIN_HEADER_MORE);
        assert_true(reach > n && reach <= whole);
        free(exact);
    }
    uint64_t n = 0;
    int n_rounds = 0;
    while (kin_header_measure(bytes, n, size, &reach, NULL) == KIN_HEADER_MORE) { // in whole chunks, like a device
        n = (reach + CHUNK - 1) / CHUNK * CHUNK;
        n_rounds++;
    }
    assert_true(n < whole + CHUNK && (uint64_t)n_rounds <= n / CHUNK);
    assert_int_equal(kin_header_measure(bytes, whole, whole, &reach, NULL), KIN_HEADER_WHOLE);
    assert_int_equal(kin_header_measure(bytes, whole, whole - 1, &reach, NULL),
                     KIN_HEADER_BROKEN); // the header is longer than the file
    free(bytes);
}

static void nonsense_is_no_header(void **state) {
    (void)state;
    uint8_t bytes[64] = {'G', 'G', 'U', 'F', 3};
    uint64_t reach;
    bytes[16] = 1; // one metadata entry
    assert_int_equal(kin_header_measure((const uint8_t *)"GGML, not what is wanted", 24, 1000, &reach, NULL), KIN_HEADER_BROKEN);
    assert_int_equal(kin_header_measure(bytes, 24, 24, &reach, NULL), KIN_HEADER_BROKEN);
    memset(bytes + 24, 0xff, 8); // a key of 2^64 - 1 bytes
    assert_int_equal(kin_header_measure(bytes, 64, UINT64_MAX, &reach, NULL), KIN_HEADER_BROKEN);
    memset(bytes + 24, 0, 8);
    bytes[32] = 13; // not a value type
    assert_int_equal(kin_header_measure(bytes, 64, 1000, &reach, NULL), KIN_HEADER_BROKEN);
    bytes[32] = KIN_GGUF_ARRAY;
    bytes[36] = KIN_GGUF_U64;
    memset(bytes + 40, 0x20, 8); // 2^61 values
    assert_int_equal(kin_header_measure(bytes, 64, 1u << 30, &reach, NULL), KIN_HEADER_BROKEN);
    bytes[36] = KIN_GGUF_ARRAY; // an array of arrays
    assert_int_equal(kin_header_measure(bytes, 64, 1u << 30, &reach, NULL), KIN_HEADER_BROKEN);
}

// ---- chunks, and a device's sparse copy

static kin_manifest manifest_of(const char *const *paths, int n) {
    kin_manifest m;
    kin_err err;
    kin_manifest_options o = kin_manifest_options_defaults();
    o.chunk_bytes = CHUNK;
    if (kin_manifest_make(&m, paths, n, &o, &err) != 0) fail_msg("%s", err.text);
    return m;
}
#define manifest_of(...) FROM_TEST(manifest_of(__VA_ARGS__))

static void chunks_are_each_listed_once_in_the_order_of_need(void **state) {
    fixture *f = *state;
    const char *path = f->whole;
    kin_manifest m = manifest_of(&path, 1);
    const kin_range ranges[] = {{0, 5 * CHUNK, 10}, {0, 0, CHUNK + 1}, {0, 4 * CHUNK - 1, 2 * CHUNK}, {0, 7 * CHUNK, 0}};
    const uint32_t expected[] = {5, 0, 1, 3, 4};
    uint32_t *chunks;
    size_t n;
    kin_err err;
    assert_int_equal(kin_ranges_chunks(&m, ranges, 4, &chunks, &n, &err), 0);
    assert_int_equal(n, 5);
    assert_memory_equal(chunks, expected, sizeof expected);
    free(chunks);
    const kin_range beyond = {0, m.files[0].size, 1}, other_file = {1, 0, 1};
    assert_int_equal(kin_ranges_chunks(&m, &beyond, 1, &chunks, &n, &err), KIN_FAIL);
    assert_int_equal(kin_ranges_chunks(&m, &other_file, 1, &chunks, &n, &err), KIN_FAIL);
    assert_null(chunks);
    kin_manifest_fini(&m);
}

static void copy_chunk(kin_store *from, kin_store *to, uint32_t i_chunk) {
    uint8_t bytes[CHUNK];
    kin_err err = {""};
    size_t n = kin_manifest_chunk(kin_store_manifest(to), i_chunk).bytes;
    if (kin_store_read(from, i_chunk, 0, bytes, n, &err) != 0 || kin_store_put(to, i_chunk, bytes, n, &err) != KIN_STORE_OK) {
        fail_msg("%s", err.text);
    }
}

// Fetches chunks of each file until its header is complete, as a device does before it can open the model. Returns their number.
static uint32_t fetch_headers(kin_store *from, kin_store *to) {
    const kin_manifest *m = kin_store_manifest(to);
    uint32_t n_fetched = 0;
    for (int i = 0; i < m->n_files; i++) {
        uint64_t have = 0, reach;
        uint8_t *bytes = calloc(1, m->files[i].size);
        while (kin_header_measure(bytes, have, m->files[i].size, &reach, NULL) == KIN_HEADER_MORE) {
            uint32_t chunk = m->files[i].chunk_begin + (uint32_t)(have / CHUNK);
            copy_chunk(from, to, chunk);
            uint32_t n = kin_manifest_chunk(m, chunk).bytes;
            assert_int_equal(kin_store_read(to, chunk, 0, bytes + have, n, NULL), 0);
            have += n;
            n_fetched++;
        }
        assert_int_equal(kin_header_measure(bytes, have, m->files[i].size, &reach, NULL), KIN_HEADER_WHOLE);
        free(bytes);
    }
    return n_fetched;
}

static void expect_same_layer(const kin_model *a, const kin_model *b, int il) {
    for (int w = 0; w < KIN_W_COUNT; w++) {
        const kin_gguf_tensor *ta = a->layers[il].w[w], *tb = b->layers[il].w[w];
        assert_int_equal(ta != NULL, tb != NULL);
        if (ta) assert_memory_equal(ta->data, tb->data, ta->n_bytes);
    }
}

static void remove_store(const kin_manifest *m, kin_store *store) {
    char path[256];
    snprintf(path, sizeof path, "%s", kin_store_path(store, 0));
    for (int i = 0; i < m->n_files; i++) unlink(kin_store_path(store, i));
    strcpy(strrchr(path, '/'), "/chunks");
    unlink(path);
    strcpy(strrchr(path, '/'), "/manifest");
    unlink(path);
    for (int i = 0; i < 2; i++) {
        *strrchr(path, '/') = '\0';
        rmdir(path);
    }
    kin_store_close(store);
}

static void run_on_parts(const fixture *f, const char *const *paths, int n_files) {
    kin_manifest m = manifest_of(paths, n_files);
    kin_store *head, *device;
    kin_model whole, sparse;
    kin_err err = {""};
    uint32_t *chunks;
    size_t n_chunks;
    if (kin_store_open_files(&head, &m, paths, &err) != 0) fail_msg("%s", err.text);
    if (kin_store_open(&device, f->folder, &m, KIN_STORE_FILL, &err) != 0) fail_msg("%s", err.text);

    uint32_t n_fetched = fetch_headers(head, device);
    kin_gguf *gguf = open_gguf(kin_store_path(device, 0));
    listed l = list(gguf, (kin_ranges_wanted){.header = true, .layer_begin = 1, .layer_end = 3});
    kin_gguf_close(gguf);
    if (kin_ranges_chunks(&m, l.ranges, l.n, &chunks, &n_chunks, &err) != 0) fail_msg("%s", err.text);
    for (uint32_t i = 0; i < n_fetched; i++) assert_true(i >= n_chunks || kin_store_has(device, chunks[0]));
    for (size_t i = 0; i < n_chunks; i++) copy_chunk(head, device, chunks[i]);
    assert_true(n_chunks < m.n_chunks);
    assert_true(n_chunks * CHUNK <= kin_ranges_bytes(l.ranges, l.n) + 2 * l.n * CHUNK);

    if (kin_model_open(&whole, paths[0], &err) != 0) fail_msg("%s", err.text);
    if (kin_model_open(&sparse, kin_store_path(device, 0), &err) != 0) fail_msg("%s", err.text);
    for (int il = 1; il < 3; il++) expect_same_layer(&whole, &sparse, il);
    assert_memory_equal(whole.rope_factors->data, sparse.rope_factors->data, whole.rope_factors->n_bytes);
    kin_model_close(&whole);
    kin_model_close(&sparse);
    free(chunks);
    free(l.ranges);
    remove_store(&m, device);
    kin_store_close(head);
    kin_manifest_fini(&m);
}
#define run_on_parts(...) FROM_TEST(run_on_parts(__VA_ARGS__))

static void a_sparse_copy_opens_as_the_model_and_has_its_layers(void **state) {
    fixture *f = *state;
    const char *whole[1] = {f->whole}, *parts[N_PARTS] = {f->part[0], f->part[1], f->part[2]};
    run_on_parts(f, whole, 1);
    run_on_parts(f, parts, N_PARTS);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(layers_bring_their_tensors_and_no_others),
        cmocka_unit_test(neighbours_are_one_range),
        cmocka_unit_test(the_header_comes_first_and_ends_at_the_first_tensor),
        cmocka_unit_test(a_tied_output_brings_the_embedding),
        cmocka_unit_test(layers_that_are_not_there_are_refused),
        cmocka_unit_test(a_header_is_measured_from_any_beginning),
        cmocka_unit_test(nonsense_is_no_header),
        cmocka_unit_test(chunks_are_each_listed_once_in_the_order_of_need),
        cmocka_unit_test(a_sparse_copy_opens_as_the_model_and_has_its_layers),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
