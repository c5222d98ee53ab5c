// The content manifest: the same bytes have the same identity, and data from a peer or a disk is never trusted unchecked.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/bytes.h"
#include "base/rng.h"
#include "model/manifest.h"
#include "sys/whole_file.h"
#include "testkit/os.h"
#include "tests/place.h"

enum { CHUNK = KIN_CHUNK_BYTES_MIN };

// ---- a folder with files of random bytes

typedef struct path {
    char text[256];
} path;

typedef struct folder {
    char text[64];
} folder;

static folder make_folder(void) {
    folder f = {"/tmp/kin-test-manifest-XXXXXX"};
    assert_non_null(mkdtemp(f.text));
    return f;
}
#define make_folder(...) FROM_TEST(make_folder(__VA_ARGS__))

static path in(const folder *f, const char *name) {
    path p;
    snprintf(p.text, sizeof p.text, "%s/%s", f->text, name);
    return p;
}

static int count_files(const char *dir) {
    int n = 0;
    DIR *d = opendir(dir);
    for (struct dirent *entry; d && (entry = readdir(d));) n += entry->d_name[0] != '.';
    if (d) closedir(d);
    return n;
}

static void remove_folder(const char *dir) {
    DIR *d = opendir(dir);
    for (struct dirent *entry; d && (entry = readdir(d));) {
        char name[512];
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0) continue;
        snprintf(name, sizeof name, "%s/%s", dir, entry->d_name);
        if (unlink(name) != 0) remove_folder(name);
    }
    if (d) closedir(d);
    rmdir(dir);
}

static path make_file(const folder *f, const char *name, size_t n, uint64_t seed) {
    path p = in(f, name);
    kin_rng rng;
    kin_err err;
    uint8_t *bytes = malloc(n + 1);
    kin_rng_seed(&rng, seed);
    for (size_t i = 0; i < n; i++) bytes[i] = (uint8_t)kin_rng_u64(&rng);
    if (kin_whole_file_write(p.text, bytes, n, &err) != 0) fail_msg("%s", err.text);
    free(bytes);
    return p;
}
#define make_file(...) FROM_TEST(make_file(__VA_ARGS__))

static kin_manifest_options small_chunks(const char *cache_dir) {
    kin_manifest_options o = kin_manifest_options_defaults();
    o.chunk_bytes = CHUNK;
    o.n_threads = 3;
    o.cache_dir = cache_dir;
    return o;
}

static kin_manifest make(const kin_manifest_options *o, int n, const path *paths) {
    kin_manifest m;
    kin_err err;
    const char *texts[8];
    for (int i = 0; i < n; i++) texts[i] = paths[i].text;
    if (kin_manifest_make(&m, texts, n, o, &err) != 0) fail_msg("%s", err.text);
    return m;
}
#define make(...) FROM_TEST(make(__VA_ARGS__))

static void expect_make_fails(const kin_manifest_options *o, int n, const path *paths, const char *words) {
    kin_manifest m;
    kin_err err = {"nothing"};
    const char *texts[80];
    for (int i = 0; i < n; i++) texts[i] = paths[i].text;
    assert_int_equal(kin_manifest_make(&m, texts, n, o, &err), KIN_FAIL);
    if (!strstr(err.text, words)) fail_msg("'%s' does not say '%s'", err.text, words);
    assert_null(m.files);
    assert_null(m.hashes);
}
#define expect_make_fails(...) FROM_TEST(expect_make_fails(__VA_ARGS__))

// ---- SHA-256 itself

