// Pages of the KV cache on disk: as bytes (engine/kv/page.h), as files (engine/kv/store.h), and in a shard that continues from
// the pages of another shard.
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
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/log.h"
#include "engine/kv/room.h"
#include "engine/kv/store.h"
#include "testkit/head_eval.h"
#include "testkit/model_gen.h"
#include "testkit/runner.h"
#include "tests/own_dir.h"
#include "tests/place.h"

enum { N_LAYER = 3, N_CONTENT = 20, N_VOCAB = 288, N_PAGES = 3, N_PROMPT = N_PAGES * KIN_KV_CELLS + 5, N_CTX = 320 };

static const kin_page_key key = {{200, 201, 202, 203, 204, 205, 206, 207, 208, 209, 210, 211, 212, 213, 214, 215}};

// ---- bytes

// Made by another program (Python's cryptography): secret 0 .. 31, variant 100 .. 131, key 200 .. 215, nonce 50 .. 61, content
// byte i is 7 i + 3.
static const uint8_t golden[N_CONTENT + KIN_KV_PAGE_FRAME] = {
    0x6b, 0x69, 0x6e, 0x70, 0x61, 0x67, 0x65, 0x31, 0xc8, 0xc9, 0xca, 0xcb, 0xcc, 0xcd, 0xce, 0xcf, 0xd0, 0xd1, 0xd2, 0xd3, 0xd4,
    0xd5, 0xd6, 0xd7, 0x14, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x32, 0x33, 0x34, 0x35, 0x36, 0x37, 0x38, 0x39, 0x3a, 0x3b,
    0x3c, 0x3d, 0x00, 0x00, 0x00, 0x00, 0xc5, 0x51, 0xfe, 0xd8, 0xda, 0x1a, 0xac, 0xd7, 0x56, 0x45, 0xa3, 0xd6, 0x0c, 0xb3, 0x9a,
    0x94, 0x15, 0xc9, 0x9a, 0x09, 0xda, 0xcc, 0x96, 0x4f, 0x11, 0xa9, 0x35, 0x8c, 0xe4, 0x46, 0x09, 0x13, 0x47, 0xe9, 0xf4, 0x48,
};

static kin_kv_page_seal a_seal(void) {
    kin_kv_page_seal seal;
    for (int i = 0; i < 32; i++) {
        seal.secret[i] = (uint8_t)i;
        seal.variant[i] = (uint8_t)(100 + i);
    }
    return seal;
}

static void expect_content(const uint8_t *content) {
    for (int i = 0; i < N_CONTENT; i++) assert_int_equal(content[i], (uint8_t)(7 * i + 3));
}
#define expect_content(...) FROM_TEST(expect_content(__VA_ARGS__))

static void a_page_is_the_bytes_of_the_table(void **state) {
    (void)state;
    uint8_t page[sizeof golden];
    kin_kv_page_seal seal = a_seal();
    kin_err err;
    memcpy(page, golden, sizeof page);
    assert_int_equal(kin_kv_page_unseal(&seal, &key, page, sizeof page, N_CONTENT, &err), 0);
    expect_content(page + KIN_KV_PAGE_HEAD);
    assert_int_equal(kin_kv_page_seal_up(&seal, &key, page, N_CONTENT, &err), 0);
    assert_memory_equal(page, golden, 32);
    assert_memory_not_equal(page + 32, golden + 32, sizeof golden - 32); // another nonce
    assert_int_equal(kin_kv_page_unseal(&seal, &key, page, sizeof page, N_CONTENT, &err), 0);
    expect_content(page + KIN_KV_PAGE_HEAD);
}

static void a_page_with_any_bit_changed_does_not_open(void **state) {
    (void)state;
    kin_kv_page_seal seal = a_seal();
    kin_err err;
    for (size_t bit = 0; bit < 8 * sizeof golden; bit++) {
        uint8_t page[sizeof golden];
        memcpy(page, golden, sizeof page);
        page[bit / 8] ^= (uint8_t)(1 << bit % 8);
        assert_int_equal(kin_kv_page_unseal(&seal, &key, page, sizeof page, N_CONTENT, &err), KIN_FAIL);
    }
}

