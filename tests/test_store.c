// The sparse copy of a model: whatever has happened to its files, a chunk that it claims to have has the right bytes.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <openssl/evp.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/rng.h"
#include "model/store.h"
#include "sys/whole_file.h"
#include "testkit/os.h"
#include "tests/place.h"

enum { CHUNK = KIN_CHUNK_BYTES_MIN, N_CHUNKS = 200, N_FIRST = 150, TAIL = 77 };

// A model of two files, of which the first ends with a short chunk.
static const uint64_t sizes[2] = {(N_FIRST - 1) * CHUNK + TAIL, (N_CHUNKS - N_FIRST) * CHUNK};
static const char *const names[2] = {"m-00001-of-00002.gguf", "m-00002-of-00002.gguf"};

typedef struct chunk_bytes {
    uint8_t at[CHUNK];
} chunk_bytes;

static chunk_bytes bytes_of(uint32_t i_chunk) {
    chunk_bytes b;
    kin_rng rng;
    kin_rng_seed(&rng, i_chunk + 1);
    for (size_t i = 0; i < CHUNK; i++) b.at[i] = (uint8_t)kin_rng_u64(&rng);
    return b;
}

static size_t size_of(uint32_t i_chunk) {
    return i_chunk == N_FIRST - 1 ? TAIL : CHUNK;
}

typedef struct fixture {
    char folder[64];
    kin_manifest manifest;
    char path[2][256]; // of the store's files
    char chunks[256], checked[256], manifest_path[256];
} fixture;

static int set_up(void **state) {
    fixture *f = calloc(1, sizeof *f);
    kin_err err;
    strcpy(f->folder, "/tmp/kin-test-store-XXXXXX");
    if (!mkdtemp(f->folder) || kin_manifest_begin(&f->manifest, CHUNK, 2, sizes, names, &err) != 0) return -1;
    for (uint32_t i = 0; i < N_CHUNKS; i++) kin_sha256(bytes_of(i).at, size_of(i), f->manifest.hashes[i], NULL);
    kin_manifest_finish(&f->manifest, NULL, NULL);
    char dir[128];
    snprintf(dir, sizeof dir, "%s/models/%.16s", f->folder, kin_hash_to_hex(f->manifest.hash).text);
    for (int i = 0; i < 2; i++) snprintf(f->path[i], sizeof f->path[i], "%s/model-%05d-of-00002.gguf", dir, i + 1);
    snprintf(f->chunks, sizeof f->chunks, "%s/chunks", dir);
    snprintf(f->checked, sizeof f->checked, "%s/checked", dir);
    snprintf(f->manifest_path, sizeof f->manifest_path, "%s/manifest", dir);
    *state = f;
    return 0;
}

static int tear_down(void **state) {
    fixture *f = *state;
    unlink(f->path[0]);
    unlink(f->path[1]);
    unlink(f->chunks);
    unlink(f->manifest_path);
    unlink(f->checked);
    *strrchr(f->chunks, '/') = '\0';
    rmdir(f->chunks);
    *strrchr(f->chunks, '/') = '\0';
    rmdir(f->chunks);
    kin_manifest_fini(&f->manifest);
    int rc = rmdir(f->folder); // fails if other files were made
    free(f);
    return rc;
}

static kin_store *open_store(const fixture *f, kin_store_mode mode) {
    kin_store *s;
    kin_err err;
    if (kin_store_open(&s, f->folder, &f->manifest, mode, &err) != 0) fail_msg("%s", err.text);
    if (kin_store_verify(s, 2, NULL, &err) != 0) fail_msg("%s", err.text);
    return s;
}
#define open_store(...) FROM_TEST(open_store(__VA_ARGS__))

static void expect_open_fails(const fixture *f, kin_store_mode mode, const char *words) {
    kin_store *s;
    kin_err err = {"nothing"};
    assert_int_equal(kin_store_open(&s, f->folder, &f->manifest, mode, &err), KIN_FAIL);
    assert_null(s);
    if (!strstr(err.text, words)) fail_msg("'%s' does not say '%s'", err.text, words);
}
#define expect_open_fails(...) FROM_TEST(expect_open_fails(__VA_ARGS__))

static kin_store_result put(kin_store *s, uint32_t i_chunk, kin_err *err) {
    chunk_bytes b = bytes_of(i_chunk);
    return kin_store_put(s, i_chunk, b.at, size_of(i_chunk), err);
}