static void sha256_gives_the_standards_examples(void **state) {
    (void)state;
    uint8_t hash[KIN_SHA256_BYTES];
    assert_int_equal(kin_sha256("abc", 3, hash, NULL), 0);
    assert_string_equal(kin_hash_to_hex(hash).text, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    assert_int_equal(kin_sha256("", 0, hash, NULL), 0);
    assert_string_equal(kin_hash_to_hex(hash).text, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");

    kin_sha256_stream *stream;
    assert_int_equal(kin_sha256_open(&stream, NULL), 0);
    for (int round = 0; round < 2; round++) { // the stream restarts after its end
        assert_int_equal(kin_sha256_add(stream, "a", 1, NULL), 0);
        assert_int_equal(kin_sha256_add(stream, "bc", 2, NULL), 0);
        assert_int_equal(kin_sha256_end(stream, hash, NULL), 0);
        assert_string_equal(kin_hash_to_hex(hash).text, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    }
    kin_sha256_close(stream);
    kin_sha256_close(NULL);
}

// ---- from files

static void the_content_hash_is_made_as_the_header_says(void **state) {
    (void)state;
    folder f = make_folder();
    path paths[2] = {make_file(&f, "a.gguf", 2 * CHUNK + 100, 1), make_file(&f, "b.gguf", CHUNK, 2)};
    kin_manifest_options o = small_chunks(NULL);
    kin_manifest m = make(&o, 2, paths);
    assert_int_equal(m.n_chunks, 4);
    assert_int_equal(m.files[0].chunk_end, 3);
    assert_int_equal(m.files[1].chunk_begin, 3);
    assert_string_equal(m.files[1].name, "b.gguf");

    uint8_t text[6 + 2 * 8 + 4 * KIN_SHA256_BYTES] = {0}, hash[KIN_SHA256_BYTES];
    kin_put_u32(text, CHUNK);
    text[4] = 2;
    kin_put_u64(text + 6, 2 * CHUNK + 100);
    kin_put_u64(text + 14, CHUNK);
    for (int i = 0; i < 2; i++) {
        uint8_t *bytes;
        size_t n;
        assert_int_equal(kin_whole_file_read(paths[i].text, 1 << 20, &bytes, &n, NULL), 0);
        for (size_t at = 0, c = m.files[i].chunk_begin; at < n; at += CHUNK, c++) {
            size_t left = n - at < CHUNK ? n - at : CHUNK;
            kin_sha256(bytes + at, left, text + 22 + c * KIN_SHA256_BYTES, NULL);
            assert_int_equal(kin_manifest_check_chunk(&m, (uint32_t)c, bytes + at, left, NULL), KIN_CHUNK_RIGHT);
        }
        free(bytes);
    }
    kin_sha256(text, sizeof text, hash, NULL);
    assert_memory_equal(m.hash, hash, sizeof hash);
    kin_manifest_fini(&m);
    remove_folder(f.text);
}

static void threads_and_names_do_not_change_the_identity(void **state) {
    (void)state;
    folder f = make_folder();
    path a = make_file(&f, "a.gguf", 37 * CHUNK + 1, 3), b = make_file(&f, "b\\\n.gguf", 37 * CHUNK + 1, 3);
    kin_manifest_options o = small_chunks(NULL);
    kin_manifest first = make(&o, 1, &a);
    for (o.n_threads = 0; o.n_threads < 6; o.n_threads += 5) {
        kin_manifest m = make(&o, 1, &b);
        assert_memory_equal(m.hash, first.hash, sizeof m.hash);
        assert_string_equal(m.files[0].name, "model.gguf"); // the real name is one that other systems refuse
        kin_manifest_fini(&m);
    }
    kin_manifest_fini(&first);
    remove_folder(f.text);
}

static void one_changed_byte_changes_the_identity_and_one_chunk(void **state) {
    (void)state;
    folder f = make_folder();
    path a = make_file(&f, "a.gguf", 5 * CHUNK, 4);
    kin_manifest_options o = small_chunks(NULL);
    kin_manifest m = make(&o, 1, &a);
    int fd = open(a.text, O_RDWR);
    assert_int_equal(pwrite(fd, "?", 1, 3 * CHUNK + 7), 1);
    close(fd);
    kin_manifest other = make(&o, 1, &a);
    assert_memory_not_equal(m.hash, other.hash, sizeof m.hash);
    for (int c = 0; c < 5; c++) assert_int_equal(memcmp(m.hashes[c], other.hashes[c], KIN_SHA256_BYTES) != 0, c == 3);
    kin_manifest_fini(&m);
    kin_manifest_fini(&other);
    remove_folder(f.text);
}

static void unusable_files_are_refused_in_one_sentence(void **state) {
    (void)state;
    folder f = make_folder();
    path empty = make_file(&f, "empty.gguf", 0, 0), none = in(&f, "none.gguf"), dir = {"/tmp"};
    path many[65];
    kin_manifest_options o = small_chunks(NULL);
    for (int i = 0; i < 65; i++) many[i] = none;
    expect_make_fails(&o, 1, &empty, "is empty");
    expect_make_fails(&o, 1, &none, "No such file");
    expect_make_fails(&o, 1, &dir, "not a regular file");
    expect_make_fails(&o, 65, many, "65 files");
    expect_make_fails(&o, 0, many, "0 files");
    path good = make_file(&f, "good.gguf", 10, 1);
    o.chunk_bytes = 5000;
    expect_make_fails(&o, 1, &good, "5000 bytes");
    remove_folder(f.text);
}

static void a_sparse_file_of_too_many_chunks_is_refused_before_memory_is_taken(void **state) {
    (void)state;
    folder f = make_folder();
    path p = make_file(&f, "huge.gguf", 1, 1);
    kin_manifest_options o = small_chunks(NULL);
    assert_int_equal(truncate(p.text, ((off_t)KIN_MANIFEST_CHUNKS_MAX + 1) * CHUNK), 0);
    expect_make_fails(&o, 1, &p, "more than 1048576 chunks");
    remove_folder(f.text);
}

static void hashing_stops_when_asked_to(void **state) {
    (void)state;
    folder f = make_folder();
    path p = make_file(&f, "a.gguf", 50 * CHUNK, 1);
    kin_manifest_progress progress = {0};
    kin_manifest_options o = small_chunks(f.text);
    o.progress = &progress;
    atomic_store(&progress.stop, true);
    expect_make_fails(&o, 1, &p, "interrupted");
    assert_int_equal(count_files(f.text), 1); // no file was left behind
    atomic_store(&progress.stop, false);
    kin_manifest m = make(&o, 1, &p);
    assert_int_equal(atomic_load(&progress.total), 50 * CHUNK);
    assert_int_equal(atomic_load(&progress.done), 50 * CHUNK);
    kin_manifest_fini(&m);
    remove_folder(f.text);
}

typedef struct writer {
    const char *path;
    const kin_manifest_progress *progress;
} writer;

static void *write_meanwhile(void *arg) {
    const writer *w = arg;
    while (atomic_load(&w->progress->done) == 0) sched_yield();
    int fd = open(w->path, O_RDWR);
    if (pwrite(fd, "!", 1, 0) != 1) abort();
    close(fd);
    return NULL;
}

static void a_file_that_changes_meanwhile_is_noticed(void **state) {
    (void)state;
    folder f = make_folder();
    path p = make_file(&f, "a.gguf", 8000 * CHUNK, 1);
    kin_manifest_progress progress = {0};
    kin_manifest_options o = small_chunks(f.text);
    o.progress = &progress;
    o.n_threads = 1;
    writer w = {p.text, &progress};
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, write_meanwhile, &w), 0);
    expect_make_fails(&o, 1, &p, "changed while it was read");
    pthread_join(thread, NULL);
    assert_int_equal(count_files(f.text), 1);
    remove_folder(f.text);
}

// ---- the cache

// Returns the bytes that this process has read so far; 0 if the system does not count them.
static uint64_t count_read(void) {
    unsigned long long n = 0;
    FILE *f = fopen("/proc/self/io", "r");
    if (f && fscanf(f, "rchar: %llu", &n) != 1) n = 0;
    if (f) fclose(f);
    return n;
}

// Makes the manifest. Returns true if this read the file's 20 chunks, false if the cache was used.
static bool is_read(const kin_manifest_options *o, const path *p, kin_manifest *m) {
    uint64_t before = count_read();
    *m = make(o, 1, p);
    return count_read() - before > 20 * CHUNK;
}
#define is_read(...) FROM_TEST(is_read(__VA_ARGS__))

static path cache_file(const char *dir) {
    path p = {""};
    DIR *d = opendir(dir);
    for (struct dirent *entry; d && (entry = readdir(d));) {
        if (strstr(entry->d_name, ".manifest")) snprintf(p.text, sizeof p.text, "%.100s/%.100s", dir, entry->d_name);
    }
    if (d) closedir(d);
    assert_true(p.text[0]);
    return p;
}
#define cache_file(...) FROM_TEST(cache_file(__VA_ARGS__))

static void a_second_start_reads_nothing(void **state) {
    (void)state;
    folder f = make_folder();
    path p = make_file(&f, "a.gguf", 20 * CHUNK + 5, 1), cache = in(&f, "deep/cache");
    kin_manifest_options o = small_chunks(cache.text);
    kin_manifest first, second;
    if (!is_read(&o, &p, &first)) { // the system does not count reads
        kin_manifest_fini(&first);
        remove_folder(f.text);
        skip();
    }
    assert_false(is_read(&o, &p, &second));
    assert_memory_equal(first.hash, second.hash, sizeof first.hash);
    assert_int_equal(second.n_chunks, 21);
    assert_string_equal(second.files[0].name, "a.gguf");
    kin_manifest_fini(&first);
    kin_manifest_fini(&second);

    remove_folder(f.text);
}

static void a_changed_file_is_hashed_again_and_replaces_its_cache(void **state) {
    (void)state;
    folder f = make_folder();
    path p = make_file(&f, "a.gguf", 20 * CHUNK, 1), cache = in(&f, "cache");
    kin_manifest_options o = small_chunks(cache.text);
    kin_manifest first = make(&o, 1, &p);
    int fd = open(p.text, O_RDWR);
    assert_int_equal(pwrite(fd, "?", 1, 9), 1);
    close(fd);
    kin_manifest second = make(&o, 1, &p);
    assert_memory_not_equal(first.hash, second.hash, sizeof first.hash);
    assert_int_equal(count_files(cache.text), 1);
    kin_manifest_fini(&first);
    kin_manifest_fini(&second);
    remove_folder(f.text);
}

// An edit in place that preserves the file's size and modification time.
static void a_file_whose_time_of_writing_was_set_back_is_hashed_again(void **state) {
    (void)state;
    folder f = make_folder();
    path p = make_file(&f, "a.gguf", 20 * CHUNK, 1), cache = in(&f, "cache");
    kin_manifest_options o = small_chunks(cache.text);
    struct timespec times[3];
    kin_manifest first = make(&o, 1, &p);
    assert_int_equal(read_file_times(p.text, times), 0);
    int fd = open(p.text, O_RDWR);
    assert_int_equal(pwrite(fd, "?", 1, 9), 1);
    close(fd);
    assert_int_equal(utimensat(AT_FDCWD, p.text, times, 0), 0);
    kin_manifest second = make(&o, 1, &p);
    assert_memory_not_equal(first.hash, second.hash, sizeof first.hash);
    kin_manifest_fini(&first);
    kin_manifest_fini(&second);
    remove_folder(f.text);
}

static void a_damaged_cache_is_not_believed(void **state) {
    (void)state;
    folder f = make_folder();
    path p = make_file(&f, "a.gguf", 3 * CHUNK, 1), cache = in(&f, "cache");
    kin_manifest_options o = small_chunks(cache.text);
    kin_manifest good = make(&o, 1, &p);
    path file = cache_file(cache.text);
    uint8_t *bytes;
    size_t n;
    assert_int_equal(kin_whole_file_read(file.text, 1 << 20, &bytes, &n, NULL), 0);
    for (size_t at = 0; at < n; at += 3) {
        bytes[at] ^= 0x40;
        assert_int_equal(kin_whole_file_write(file.text, bytes, n, NULL), 0);
        bytes[at] ^= 0x40;
        kin_manifest m = make(&o, 1, &p);
        assert_memory_equal(m.hash, good.hash, sizeof m.hash);
        kin_manifest_fini(&m);
    }
    for (size_t cut = 0; cut < n; cut += 11) {
        assert_int_equal(kin_whole_file_write(file.text, bytes, cut, NULL), 0);
        kin_manifest m = make(&o, 1, &p);
        assert_memory_equal(m.hash, good.hash, sizeof m.hash);
        kin_manifest_fini(&m);
    }
    free(bytes);
    kin_manifest_fini(&good);
    remove_folder(f.text);
}

static void a_cache_that_cannot_be_written_does_no_harm(void **state) {
    (void)state;
    folder f = make_folder();
    path p = make_file(&f, "a.gguf", 3 * CHUNK, 1);
    kin_manifest_options o = small_chunks("/dev/null/cache");
    kin_manifest m = make(&o, 1, &p);
    assert_int_equal(m.n_chunks, 3);
    kin_manifest_fini(&m);
    remove_folder(f.text);
}

// ---- as bytes

static kin_manifest example(void) {
    kin_manifest m;
    kin_err err;
    const uint64_t sizes[2] = {3 * CHUNK + 1, 5};
    const char *const names[2] = {"m-00001-of-00002.gguf", "m-00002-of-00002.gguf"};
    if (kin_manifest_begin(&m, CHUNK, 2, sizes, names, &err) != 0) fail_msg("%s", err.text);
    for (uint32_t i = 0; i < m.n_chunks; i++) memset(m.hashes[i], (int)i + 1, KIN_SHA256_BYTES);
    assert_int_equal(kin_manifest_finish(&m, NULL, &err), 0);
    return m;
}
#define example(...) FROM_TEST(example(__VA_ARGS__))

static void bytes_and_manifest_convert_both_ways(void **state) {
    (void)state;
    kin_manifest m = example(), back, copy;
    kin_err err;
    size_t n = kin_manifest_bytes(&m);
    uint8_t *bytes = malloc(n), *again = malloc(n);
    kin_manifest_write(&m, bytes);
    if (kin_manifest_parse(&back, bytes, n, m.hash, &err) != 0) fail_msg("%s", err.text);
    if (kin_manifest_copy(&copy, &back, &err) != 0) fail_msg("%s", err.text);
    kin_manifest_fini(&back);
    assert_int_equal(kin_manifest_bytes(&copy), n);
    kin_manifest_write(&copy, again);
    assert_memory_equal(bytes, again, n);
    // Golden: the layout of the header.
    static const uint8_t head[] = {'k', 'i', 'n', 'm', 'a',  'n', 'i', '1', 0, 0x10, 0, 0,  2, 0,   0,   0,  5,
                                   0,   0,   0,   1,   0x30, 0,   0,   0,   0, 0,    0, 21, 0, 'm', '-', '0'};
    assert_memory_equal(bytes, head, sizeof head);
    assert_string_equal(kin_hash_to_hex(copy.hash).text, "973660be9f79d515786d3ba582687f3373aa4fd725d4a25dc40cd2a871f46aa8");
    free(bytes);
    free(again);
    kin_manifest_fini(&m);
    kin_manifest_fini(&copy);
}

static void every_flipped_bit_and_every_cut_is_refused(void **state) {
    (void)state;
    kin_manifest m = example(), back;
    size_t n = kin_manifest_bytes(&m), n_accepted = 0;
    uint8_t *bytes = malloc(n + 1);
    kin_manifest_write(&m, bytes);
    for (size_t bit = 0; bit < 8 * n; bit++) {
        kin_err err = {""};
        bytes[bit / 8] ^= (uint8_t)(1 << bit % 8);
        if (kin_manifest_parse(&back, bytes, n, m.hash, &err) == 0) {
            n_accepted++; // a change of a name, which is not part of the identity
            assert_true(strcmp(back.files[0].name, m.files[0].name) != 0 || strcmp(back.files[1].name, m.files[1].name) != 0);
            kin_manifest_fini(&back);
        } else {
            assert_true(err.text[0] && !back.files && !back.hashes);
        }
        bytes[bit / 8] ^= (uint8_t)(1 << bit % 8);
    }
    assert_true(n_accepted < 2 * 21 * 8);
    for (size_t cut = 0; cut < n; cut++) {
        uint8_t *exact = malloc(cut + 1); // a tight buffer, so that sanitizers find a read beyond it
        memcpy(exact, bytes, cut);
        exact = realloc(exact, cut ? cut : 1);
        assert_int_equal(kin_manifest_parse(&back, exact, cut, NULL, NULL), KIN_FAIL);
        free(exact);
    }
    bytes[n] = 0;
    assert_int_equal(kin_manifest_parse(&back, bytes, n + 1, NULL, NULL), KIN_FAIL);
    free(bytes);
    kin_manifest_fini(&m);
}

static void another_models_manifest_is_refused(void **state) {
    (void)state;
    kin_manifest m = example(), back;
    kin_err err;
    uint8_t *bytes = malloc(kin_manifest_bytes(&m)), other[KIN_SHA256_BYTES] = {0x12, 0x34};
    kin_manifest_write(&m, bytes);
    assert_int_equal(kin_manifest_parse(&back, bytes, kin_manifest_bytes(&m), other, &err), KIN_FAIL);
    assert_non_null(strstr(err.text, "not to 1234"));
    free(bytes);
    kin_manifest_fini(&m);
}

static void impossible_files_are_refused_when_a_peer_names_them(void **state) {
    (void)state;
    static const char *const bad_names[] = {"",     ".",     "..",    "/etc/passwd", "a/b",      "a\\b",
                                            "a\nb", "\x1b[", "a\x7f", "\xff\xfe",    "\xc2\x85", NULL};
    const uint64_t size = 1, zero = 0, most = UINT64_MAX;
    const char *good = "model \xc3\xa4.gguf";
    kin_manifest m;
    char too_long[300];
    const char *name = too_long;
    for (int i = 0; bad_names[i]; i++) assert_int_equal(kin_manifest_begin(&m, CHUNK, 1, &size, &bad_names[i], NULL), KIN_FAIL);
    memset(too_long, 'x', sizeof too_long);
    too_long[256] = '\0';
    assert_int_equal(kin_manifest_begin(&m, CHUNK, 1, &size, &name, NULL), KIN_FAIL);
    too_long[255] = '\0';
    assert_int_equal(kin_manifest_begin(&m, CHUNK, 1, &size, &name, NULL), 0);
    kin_manifest_fini(&m);
    assert_int_equal(kin_manifest_begin(&m, CHUNK, 1, &zero, &good, NULL), KIN_FAIL);
    assert_int_equal(kin_manifest_begin(&m, CHUNK, 1, &most, &good, NULL), KIN_FAIL);
    assert_int_equal(kin_manifest_begin(&m, 2 * KIN_CHUNK_BYTES, 1, &size, &good, NULL), KIN_FAIL);
    assert_int_equal(kin_manifest_begin(&m, 0, 1, &size, &good, NULL), KIN_FAIL);
    assert_int_equal(kin_manifest_begin(&m, CHUNK, -1, &size, &good, NULL), KIN_FAIL);
    assert_int_equal(kin_manifest_begin(&m, CHUNK, 1, &size, &good, NULL), 0);
    kin_manifest_fini(&m);
}

// ---- inspection

static void ranges_of_bytes_are_found_in_their_chunks(void **state) {
    (void)state;
    static const struct {
        int i_file;
        uint64_t offset, bytes;
        uint32_t begin, end; // both 99: refused
    } cases[] = {
        {0, 0, 1, 0, 1},     {0, 0, CHUNK, 0, 1},        {0, 0, CHUNK + 1, 0, 2},     {0, CHUNK - 1, 2, 0, 2},
        {0, CHUNK, 1, 1, 2}, {0, 3 * CHUNK, 1, 3, 4},    {0, 0, 3 * CHUNK + 1, 0, 4}, {1, 0, 5, 4, 5},
        {1, 5, 0, 4, 4},     {0, 3 * CHUNK, 2, 99, 99},  {1, 6, 0, 99, 99},           {2, 0, 1, 99, 99},
        {-1, 0, 1, 99, 99},  {0, UINT64_MAX, 2, 99, 99}, {0, 1, UINT64_MAX, 99, 99},
    };
    kin_manifest m = example();
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        uint32_t begin = 99, end = 99;
        int rc = kin_manifest_chunks_of_range(&m, cases[i].i_file, cases[i].offset, cases[i].bytes, &begin, &end, NULL);
        assert_int_equal(rc, cases[i].end == 99 ? KIN_FAIL : 0);
        assert_int_equal(begin, cases[i].begin);
        assert_int_equal(end, cases[i].end);
    }
    kin_chunk last = kin_manifest_chunk(&m, 3);
    assert_int_equal(last.i_file, 0);
    assert_int_equal(last.offset, 3 * CHUNK);
    assert_int_equal(last.bytes, 1);
    assert_int_equal(kin_manifest_chunk(&m, 4).i_file, 1);
    assert_int_equal(kin_manifest_total(&m), 3 * CHUNK + 6);
    kin_manifest_fini(&m);
}