static void a_page_of_another_size_secret_variant_or_key_does_not_open(void **state) {
    (void)state;
    for (int what = 0; what < 4; what++) {
        uint8_t page[sizeof golden];
        kin_kv_page_seal seal = a_seal();
        kin_page_key other = key;
        kin_err err;
        memcpy(page, golden, sizeof page);
        seal.secret[9] ^= what == 0;
        seal.variant[9] ^= what == 1;
        other.bytes[9] ^= what == 2;
        size_t n = what == 3 ? N_CONTENT - 1 : N_CONTENT;
        assert_int_equal(kin_kv_page_unseal(&seal, &other, page, sizeof page, n, &err), KIN_FAIL);
    }
    kin_kv_page_seal seal = a_seal();
    for (size_t n = 0; n < sizeof golden; n++) {
        uint8_t page[sizeof golden];
        kin_err err;
        memcpy(page, golden, sizeof page);
        assert_int_equal(kin_kv_page_unseal(&seal, &key, page, n, N_CONTENT, &err), KIN_FAIL);
    }
}

// ---- files

static int make_dir(void **state) {
    (void)state;
    return make_own_dir("/tmp", "kv-pages");
}

static kin_kv_disk disk_here(void) {
    return (kin_kv_disk){.dir = dir, .cap = 1 << 24};
}

static kin_kv_store *open_store(const kin_kv_disk *disk, uint8_t variant) {
    const uint8_t variants[32] = {variant};
    kin_kv_store *s;
    kin_err err;
    if (kin_kv_store_open(&s, disk, variants, N_CONTENT, &err) != 0) fail_msg("%s", err.text);
    return s;
}
#define open_store(...) FROM_TEST(open_store(__VA_ARGS__))

static void keep(kin_kv_store *s, const kin_page_key *k) {
    uint8_t *content = kin_kv_store_begin(s);
    assert_non_null(content);
    for (int i = 0; i < N_CONTENT; i++) content[i] = (uint8_t)(7 * i + 3);
    kin_kv_store_keep(s, k, content);
}
#define keep(...) FROM_TEST(keep(__VA_ARGS__))

static void keep_one(const kin_kv_disk *disk) {
    kin_kv_store *s = open_store(disk, 1);
    keep(s, &key);
    kin_kv_store_close(s);
}
#define keep_one(...) FROM_TEST(keep_one(__VA_ARGS__))

// Stores the path of a file in all folders (NULL: does not). Returns the number of files.
static int find_file(char *path, size_t n_path) {
    char folder[256];
    int n = 0;
    snprintf(folder, sizeof folder, "%s/kv", dir);
    DIR *d = opendir(folder);
    for (struct dirent *e; d && (e = readdir(d));) {
        char inner[600];
        if (e->d_name[0] == '.') continue;
        snprintf(inner, sizeof inner, "%s/%s", folder, e->d_name);
        DIR *in = opendir(inner);
        for (struct dirent *f; in && (f = readdir(in));) {
            if (f->d_name[0] == '.') continue;
            if (path) snprintf(path, n_path, "%.500s/%.200s", inner, f->d_name);
            n++;
        }
        if (in) closedir(in);
    }
    if (d) closedir(d);
    return n;
}

static void a_page_that_was_kept_is_there_for_the_next_process(void **state) {
    (void)state;
    kin_kv_disk disk = disk_here();
    keep_one(&disk);
    kin_kv_store *s = open_store(&disk, 1);
    assert_true(kin_kv_store_has(s, &key));
    const uint8_t *content = kin_kv_store_read(s, &key);
    assert_non_null(content);
    expect_content(content);
    kin_page_key other = key;
    other.bytes[0]++;
    assert_false(kin_kv_store_has(s, &other));
    assert_null(kin_kv_store_read(s, &other));
    kin_kv_store_close(s);
}