static void put_well(kin_store *s, uint32_t begin, uint32_t end) {
    kin_err err;
    for (uint32_t i = begin; i < end; i++) {
        if (put(s, i, &err) != KIN_STORE_OK) fail_msg("%s", err.text);
    }
}
#define put_well(...) FROM_TEST(put_well(__VA_ARGS__))

// Reads and compares every chunk that the store claims to have. Returns their number.
static uint32_t count_right(kin_store *s) {
    uint32_t n = 0;
    for (uint32_t i = 0; i < N_CHUNKS; i++) {
        uint8_t got[CHUNK];
        kin_err err;
        if (!kin_store_has(s, i)) continue;
        if (kin_store_read(s, i, 0, got, size_of(i), &err) != 0) fail_msg("%s", err.text);
        assert_memory_equal(got, bytes_of(i).at, size_of(i));
        n++;
    }
    return n;
}
#define count_right(...) FROM_TEST(count_right(__VA_ARGS__))

static void fill_store(const fixture *f, uint32_t begin, uint32_t end) {
    kin_store *s = open_store(f, KIN_STORE_FILL);
    put_well(s, begin, end);
    kin_store_close(s);
}
#define fill_store(...) FROM_TEST(fill_store(__VA_ARGS__))

static uint32_t count_after_open(const fixture *f) {
    kin_store *s = open_store(f, KIN_STORE_FILL);
    uint32_t n = count_right(s);
    kin_store_close(s);
    return n;
}
#define count_after_open(...) FROM_TEST(count_after_open(__VA_ARGS__))

// ---- writing, reading, reopening

static void chunks_that_were_put_are_found_again(void **state) {
    fixture *f = *state;
    kin_store *s = open_store(f, KIN_STORE_FILL);
    assert_int_equal(count_right(s), 0);
    for (uint32_t i = 0; i < N_CHUNKS; i += 3) put_well(s, i, i + 1);
    assert_int_equal(count_right(s), 67);
    kin_store_close(s);
    s = open_store(f, KIN_STORE_READ);
    assert_int_equal(count_right(s), 67);
    for (uint32_t i = 0; i < N_CHUNKS; i++) assert_int_equal(kin_store_has(s, i), i % 3 == 0);
    assert_false(kin_store_has(s, N_CHUNKS));
    assert_false(kin_store_has_all(s, 0, 2));
    assert_true(kin_store_has_all(s, 3, 4));
    assert_false(kin_store_has_all(s, N_CHUNKS - 2, N_CHUNKS + 1));
    uint8_t bits[N_CHUNKS / 8];
    assert_int_equal(kin_store_bitmap(s, bits), 67);
    for (uint32_t i = 0; i < N_CHUNKS; i++) assert_int_equal(bits[i / 8] >> i % 8 & 1, i % 3 == 0);
    kin_store_close(s);
    kin_store_close(NULL);
}

static void the_files_have_their_own_sizes_and_little_on_the_disk(void **state) {
    fixture *f = *state;
    kin_store *s = open_store(f, KIN_STORE_FILL);
    put_well(s, N_FIRST - 1, N_FIRST + 1);
    for (int i = 0; i < 2; i++) {
        struct stat st;
        assert_string_equal(kin_store_path(s, i), f->path[i]);
        assert_int_equal(stat(kin_store_path(s, i), &st), 0);
        assert_int_equal(st.st_size, sizes[i]);
    }
    assert_int_equal(kin_store_sync(s, NULL), 0);
    assert_in_range(kin_store_size_on_disk(s), 1, 16 * CHUNK);
    assert_memory_equal(kin_store_manifest(s)->hash, f->manifest.hash, KIN_SHA256_BYTES);
    uint32_t begin, end;
    assert_int_equal(kin_store_chunks_of_range(s, 1, 1, CHUNK, &begin, &end, NULL), 0);
    assert_int_equal(begin, N_FIRST);
    assert_int_equal(end, N_FIRST + 2);
    kin_store_close(s);
}