static void wrong_bytes_are_no_chunk(void **state) {
    (void)state;
    folder f = make_folder();
    path p = make_file(&f, "a.gguf", CHUNK + 5, 1);
    kin_manifest_options o = small_chunks(NULL);
    kin_manifest m = make(&o, 1, &p);
    kin_err err;
    uint8_t *bytes;
    size_t n;
    assert_int_equal(kin_whole_file_read(p.text, 1 << 20, &bytes, &n, NULL), 0);
    assert_int_equal(kin_manifest_check_chunk(&m, 1, bytes + CHUNK, 5, &err), KIN_CHUNK_RIGHT);
    assert_int_equal(kin_manifest_check_chunk(&m, 1, bytes + CHUNK, 4, &err), KIN_CHUNK_WRONG);
    assert_int_equal(kin_manifest_check_chunk(&m, 0, bytes, CHUNK + 5, &err), KIN_CHUNK_WRONG);
    assert_int_equal(kin_manifest_check_chunk(&m, 2, bytes, 5, &err), KIN_CHUNK_WRONG);
    bytes[CHUNK] ^= 1;
    assert_int_equal(kin_manifest_check_chunk(&m, 1, bytes + CHUNK, 5, &err), KIN_CHUNK_WRONG);
    assert_non_null(strstr(err.text, "chunk 1 are damaged"));
    free(bytes);
    kin_manifest_fini(&m);
    remove_folder(f.text);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sha256_gives_the_standards_examples),
        cmocka_unit_test(the_content_hash_is_made_as_the_header_says),
        cmocka_unit_test(threads_and_names_do_not_change_the_identity),
        cmocka_unit_test(one_changed_byte_changes_the_identity_and_one_chunk),
        cmocka_unit_test(unusable_files_are_refused_in_one_sentence),
        cmocka_unit_test(a_sparse_file_of_too_many_chunks_is_refused_before_memory_is_taken),
        cmocka_unit_test(hashing_stops_when_asked_to),
        cmocka_unit_test(a_file_that_changes_meanwhile_is_noticed),
        cmocka_unit_test(a_second_start_reads_nothing),
        cmocka_unit_test(a_changed_file_is_hashed_again_and_replaces_its_cache),
        cmocka_unit_test(a_file_whose_time_of_writing_was_set_back_is_hashed_again),
        cmocka_unit_test(a_damaged_cache_is_not_believed),
        cmocka_unit_test(a_cache_that_cannot_be_written_does_no_harm),
        cmocka_unit_test(bytes_and_manifest_convert_both_ways),
        cmocka_unit_test(every_flipped_bit_and_every_cut_is_refused),
        cmocka_unit_test(another_models_manifest_is_refused),
        cmocka_unit_test(impossible_files_are_refused_when_a_peer_names_them),
        cmocka_unit_test(ranges_of_bytes_are_found_in_their_chunks),
        cmocka_unit_test(wrong_bytes_are_no_chunk),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