static void a_page_of_another_variant_or_secret_is_not_found(void **state) {
    (void)state;
    kin_kv_disk disk = disk_here();
    keep_one(&disk);
    kin_kv_store *s = open_store(&disk, 2);
    assert_null(kin_kv_store_read(s, &key));
    kin_kv_store_close(s);
    disk.secret[31] = 1;
    s = open_store(&disk, 1);
    assert_null(kin_kv_store_read(s, &key));
    kin_kv_store_close(s);
}

static void a_file_says_nothing_of_its_content(void **state) {
    (void)state;
    kin_kv_disk disk = disk_here();
    char path[1000];
    uint8_t bytes[256], plain[N_CONTENT];
    struct stat st;
    keep_one(&disk);
    assert_int_equal(find_file(path, sizeof path), 1);
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0600);
    int fd = open(path, O_RDONLY);
    assert_int_equal(read(fd, bytes, sizeof bytes), N_CONTENT + KIN_KV_PAGE_FRAME);
    close(fd);
    for (int i = 0; i < N_CONTENT; i++) plain[i] = (uint8_t)(7 * i + 3);
    assert_null(memmem(bytes, sizeof bytes, plain, 4));
}

static void damage(void (*how)(int fd)) {
    char path[1000];
    assert_int_equal(find_file(path, sizeof path), 1);
    int fd = open(path, O_RDWR);
    assert_true(fd >= 0);
    how(fd);
    close(fd);
}
#define damage(...) FROM_TEST(damage(__VA_ARGS__))

static void flip(int fd) {
    uint8_t byte;
    assert_int_equal(pread(fd, &byte, 1, 60), 1);
    byte ^= 4;
    assert_int_equal(pwrite(fd, &byte, 1, 60), 1);
}

static void cut(int fd) {
    assert_int_equal(ftruncate(fd, 70), 0);
}

static void lengthen(int fd) {
    assert_int_equal(ftruncate(fd, 700), 0);
}

static void empty(int fd) {
    assert_int_equal(ftruncate(fd, 0), 0);
}

static int n_warnings;

static void count_warning(void *user, kin_log_level level, const char *line) {
    (void)user;
    (void)line;
    n_warnings += level == KIN_LOG_WARN;
}

static void a_damaged_page_is_told_and_removed(void **state) {
    (void)state;
    void (*const ways[])(int) = {flip, cut, lengthen, empty};
    kin_kv_disk disk = disk_here();
    kin_log_set_sink(count_warning, NULL);
    for (int i = 0; i < 4; i++) {
        n_warnings = 0;
        keep_one(&disk);
        damage(ways[i]);
        kin_kv_store *s = open_store(&disk, 1);
        assert_null(kin_kv_store_read(s, &key));
        assert_int_equal(n_warnings, 1);
        assert_int_equal(kin_kv_store_get_stats(s).n_damaged, 1);
        assert_int_equal(find_file(NULL, 0), 0);
        kin_kv_store_close(s);
    }
    kin_log_set_sink(NULL, NULL);
}

static char last_warning[1200];

static void note_warning(void *user, kin_log_level level, const char *line) {
    count_warning(user, level, line);
    if (level == KIN_LOG_WARN) snprintf(last_warning, sizeof last_warning, "%s", line);
}