static void wrong_bytes_are_the_senders_fault_and_change_nothing(void **state) {
    fixture *f = *state;
    kin_store *s = open_store(f, KIN_STORE_FILL);
    chunk_bytes b = bytes_of(7);
    kin_err err;
    b.at[CHUNK - 1] ^= 1;
    assert_int_equal(kin_store_put(s, 7, b.at, CHUNK, &err), KIN_STORE_WRONG);
    assert_non_null(strstr(err.text, "chunk 7 are damaged"));
    assert_int_equal(kin_store_put(s, 8, bytes_of(7).at, CHUNK, &err), KIN_STORE_WRONG);
    assert_int_equal(kin_store_put(s, 7, bytes_of(7).at, CHUNK - 1, &err), KIN_STORE_WRONG);
    assert_int_equal(kin_store_put(s, N_FIRST - 1, bytes_of(N_FIRST - 1).at, CHUNK, &err), KIN_STORE_WRONG);
    assert_int_equal(kin_store_put(s, N_CHUNKS, bytes_of(7).at, CHUNK, &err), KIN_STORE_WRONG);
    put_well(s, 7, 8);
    assert_int_equal(kin_store_put(s, 7, b.at, CHUNK, &err), KIN_STORE_WRONG); // also if the store has the chunk
    assert_int_equal(count_right(s), 1);
    kin_store_close(s);
}

// Replaces libcrypto's function, to simulate a lack of memory.
static atomic_bool cannot_hash;

int EVP_Digest(const void *bytes, size_t n, unsigned char *hash, unsigned *n_hash, const EVP_MD *type, ENGINE *engine) {
    EVP_MD_CTX *ctx = atomic_load(&cannot_hash) ? NULL : EVP_MD_CTX_new();
    int ok =
        ctx && EVP_DigestInit_ex(ctx, type, engine) && EVP_DigestUpdate(ctx, bytes, n) && EVP_DigestFinal_ex(ctx, hash, n_hash);
    EVP_MD_CTX_free(ctx);
    return ok;
}

static void a_chunk_that_cannot_be_hashed_is_not_the_senders_fault(void **state) {
    fixture *f = *state;
    kin_store *s = open_store(f, KIN_STORE_FILL);
    kin_err err;
    atomic_store(&cannot_hash, true);
    kin_store_result result = kin_store_put(s, 7, bytes_of(7).at, CHUNK, &err);
    atomic_store(&cannot_hash, false);
    assert_int_equal(result, KIN_STORE_FAILED);
    assert_non_null(strstr(err.text, "SHA-256"));
    put_well(s, 7, 8);
    kin_store_close(s);
}

static void what_a_peer_may_ask_for_is_limited_to_what_is_there(void **state) {
    fixture *f = *state;
    kin_store *s = open_store(f, KIN_STORE_FILL);
    uint8_t got[CHUNK];
    kin_err err;
    put_well(s, N_FIRST - 1, N_FIRST + 1);
    assert_int_equal(kin_store_read(s, N_FIRST - 1, 70, got, 7, &err), 0);
    assert_memory_equal(got, bytes_of(N_FIRST - 1).at + 70, 7);
    assert_int_equal(kin_store_read(s, N_FIRST - 1, 70, got, 8, &err), KIN_FAIL);
    assert_int_equal(kin_store_read(s, N_FIRST - 1, 78, got, 0, &err), KIN_FAIL);
    assert_int_equal(kin_store_read(s, N_FIRST, UINT32_MAX, got, 2, &err), KIN_FAIL);
    assert_int_equal(kin_store_read(s, N_FIRST, 1, got, SIZE_MAX, &err), KIN_FAIL);
    assert_int_equal(kin_store_read(s, 3, 0, got, 1, &err), KIN_FAIL);
    assert_non_null(strstr(err.text, "chunk 3 is missing"));
    assert_int_equal(kin_store_read(s, UINT32_MAX, 0, got, 1, &err), KIN_FAIL);
    kin_store_close(s);
}

static void a_store_over_whole_files_has_everything_and_takes_nothing(void **state) {
    fixture *f = *state;
    fill_store(f, 0, N_CHUNKS);
    const char *paths[2] = {f->path[0], f->path[1]};
    kin_store *s;
    kin_err err;
    if (kin_store_open_files(&s, &f->manifest, paths, &err) != 0) fail_msg("%s", err.text);
    assert_int_equal(count_right(s), N_CHUNKS);
    assert_int_equal(put(s, 3, &err), KIN_STORE_OK); // it already has the chunk
    assert_int_equal(kin_store_sync(s, &err), 0);
    kin_store_close(s);
    assert_int_equal(truncate(f->path[1], 5), 0);
    assert_int_equal(kin_store_open_files(&s, &f->manifest, paths, &err), KIN_FAIL);
    assert_non_null(strstr(err.text, "has 5 bytes"));
    paths[1] = "/dev/null";
    assert_int_equal(kin_store_open_files(&s, &f->manifest, paths, &err), KIN_FAIL);
    assert_null(s);
}

static void a_model_in_one_file_has_a_plain_name(void **state) {
    fixture *f = *state;
    kin_manifest m;
    const uint64_t size = 5;
    const char *name = "../evil"; // a name must not choose the folder
    assert_int_equal(kin_manifest_begin(&m, CHUNK, 1, &size, &name, NULL), KIN_FAIL);
    name = "other.gguf";
    assert_int_equal(kin_manifest_begin(&m, CHUNK, 1, &size, &name, NULL), 0);
    kin_manifest_finish(&m, NULL, NULL);
    kin_store *s;
    assert_int_equal(kin_store_open(&s, f->folder, &m, KIN_STORE_FILL, NULL), 0);
    char path[256];
    snprintf(path, sizeof path, "%s", kin_store_path(s, 0));
    assert_string_equal(strrchr(path, '/'), "/model.gguf");
    kin_store_close(s);
    unlink(path);
    strcpy(strrchr(path, '/'), "/chunks");
    unlink(path);
    strcpy(strrchr(path, '/'), "/manifest");
    unlink(path);
    *strrchr(path, '/') = '\0';
    rmdir(path);
    kin_manifest_fini(&m);
}

// ---- manifest and identity

static void the_kept_manifest_is_found_by_its_hash(void **state) {
    fixture *f = *state;
    kin_manifest m;
    kin_err err;
    assert_int_equal(kin_store_find_manifest(&m, f->folder, f->manifest.hash, &err), 1);
    fill_store(f, 0, 1);
    assert_int_equal(kin_store_find_manifest(&m, f->folder, f->manifest.hash, &err), 0);
    assert_memory_equal(m.hash, f->manifest.hash, KIN_SHA256_BYTES);
    assert_int_equal(m.n_chunks, N_CHUNKS);
    kin_manifest_fini(&m);
}

static void a_damaged_manifest_is_written_anew(void **state) {
    fixture *f = *state;
    kin_manifest m;
    fill_store(f, 0, 20);
    assert_int_equal(truncate(f->manifest_path, 100), 0);
    assert_int_equal(kin_store_find_manifest(&m, f->folder, f->manifest.hash, NULL), 1);
    expect_open_fails(f, KIN_STORE_READ, "damaged");
    assert_int_equal(count_after_open(f), 20);
    assert_int_equal(kin_store_find_manifest(&m, f->folder, f->manifest.hash, NULL), 0);
    kin_manifest_fini(&m);
}

static void another_models_store_is_refused_and_left_alone(void **state) {
    fixture *f = *state;
    fill_store(f, 0, 20);
    kin_manifest other;
    const char *const other_names[1] = {"x.gguf"};
    assert_int_equal(kin_manifest_begin(&other, CHUNK, 1, sizes, other_names, NULL), 0);
    assert_int_equal(kin_manifest_finish(&other, NULL, NULL), 0);
    size_t n = kin_manifest_bytes(&other), n_kept;
    uint8_t *bytes = malloc(n), *kept;
    assert_int_equal(kin_whole_file_read(f->manifest_path, 1 << 20, &kept, &n_kept, NULL), 0);
    kin_manifest_write(&other, bytes);
    assert_int_equal(kin_whole_file_write(f->manifest_path, bytes, n, NULL), 0);
    expect_open_fails(f, KIN_STORE_FILL, "belongs to another model");
    expect_open_fails(f, KIN_STORE_READ, "belongs to another model");
    assert_int_equal(kin_whole_file_write(f->manifest_path, kept, n_kept, NULL), 0);
    assert_int_equal(count_after_open(f), 20);
    free(bytes);
    free(kept);
    kin_manifest_fini(&other);
}

static void a_store_that_is_not_there_cannot_be_read(void **state) {
    fixture *f = *state;
    expect_open_fails(f, KIN_STORE_READ, "no copy of the model");
    fill_store(f, 0, 1);
    unlink(f->path[0]);
    expect_open_fails(f, KIN_STORE_READ, "No such file");
}

static void unusable_folders_are_refused_in_one_sentence(void **state) {
    fixture *f = *state;
    char too_long[5000];
    memset(too_long, 'x', sizeof too_long);
    too_long[0] = '/';
    too_long[sizeof too_long - 1] = '\0';
    const char *const dirs[] = {"/dev/null", "/proc/kin", too_long};
    for (size_t i = 0; i < sizeof dirs / sizeof *dirs; i++) {
        kin_store *s;
        kin_err err = {""};
        assert_int_equal(kin_store_open(&s, dirs[i], &f->manifest, KIN_STORE_FILL, &err), KIN_FAIL);
        assert_null(s);
        assert_true(err.text[0] && !strchr(err.text, '\n'));
    }
    fill_store(f, 0, 1); // tear_down expects files
}