// A folder in the place of the file can be opened, but not read. The page read before is still in the store's memory.
static void a_page_that_cannot_be_read_is_told_and_not_taken(void **state) {
    (void)state;
    kin_kv_disk disk = disk_here();
    kin_page_key other = key;
    char path[1000];
    keep_one(&disk);
    assert_int_equal(find_file(path, sizeof path), 1);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(mkdir(path, 0700), 0);
    other.bytes[0]++;
    kin_kv_store *s = open_store(&disk, 1);
    keep(s, &other);
    kin_kv_store_settle(s);
    n_warnings = 0;
    kin_log_set_sink(note_warning, NULL);
    for (int n = 1; n <= 2; n++) {
        assert_non_null(kin_kv_store_read(s, &other));
        assert_null(kin_kv_store_read(s, &key));
        assert_int_equal(kin_kv_store_get_stats(s).n_damaged, n);
        assert_int_equal(kin_kv_store_get_stats(s).n_read, n);
    }
    kin_log_set_sink(NULL, NULL);
    assert_int_equal(n_warnings, 1); // there may be many
    assert_non_null(strstr(last_warning, path));
    assert_non_null(strstr(last_warning, "Is a directory"));
    kin_kv_store_close(s);
}

// The process has no free file descriptors, as in a server with many clients.
static void a_page_that_cannot_be_opened_now_is_there_later(void **state) {
    (void)state;
    kin_kv_disk disk = disk_here();
    struct rlimit limit, none = {0};
    keep_one(&disk);
    kin_kv_store *s = open_store(&disk, 1);
    n_warnings = 0;
    kin_log_set_sink(count_warning, NULL);
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
    none.rlim_max = limit.rlim_max;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
    const uint8_t *content = kin_kv_store_read(s, &key);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
    assert_null(content);
    assert_int_equal(n_warnings, 0);
    assert_int_equal(kin_kv_store_get_stats(s).n_damaged, 0);
    expect_content(kin_kv_store_read(s, &key));
    kin_kv_store_close(s);
    kin_log_set_sink(NULL, NULL);
}

// ---- a disk that does not go on until the test lets it

static pthread_mutex_t disk_mutex = PTHREAD_MUTEX_INITIALIZER;

static void wait_for_test(void *user, const kin_page_name *name, size_t n) {
    (void)user, (void)name, (void)n;
    pthread_mutex_lock(&disk_mutex);
    pthread_mutex_unlock(&disk_mutex);
}

static kin_page_key key_number(int i) {
    return (kin_page_key){{1, (uint8_t)i, (uint8_t)(i >> 8)}};
}

static void a_page_is_begun_without_waiting_for_the_disk(void **state) {
    const kin_kv_peers peers = {.written = wait_for_test};
    kin_kv_disk disk = disk_here();
    (void)state;
    disk.peers = &peers;
    pthread_mutex_lock(&disk_mutex);
    kin_kv_store *s = open_store(&disk, 1);
    int n = 0;
    for (uint8_t *content; (content = kin_kv_store_begin_within(s, 0)); n++) {
        memset(content, 1, N_CONTENT);
        kin_page_key of = key_number(n);
        kin_kv_store_keep(s, &of, content);
    }
    assert_in_range(n, 1, 1 << 20);
    assert_int_equal(kin_kv_store_get_stats(s).n_left_out, 0); // the caller tries again
    pthread_mutex_unlock(&disk_mutex);
    uint8_t *content = kin_kv_store_begin_within(s, 60000);
    assert_non_null(content);
    kin_kv_store_give_up(s, content);
    kin_kv_store_close(s);
}

static void a_page_that_is_removed_while_it_is_queued_is_not_written(void **state) {
    const kin_kv_peers peers = {.written = wait_for_test};
    kin_kv_disk disk = disk_here();
    kin_page_key keys[3];
    (void)state;
    disk.peers = &peers;
    pthread_mutex_lock(&disk_mutex);
    kin_kv_store *s = open_store(&disk, 1);
    for (int i = 0; i < 3; i++) {
        keys[i] = key_number(i);
        keep(s, &keys[i]);
    }
    kin_kv_store_remove(s, &keys[0]); // it may be in the middle of being written
    kin_kv_store_remove(s, &keys[1]);
    assert_false(kin_kv_store_is_queued(s, &keys[1]));
    keep(s, &keys[1]); // again
    kin_kv_store_remove(s, &keys[2]);
    assert_true(kin_kv_store_is_queued(s, &keys[1]));
    pthread_mutex_unlock(&disk_mutex);
    kin_kv_store_settle(s);
    assert_false(kin_kv_store_has(s, &keys[0]));
    assert_true(kin_kv_store_has(s, &keys[1]));
    assert_false(kin_kv_store_has(s, &keys[2]));
    kin_kv_store_close(s);
}