// ---- damage

static void chunks_of_a_cut_file_are_looked_at_again(void **state) {
    fixture *f = *state;
    for (off_t cut = 0; cut <= (off_t)sizes[0] + 10; cut += 61 * CHUNK + 13) {
        fill_store(f, 0, N_CHUNKS);
        assert_int_equal(truncate(f->path[0], cut), 0);
        expect_open_fails(f, KIN_STORE_READ, "not the model's");
        uint32_t n_whole = (uint32_t)(cut / CHUNK) + N_CHUNKS - N_FIRST;
        assert_int_equal(count_after_open(f), n_whole);
        assert_int_equal(count_after_open(f), n_whole); // the result is stored
    }
    fill_store(f, 0, N_CHUNKS);
    assert_int_equal(truncate(f->path[0], (off_t)sizes[0] + 5), 0); // a longer file is accepted
    assert_int_equal(count_after_open(f), N_CHUNKS);
    unlink(f->path[1]);
    assert_int_equal(count_after_open(f), N_FIRST);
}

static void a_file_in_place_of_another_is_noticed_by_its_size(void **state) {
    fixture *f = *state;
    fill_store(f, 0, N_CHUNKS);
    assert_int_equal(rename(f->path[1], f->path[0]), 0);
    assert_int_equal(count_after_open(f), 0);
}

static void a_damaged_record_loses_its_64_chunks_only(void **state) {
    fixture *f = *state;
    for (off_t at = 0; at < 16 + 4 * 16; at++) {
        fill_store(f, 0, N_CHUNKS);
        int fd = open(f->chunks, O_RDWR);
        uint8_t byte;
        assert_int_equal(pread(fd, &byte, 1, at), 1);
        byte ^= (uint8_t)(1 << at % 8);
        assert_int_equal(pwrite(fd, &byte, 1, at), 1);
        close(fd);
        uint32_t lost = at < 16 ? N_CHUNKS : at < 64 ? 64 : N_CHUNKS - 3 * 64;
        assert_int_equal(count_after_open(f), N_CHUNKS - lost);
    }
    for (off_t cut = 0; cut < 16 + 4 * 16; cut += 5) {
        fill_store(f, 0, N_CHUNKS);
        assert_int_equal(truncate(f->chunks, cut), 0);
        uint32_t n_left = cut < 16 ? 0 : (uint32_t)(cut - 16) / 16 * 64;
        assert_int_equal(count_after_open(f), n_left);
    }
}

static void another_models_notes_are_not_believed(void **state) {
    fixture *f = *state;
    fill_store(f, 0, N_CHUNKS);
    fixture *g;
    assert_int_equal(set_up((void **)&g), 0);
    g->manifest.hashes[0][0] ^= 1;
    kin_manifest_finish(&g->manifest, NULL, NULL);
    char chunks[256], path[256];
    kin_store *s = open_store(g, KIN_STORE_FILL);
    snprintf(path, sizeof path, "%s", kin_store_path(s, 0));
    kin_store_close(s);
    snprintf(chunks, sizeof chunks, "%.*s/chunks", (int)(strrchr(path, '/') - path), path);
    uint8_t *bytes;
    size_t n;
    assert_int_equal(kin_whole_file_read(f->chunks, 1 << 20, &bytes, &n, NULL), 0);
    assert_int_equal(kin_whole_file_write(chunks, bytes, n, NULL), 0);
    free(bytes);
    s = open_store(g, KIN_STORE_FILL);
    for (uint32_t i = 0; i < N_CHUNKS; i++) assert_false(kin_store_has(s, i));
    for (int i = 0; i < 2; i++) snprintf(g->path[i], sizeof g->path[i], "%s", kin_store_path(s, i));
    kin_store_close(s);
    snprintf(g->chunks, sizeof g->chunks, "%s", chunks);
    snprintf(g->manifest_path, sizeof g->manifest_path, "%.*s/manifest", (int)(strrchr(path, '/') - path), path);
    assert_int_equal(tear_down((void **)&g), 0);
}

static void change_byte(const fixture *f, off_t at) {
    int fd = open(f->path[0], O_RDWR);
    assert_int_equal(pwrite(fd, "?", 1, at), 1);
    close(fd);
}
#define change_byte(...) FROM_TEST(change_byte(__VA_ARGS__))

static void a_chunk_that_changed_in_place_is_fetched_again(void **state) {
    fixture *f = *state;
    fill_store(f, 0, N_CHUNKS);
    change_byte(f, 11 * CHUNK + 5);
    kin_store *s = open_store(f, KIN_STORE_FILL);
    for (uint32_t i = 0; i < N_CHUNKS; i++) assert_int_equal(kin_store_has(s, i), i != 11);
    kin_store_close(s);
    assert_int_equal(count_after_open(f), N_CHUNKS - 1);
    fill_store(f, 11, 12);
    assert_int_equal(count_after_open(f), N_CHUNKS);
}

static void links_in_the_cache_are_not_followed(void **state) {
    fixture *f = *state;
    char precious[128];
    struct stat st;
    fill_store(f, 0, 5);
    snprintf(precious, sizeof precious, "%s/precious", f->folder);
    for (int i = 0; i < 2; i++) {
        const char *name = i == 0 ? f->path[0] : f->chunks;
        assert_int_equal(rename(name, precious), 0);
        assert_int_equal(truncate(precious, 3), 0);
        assert_int_equal(symlink(precious, name), 0);
        expect_open_fails(f, KIN_STORE_FILL, "symbolic link");
        assert_int_equal(stat(precious, &st), 0);
        assert_int_equal(st.st_size, 3);
        unlink(name);
        unlink(precious);
        fill_store(f, 0, 5);
    }
}

static uint32_t count_unverified(const fixture *f, kin_store_mode mode) {
    kin_store *s;
    uint32_t n = 0;
    assert_int_equal(kin_store_open(&s, f->folder, &f->manifest, mode, NULL), 0);
    for (uint32_t i = 0; i < N_CHUNKS; i++) n += kin_store_has(s, i);
    kin_store_close(s);
    return n;
}
#define count_unverified(...) FROM_TEST(count_unverified(__VA_ARGS__))

static void chunks_are_read_again_only_when_the_files_or_the_boot_are_others(void **state) {
    fixture *f = *state;
    fill_store(f, 0, 30);
    assert_int_equal(count_unverified(f, KIN_STORE_READ), 30);
    assert_int_equal(count_unverified(f, KIN_STORE_FILL), 30);
    fill_store(f, 30, 50); // the store's own writes need no check
    assert_int_equal(count_unverified(f, KIN_STORE_FILL), 50);
    change_byte(f, 60 * CHUNK); // outside of the chunks, but other bytes may have changed too
    assert_int_equal(count_unverified(f, KIN_STORE_FILL), 0);
    assert_int_equal(count_after_open(f), 50);
    assert_int_equal(count_unverified(f, KIN_STORE_FILL), 50);
    unlink(f->checked); // as after a reboot
    assert_int_equal(count_unverified(f, KIN_STORE_FILL), 0);
    assert_int_equal(count_after_open(f), 50);
}

static void writing_of_others_while_it_is_open_is_in_doubt_afterwards(void **state) {
    fixture *f = *state;
    kin_store *s = open_store(f, KIN_STORE_FILL);
    put_well(s, 0, 20);
    assert_int_equal(kin_store_sync(s, NULL), 0);
    change_byte(f, 3 * CHUNK + 1);
    kin_store_close(s);
    assert_int_equal(count_after_open(f), 19);
}

static void verifying_ends_when_asked_to_and_goes_on_the_next_time(void **state) {
    fixture *f = *state;
    atomic_bool stop = true;
    kin_store *s;
    kin_err err;
    fill_store(f, 0, N_CHUNKS);
    unlink(f->checked);
    assert_int_equal(kin_store_open(&s, f->folder, &f->manifest, KIN_STORE_FILL, &err), 0);
    assert_int_equal(kin_store_verify(s, 1, &stop, &err), KIN_FAIL);
    assert_false(kin_store_has(s, 0));
    put_well(s, 0, 1); // as if the chunk had been fetched
    assert_true(kin_store_has(s, 0));
    kin_store_close(s);
    assert_int_equal(count_after_open(f), N_CHUNKS);
}

static void a_store_whose_files_were_removed_is_not_in_place(void **state) {
    fixture *f = *state;
    const char *files[] = {f->path[1], f->chunks, f->manifest_path};
    for (int i = 0; i < 3; i++) {
        kin_store *s = open_store(f, KIN_STORE_FILL);
        put_well(s, 0, 3);
        assert_true(kin_store_is_in_place(s));
        assert_int_equal(unlink(files[i]), 0);
        assert_false(kin_store_is_in_place(s));
        kin_store_close(s);
    }
    kin_store *s = open_store(f, KIN_STORE_FILL);
    unlink(f->path[0]);
    fclose(fopen(f->path[0], "w")); // another file in its place
    assert_false(kin_store_is_in_place(s));
    kin_store_close(s);
}