static void a_folder_that_cannot_be_written_is_told_once(void **state) {
    (void)state;
    kin_kv_disk disk = disk_here();
    char path[128];
    snprintf(path, sizeof path, "%s/kv", dir);
    int fd = open(path, O_CREAT | O_WRONLY, 0600); // a file where the folder should be
    assert_true(fd >= 0);
    close(fd);
    n_warnings = 0;
    kin_log_set_sink(count_warning, NULL);
    kin_kv_store *s = open_store(&disk, 1);
    keep(s, &key);
    keep(s, &key);
    assert_null(kin_kv_store_read(s, &key));
    kin_kv_store_close(s);
    kin_log_set_sink(NULL, NULL);
    assert_int_equal(n_warnings, 1);
}

static void the_least_recently_used_pages_leave(void **state) {
    (void)state;
    kin_kv_disk disk = disk_here();
    disk.cap = 10 * 4096; // each file occupies one disk block
    kin_kv_store *s = open_store(&disk, 1);
    kin_page_key k = key;
    char path[1000];
    for (int i = 0; i < 40; i++) {
        k.bytes[0] = (uint8_t)i;
        keep(s, &k);
        assert_true(find_file(path, sizeof path) <= 11);
    }
    kin_kv_store_close(s);
    s = open_store(&disk, 1);
    assert_true(kin_kv_store_has(s, &k)); // the newest page
    k.bytes[0] = 0;
    assert_false(kin_kv_store_has(s, &k));
    kin_kv_store_close(s);
    assert_in_range(find_file(NULL, 0), 5, 11);
}

static void a_page_beyond_the_cap_is_left_out(void **state) {
    (void)state;
    kin_kv_room room = {.cap = 8192};
    kin_err err;
    assert_int_equal(kin_kv_room_make(&room, dir, 8192, &err), 0);
    room = (kin_kv_room){.cap = 8192};
    assert_int_equal(kin_kv_room_make(&room, dir, 8193, &err), KIN_FAIL);
    assert_non_null(strstr(err.text, "the size limit is 8.00 KiB (--kv-disk)"));
}

// The error names the disk's size if a cap is given, else the share of the disk that pages may use.
static void it_is_said_what_a_page_finds_no_room_in(void **state) {
    (void)state;
    const uint64_t large = UINT64_C(1) << 60;
    kin_kv_room room = {.cap = 2 * large};
    kin_err err;
    assert_int_equal(kin_kv_room_make(&room, dir, large, &err), KIN_FAIL);
    assert_non_null(strstr(err.text, ": the disk is full (kin keeps "));
    room = (kin_kv_room){0};
    assert_int_equal(kin_kv_room_make(&room, dir, large, &err), KIN_FAIL);
    assert_null(strstr(err.text, "too full"));
}

// ---- a shard

static char model_path[] = "/tmp/kin-test-kv-pages-model-XXXXXX";
static const char *used_path = model_path; // of the shards
static int n_used_layers = N_LAYER;

static int make_model(void **state) {
    (void)state;
    kin_model_spec spec = kin_model_spec_defaults();
    kin_err err;
    spec.n_layer = N_LAYER;
    spec.n_embd = spec.n_ff = 256;
    spec.n_vocab = N_VOCAB;
    spec.mix = "q4_k_m";
    int fd = mkstemp(model_path);
    return fd < 0 || close(fd) != 0 || kin_model_gen(&spec, model_path, &err) != 0 ? -1 : 0;
}