static void a_store_whose_file_was_cut_is_not_in_place(void **state) {
    fixture *f = *state;
    kin_store *s = open_store(f, KIN_STORE_FILL);
    put_well(s, 0, 3);
    assert_true(kin_store_is_in_place(s));
    assert_int_equal(truncate(f->path[1], 0), 0);
    assert_false(kin_store_is_in_place(s));
    kin_store_close(s);
}

// ---- two processes, many threads

static void one_fills_others_read(void **state) {
    fixture *f = *state;
    kin_store *a = open_store(f, KIN_STORE_FILL);
    put_well(a, 0, 5);
    assert_int_equal(kin_store_sync(a, NULL), 0);
    expect_open_fails(f, KIN_STORE_FILL, "another kin is writing to it");
    kin_store *b = open_store(f, KIN_STORE_READ), *c = open_store(f, KIN_STORE_READ);
    kin_err err;
    assert_int_equal(count_right(b), 5);
    assert_int_equal(count_right(c), 5);
    assert_int_equal(put(b, 9, &err), KIN_STORE_FAILED);
    assert_non_null(strstr(err.text, "read-only"));
    kin_store_close(a);
    a = open_store(f, KIN_STORE_FILL);
    kin_store_close(b);
    kin_store_close(a);
    kin_store_close(c);
}

typedef struct putter {
    kin_store *store;
    uint64_t seed;
} putter;

static void *put_at_random(void *arg) {
    const putter *p = arg;
    kin_rng rng;
    kin_rng_seed(&rng, p->seed);
    for (int i = 0; i < 400; i++) {
        uint32_t chunk = (uint32_t)(kin_rng_u64(&rng) % N_CHUNKS);
        chunk_bytes b = bytes_of(chunk), got;
        if (kin_store_put(p->store, chunk, b.at, size_of(chunk), NULL) != KIN_STORE_OK) return "put";
        if (!kin_store_has(p->store, chunk)) return "has";
        if (kin_store_read(p->store, chunk, 0, got.at, size_of(chunk), NULL) != 0) return "read";
        if (memcmp(b.at, got.at, size_of(chunk)) != 0) return "bytes";
    }
    return kin_store_sync(p->store, NULL) == 0 ? NULL : "sync";
}

static void threads_put_and_read_at_once(void **state) {
    fixture *f = *state;
    kin_store *s = open_store(f, KIN_STORE_FILL);
    pthread_t threads[4];
    putter putters[4];
    for (int i = 0; i < 4; i++) {
        putters[i] = (putter){s, (uint64_t)i};
        assert_int_equal(pthread_create(&threads[i], NULL, put_at_random, &putters[i]), 0);
    }
    for (int i = 0; i < 4; i++) {
        void *failed;
        pthread_join(threads[i], &failed);
        if (failed) fail_msg("%s", (char *)failed);
    }
    uint32_t n = count_right(s);
    assert_in_range(n, N_CHUNKS * 9 / 10, N_CHUNKS);
    kin_store_close(s);
    assert_int_equal(count_after_open(f), n);
}

// ---- killed

static void fill_until_killed(const fixture *f, uint64_t seed, atomic_int *n_put) {
    kin_store *s;
    kin_rng rng;
    kin_rng_seed(&rng, seed);
    if (kin_store_open(&s, f->folder, &f->manifest, KIN_STORE_FILL, NULL) != 0) _exit(1);
    for (;;) {
        if (put(s, (uint32_t)(kin_rng_u64(&rng) % N_CHUNKS), NULL) != KIN_STORE_OK) _exit(2);
        atomic_fetch_add(n_put, 1);
    }
}