static int remove_model(void **state) {
    (void)state;
    return unlink(model_path);
}

static void open_runner(kin_runner *r, enum ggml_type type, bool kernels) {
    kin_runner_options o = kin_runner_options_defaults();
    kin_err err;
    o.device.n_threads = 1;
    o.device.ggml_kernels = !kernels;
    o.kv_type = type;
    o.n_ctx = N_CTX;
    o.kv_dir = dir;
    if (kin_runner_open(r, used_path, &o, &err) != 0) fail_msg("%s", err.text);
}
#define open_runner(...) FROM_TEST(open_runner(__VA_ARGS__))

static void feed(kin_runner *r, int32_t seq, int from, int n, float *logits) {
    int32_t tokens[N_PROMPT];
    kin_err err;
    for (int i = 0; i < n; i++) tokens[i] = (from + i) * 37 % N_VOCAB;
    if (kin_head_eval(r->head, seq, from, tokens, n, logits, 1, &err) != 0) fail_msg("%s", err.text);
}
#define feed(...) FROM_TEST(feed(__VA_ARGS__))

static int ask(kin_runner *r, bool loads, int32_t seq, int first, int n) {
    kin_page_request request = {.loads = loads, .seq = seq, .first = first, .n = n};
    uint64_t number, got;
    kin_err err;
    for (int i = 0; i < n; i++) request.keys[i].bytes[3] = (uint8_t)(first + i);
    if (kin_head_send_pages(r->head, &request, NULL, &number, &err) != 0) fail_msg("%s", err.text);
    if (kin_head_receive(r->head, NULL, &got, &err) != 0) fail_msg("%s", err.text);
    assert_int_equal(got, number);
    assert_int_equal(kin_head_n_in_flight(r->head), 0);
    return kin_head_n_good(r->head, number);
}
#define ask(...) FROM_TEST(ask(__VA_ARGS__))

static void compute_and_keep(enum ggml_type type, bool kernels, float *logits) {
    kin_runner r;
    open_runner(&r, type, kernels);
    feed(&r, 4, 0, N_PROMPT, logits);
    assert_int_equal(ask(&r, false, 4, 0, N_PAGES), N_PAGES);
    kin_runner_close(&r);
    assert_int_equal(find_file(NULL, 0), N_PAGES * n_used_layers);
}
#define compute_and_keep(...) FROM_TEST(compute_and_keep(__VA_ARGS__))

// Another sequence takes the first blocks, so the pages are loaded into other blocks than before.
static void pages_give_the_bits_that_were_computed(void **state) {
    (void)state;
    const struct {
        enum ggml_type type;
        bool kernels;
    } cases[] = {{GGML_TYPE_F16, true}, {GGML_TYPE_Q8_0, true}, {GGML_TYPE_F16, false}, {GGML_TYPE_Q8_0, false}};
    for (int i = 0; i < 4; i++) {
        float expected[N_VOCAB], got[N_VOCAB], other[N_VOCAB];
        remove_dir(NULL);
        compute_and_keep(cases[i].type, cases[i].kernels, expected);
        kin_runner r;
        open_runner(&r, cases[i].type, cases[i].kernels);
        feed(&r, 7, 0, 40, other);
        assert_int_equal(ask(&r, true, 1, 0, 2), 2);
        assert_int_equal(ask(&r, true, 1, 2, 1), 1);
        feed(&r, 1, N_PAGES * KIN_KV_CELLS, N_PROMPT - N_PAGES * KIN_KV_CELLS, got);
        if (cases[i].kernels) assert_memory_equal(got, expected, sizeof expected); // a row's bits do not depend on its batch
        kin_runner_close(&r);
    }
}

// Two key and value heads of 32 in the first and the last layer, four in those between.
static void pages_of_layers_that_differ_in_width_give_the_bits(void **state) {
    used_path = KIN_SOURCE_DIR "/tests/golden/step35.q8_0.gguf";
    n_used_layers = 5;
    pages_give_the_bits_that_were_computed(state);
    used_path = model_path;
    n_used_layers = N_LAYER;
}

static void pages_of_other_kernels_or_types_are_not_taken(void **state) {
    (void)state;
    float logits[N_VOCAB];
    compute_and_keep(GGML_TYPE_F16, true, logits);
    kin_runner r;
    open_runner(&r, GGML_TYPE_F16, false);
    assert_int_equal(ask(&r, true, 0, 0, N_PAGES), 0);
    kin_runner_close(&r);
    open_runner(&r, GGML_TYPE_Q8_0, true);
    assert_int_equal(ask(&r, true, 0, 0, N_PAGES), 0);
    kin_runner_close(&r);
}

// Tokens without pages are dropped and computed again.
static void pages_after_a_missing_one_are_not_taken(void **state) {
    (void)state;
    float expected[N_VOCAB], got[N_VOCAB];
    compute_and_keep(GGML_TYPE_F16, true, expected);
    kin_runner r;
    open_runner(&r, GGML_TYPE_F16, true);
    assert_int_equal(ask(&r, true, 0, 0, N_PAGES + 1), N_PAGES); // only N_PAGES exist
    kin_head_truncate(r.head, 0, KIN_KV_CELLS);
    feed(&r, 0, KIN_KV_CELLS, N_PROMPT - KIN_KV_CELLS, got);
    assert_memory_equal(got, expected, sizeof expected);
    kin_runner_close(&r);
}

// Returns the file offset of a tensor of the generated model.
static uint64_t offset_of(const char *name) {
    kin_gguf *gguf;
    kin_err err;
    if (kin_gguf_open(&gguf, model_path, &err) != 0) fail_msg("%s", err.text);
    const kin_gguf_tensor *t = kin_gguf_find_tensor(gguf, name);
    assert_non_null(t);
    uint64_t offset = t->offset;
    kin_gguf_close(gguf);
    return offset;
}

// Sets the scale of the first Q4_K block of a layer's key weights. Returns the previous scale.
static uint16_t set_scale(int il, uint16_t bits) {
    char name[40];
    uint16_t before;
    snprintf(name, sizeof name, "blk.%d.attn_k.weight", il);
    off_t at = (off_t)offset_of(name);
    int fd = open(model_path, O_RDWR);
    assert_int_equal(pread(fd, &before, sizeof before, at), sizeof before);
    assert_int_equal(pwrite(fd, &bits, sizeof bits, at), sizeof bits);
    close(fd);
    return before;
}
#define set_scale(...) FROM_TEST(set_scale(__VA_ARGS__))

// The layer before the faulty one has a valid page. The omitted case: ggml's conversion to Q8_0 turns NaN into finite numbers.
static void pages_that_are_not_finite_are_not_kept(void **state) {
    (void)state;
    const uint16_t wrong[] = {0x7e00, 0x7c00}; // NaN, infinite
    for (int i = 0; i < 8; i++) {
        kin_runner r;
        float logits[N_VOCAB];
        if (i == 2) continue;
        remove_dir(NULL);
        uint16_t before = set_scale(1, wrong[i % 2]);
        open_runner(&r, i & 2 ? GGML_TYPE_Q8_0 : GGML_TYPE_F16, i & 4);
        feed(&r, 4, 0, N_PROMPT, logits);
        int n_kept = ask(&r, false, 4, 0, N_PAGES);
        kin_runner_close(&r);
        set_scale(1, before);
        if (n_kept != 0 || find_file(NULL, 0) > 1) fail_msg("case %d: %d pages were kept", i, n_kept);
    }
}