static void a_killed_process_leaves_only_right_chunks(void **state) {
    fixture *f = *state;
    kin_rng rng;
    uint32_t n_before = 0, n_kept = 0;
    atomic_int *n_put = mmap(NULL, sizeof *n_put, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(n_put != MAP_FAILED);
    kin_rng_seed(&rng, 4711);
    for (int round = 0; round < 40; round++) {
        int status, n_wanted = (int)(kin_rng_u64(&rng) % 40);
        atomic_store(n_put, 0);
        pid_t child = fork();
        assert_true(child >= 0);
        if (child == 0) fill_until_killed(f, (uint64_t)round, n_put);
        while (atomic_load(n_put) < n_wanted && waitpid(child, &status, WNOHANG) == 0) sched_yield();
        kill(child, SIGKILL);
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_true(WIFSIGNALED(status));
        uint32_t n = count_after_open(f); // works because the lock ended with the process
        assert_true(n >= n_before);
        n_kept += n > n_before;
        n_before = n;
    }
    munmap(n_put, sizeof *n_put);
    assert_true(n_kept > 0);
    fill_store(f, 0, N_CHUNKS);
    assert_int_equal(count_after_open(f), N_CHUNKS);
}

// ---- a full disk

// Returns 0 if all checks pass.
static int use_small_disk(const fixture *f) {
    kin_store *s;
    kin_err err = {""};
    uint32_t n = 0;
    if (kin_store_open(&s, f->folder, &f->manifest, KIN_STORE_FILL, &err) != 0) return 1;
    kin_store_result result = KIN_STORE_OK;
    while (n < N_CHUNKS && (result = put(s, n, &err)) == KIN_STORE_OK) n++;
    if (result != KIN_STORE_FAILED || n < 16 || !strstr(err.text, strerror(ENOSPC))) return 2;
    if (kin_store_has(s, n) || put(s, n, &err) != KIN_STORE_FAILED || put(s, 0, &err) != KIN_STORE_OK) return 3;
    kin_store_close(s);
    if (kin_store_open(&s, f->folder, &f->manifest, KIN_STORE_FILL, &err) != 0 || kin_store_verify(s, 1, NULL, &err) != 0)
        return 4;
    for (uint32_t i = 0; i < N_CHUNKS; i++) {
        uint8_t got[CHUNK];
        if (kin_store_has(s, i) != (i < n)) return 5;
        if (i < n && (kin_store_read(s, i, 0, got, CHUNK, &err) != 0 || memcmp(got, bytes_of(i).at, CHUNK) != 0)) return 6;
    }
    kin_store_close(s);
    return 0;
}

static void a_full_disk_loses_only_what_does_not_fit(void **state) {
    fixture *f = *state;
    int status;
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        if (!mount_small_disk(f->folder, "256k")) _exit(77);
        _exit(use_small_disk(f));
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 77) {
        print_message("             a private mount is not allowed here\n");
        skip();
    }
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

#define STORE_TEST(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)

int main(void) {
    const struct CMUnitTest tests[] = {
        STORE_TEST(chunks_that_were_put_are_found_again),
        STORE_TEST(the_files_have_their_own_sizes_and_little_on_the_disk),
        STORE_TEST(wrong_bytes_are_the_senders_fault_and_change_nothing),
        STORE_TEST(a_chunk_that_cannot_be_hashed_is_not_the_senders_fault),
        STORE_TEST(what_a_peer_may_ask_for_is_limited_to_what_is_there),
        STORE_TEST(a_store_over_whole_files_has_everything_and_takes_nothing),
        STORE_TEST(a_model_in_one_file_has_a_plain_name),
        STORE_TEST(the_kept_manifest_is_found_by_its_hash),
        STORE_TEST(a_damaged_manifest_is_written_anew),
        STORE_TEST(another_models_store_is_refused_and_left_alone),
        STORE_TEST(a_store_that_is_not_there_cannot_be_read),
        STORE_TEST(unusable_folders_are_refused_in_one_sentence),
        STORE_TEST(chunks_of_a_cut_file_are_looked_at_again),
        STORE_TEST(a_file_in_place_of_another_is_noticed_by_its_size),
        STORE_TEST(a_damaged_record_loses_its_64_chunks_only),
        STORE_TEST(another_models_notes_are_not_believed),
        STORE_TEST(a_chunk_that_changed_in_place_is_fetched_again),
        STORE_TEST(links_in_the_cache_are_not_followed),
        STORE_TEST(chunks_are_read_again_only_when_the_files_or_the_boot_are_others),
        STORE_TEST(writing_of_others_while_it_is_open_is_in_doubt_afterwards),
        STORE_TEST(verifying_ends_when_asked_to_and_goes_on_the_next_time),
        STORE_TEST(a_store_whose_files_were_removed_is_not_in_place),
        STORE_TEST(a_store_whose_file_was_cut_is_not_in_place),
        STORE_TEST(one_fills_others_read),
        STORE_TEST(threads_put_and_read_at_once),
        STORE_TEST(a_killed_process_leaves_only_right_chunks),
        STORE_TEST(a_full_disk_loses_only_what_does_not_fit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