static void pages_that_cannot_be_are_refused(void **state) {
    (void)state;
    float logits[N_VOCAB];
    kin_runner r;
    open_runner(&r, GGML_TYPE_F16, true);
    kin_page_request request = {.seq = 0, .first = 0, .n = 1};
    uint64_t number;
    kin_err err;
    feed(&r, 0, 0, KIN_KV_CELLS - 1, logits);
    assert_int_equal(kin_head_send_pages(r.head, &request, NULL, &number, &err), 0); // the answer reports the error
    assert_int_equal(kin_head_receive(r.head, NULL, &number, &err), KIN_FAIL);       // not full
    request.loads = true;
    assert_int_equal(kin_head_send_pages(r.head, &request, NULL, &number, &err), KIN_FAIL); // not at the end of the sequence
    request = (kin_page_request){.loads = true, .seq = 1, .n = 8};
    assert_int_equal(kin_head_send_pages(r.head, &request, NULL, &number, &err), KIN_FAIL); // more pages than the context has
    kin_runner_close(&r);
}

int main(void) {
    const struct CMUnitTest bytes[] = {
        cmocka_unit_test(a_page_is_the_bytes_of_the_table),
        cmocka_unit_test(a_page_with_any_bit_changed_does_not_open),
        cmocka_unit_test(a_page_of_another_size_secret_variant_or_key_does_not_open),
    };
    const struct CMUnitTest files[] = {
        cmocka_unit_test_setup_teardown(a_page_that_was_kept_is_there_for_the_next_process, make_dir, remove_dir),
        cmocka_unit_test_setup_teardown(a_page_of_another_variant_or_secret_is_not_found, make_dir, remove_dir),
        cmocka_unit_test_setup_teardown(a_file_says_nothing_of_its_content, make_dir, remove_dir),
        cmocka_unit_test_setup_teardown(a_damaged_page_is_told_and_removed, make_dir, remove_dir),
        cmocka_unit_test_setup_teardown(a_page_that_cannot_be_read_is_told_and_not_taken, make_dir, remove_dir),
        cmocka_unit_test_setup_teardown(a_page_that_cannot_be_opened_now_is_there_later, make_dir, remove_dir),
        cmocka_unit_test_setup_teardown(a_page_is_begun_without_waiting_for_the_disk, make_dir, remove_dir),
        cmocka_unit_test_setup_teardown(a_page_that_is_removed_while_it_is_queued_is_not_written, make_dir, remove_dir),
        cmocka_unit_test_setup_teardown(a_folder_that_cannot_be_written_is_told_once, make_dir, remove_dir),
        cmocka_unit_test_setup_teardown(the_least_recently_used_pages_leave, make_dir, remove_dir),
        cmocka_unit_test_setup_teardown(a_page_beyond_the_cap_is_left_out, make_dir, remove_dir),
        cmocka_unit_test_setup_teardown(it_is_said_what_a_page_finds_no_room_in, make_dir, remove_dir),
    };
    const struct CMUnitTest shards[] = {
        cmocka_unit_test_setup_teardown(pages_give_the_bits_that_were_computed, make_dir, remove_dir),
        cmocka_unit_test_setup_teardown(pages_of_layers_that_differ_in_width_give_the_bits, make_dir, remove_dir),
        cmocka_unit_test_setup_teardown(pages_of_other_kernels_or_types_are_not_taken, make_dir, remove_dir),
        cmocka_unit_test_setup_teardown(pages_after_a_missing_one_are_not_taken, make_dir, remove_dir),
        cmocka_unit_test_setup_teardown(pages_that_are_not_finite_are_not_kept, make_dir, remove_dir),
        cmocka_unit_test_setup_teardown(pages_that_cannot_be_are_refused, make_dir, remove_dir),
    };
    int rc = cmocka_run_group_tests(bytes, NULL, NULL);
    if (rc == 0) rc = cmocka_run_group_tests(files, NULL, NULL);
    return rc ? rc : cmocka_run_group_tests(shards, make_model, remove_model);
}
