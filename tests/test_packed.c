// The prepacked cache: it never returns wrong bytes, whatever has happened to the file.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/bytes.h"
#include "base/hash.h"
#include "engine/packed.h"
#include "sys/pages.h"
#include "testkit/head_eval.h"
#include "testkit/model_gen.h"
#include "testkit/os.h"
#include "testkit/runner.h"
#include "tests/packed_context.h"
#include "tests/place.h"

enum { N_BLOCKS = 3, PAGE = 4096, ROOM = KIN_PACKED_ALIGN, STAMP = 7, SOURCE = 8 };

static const uint64_t block_bytes[N_BLOCKS] = {5000, 1, 3 * PAGE};
static const kin_packed_key key = {0x1111, 0x2222};

static kin_packed *open_packed(const temp_dir *d, kin_packed_key k) {
    kin_packed *p;
    kin_err err;
    if (kin_packed_open(&p, d->path, k, STAMP, N_BLOCKS, block_bytes, &err) != 0) fail_msg("%s", err.text);
    return p;
}
#define open_packed(...) FROM_TEST(open_packed(__VA_ARGS__))

static uint8_t byte_of(size_t block, size_t i) {
    return (uint8_t)(block * 31 + i * 7 + i / 251 + 1);
}

static void *room(void) {
    uint8_t *at = mmap(NULL, 2 * ROOM, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(at != MAP_FAILED);
    uint8_t *first = at + (ROOM - (uintptr_t)at % ROOM) % ROOM; // aligned to the largest page
    if (first > at) munmap(at, (size_t)(first - at));
    munmap(first + ROOM, (size_t)(at + 2 * ROOM - (first + ROOM)));
    return first;
}
#define room(...) FROM_TEST(room(__VA_ARGS__))

// Writes a block; seal: also marks it as valid.
static void fill(kin_packed *p, size_t block, bool seal) {
    kin_err err;
    uint8_t bytes[4 * PAGE];
    for (size_t i = 0; i < block_bytes[block]; i++) bytes[i] = byte_of(block, i);
    if (kin_packed_write(p, block, bytes, SOURCE, &err) != 0 || (seal && kin_packed_seal(p, &err) != 0)) fail_msg("%s", err.text);
}
#define fill(...) FROM_TEST(fill(__VA_ARGS__))

static void expect_bytes(kin_packed *p, size_t block) {
    kin_err err;
    uint8_t *at = room();
    if (kin_packed_map(p, block, at, &err) != 0) fail_msg("%s", err.text);
    for (size_t i = 0; i < block_bytes[block]; i++) assert_int_equal(at[i], byte_of(block, i));
    munmap(at, ROOM);
}
#define expect_bytes(...) FROM_TEST(expect_bytes(__VA_ARGS__))

// Makes a complete cache file, the only file of the folder.
static file_path make_cache(const temp_dir *d) {
    file_path path;
    kin_packed *p = open_packed(d, key);
    for (size_t i = 0; i < N_BLOCKS; i++) fill(p, i, true);
    snprintf(path.text, sizeof path.text, "%s", kin_packed_path(p));
    kin_packed_close(p);
    return path;
}
#define make_cache(...) FROM_TEST(make_cache(__VA_ARGS__))

// ---- writing and reopening

static void a_sealed_block_is_found_again(void **state) {
    (void)state;
    temp_dir d = make_dir();
    kin_packed *p = open_packed(&d, key);
    for (size_t i = 0; i < N_BLOCKS; i++) {
        assert_false(kin_packed_has(p, i));
        fill(p, i, true);
        assert_true(kin_packed_has(p, i));
        expect_bytes(p, i);
    }
    kin_packed_close(p);
    p = open_packed(&d, key);
    for (size_t i = 0; i < N_BLOCKS; i++) {
        assert_true(kin_packed_has(p, i));
        expect_bytes(p, i);
    }
    remove_dir(&d, kin_packed_path(p));
    kin_packed_close(p);
    kin_packed_close(NULL);
}

static void a_written_block_can_be_mapped_before_it_is_sealed(void **state) {
    (void)state;
    temp_dir d = make_dir();
    kin_packed *p = open_packed(&d, key);
    for (size_t i = 0; i < N_BLOCKS; i++) {
        fill(p, i, false);
        expect_bytes(p, i);
    }
    remove_dir(&d, kin_packed_path(p));
    kin_packed_close(p);
}

static void a_mapped_block_is_read_only(void **state) {
    (void)state;
    temp_dir d = make_dir();
    kin_packed *p = open_packed(&d, key);
    kin_err err;
    uint8_t *at = room();
    int fds[2];
    assert_int_equal(pipe(fds), 0);
    assert_int_equal(write(fds[1], "x", 1), 1);
    fill(p, 0, true);
    assert_int_equal(kin_packed_map(p, 0, at, &err), 0);
    assert_int_equal(read(fds[0], at, 1), -1); // EFAULT instead of SIGSEGV: the kernel cannot write there either
    assert_int_equal(errno, EFAULT);
    close(fds[0]);
    close(fds[1]);
    munmap(at, ROOM);
    remove_dir(&d, kin_packed_path(p));
    kin_packed_close(p);
}

static void a_block_that_was_not_sealed_is_not_there(void **state) {
    (void)state;
    temp_dir d = make_dir();
    kin_packed *p = open_packed(&d, key);
    fill(p, 0, true);
    fill(p, 2, false); // as if the process were killed here
    kin_packed_close(p);
    p = open_packed(&d, key);
    assert_true(kin_packed_has(p, 0));
    assert_false(kin_packed_has(p, 1));
    assert_false(kin_packed_has(p, 2));
    fill(p, 2, true);
    kin_packed_close(p);
    p = open_packed(&d, key);
    expect_bytes(p, 0);
    assert_true(kin_packed_has(p, 2));
    expect_bytes(p, 2);
    remove_dir(&d, kin_packed_path(p));
    kin_packed_close(p);
}

static void a_block_of_which_a_part_failed_locks_nobody_out_after_sealing(void **state) {
    (void)state;
    static const uint8_t bytes[PAGE];
    temp_dir d = make_dir();
    kin_packed *p = open_packed(&d, key), *other = NULL;
    uint64_t hash = 0;
    kin_err err;
    fill(p, 0, true);
    assert_int_equal(kin_packed_write_part(p, 1, bytes, 0, PAGE, &hash, &err), 0); // the next part fails
    assert_int_equal(kin_packed_open(&other, d.path, key, STAMP, N_BLOCKS, block_bytes, &err), KIN_FAIL);
    assert_int_equal(kin_packed_seal(p, &err), 0);
    other = open_packed(&d, key);
    assert_true(kin_packed_has(other, 0));
    assert_false(kin_packed_has(other, 1));
    remove_dir(&d, kin_packed_path(p));
    kin_packed_close(p);
    kin_packed_close(other);
}

static void a_killed_process_loses_only_unfinished_blocks(void **state) {
    (void)state;
    temp_dir d = make_dir();
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        kin_packed *p;
        kin_err err;
        uint8_t bytes[4 * PAGE];
        if (kin_packed_open(&p, d.path, key, STAMP, N_BLOCKS, block_bytes, &err) != 0) _exit(1);
        for (size_t block = 0; block < 2; block++) {
            for (size_t i = 0; i < block_bytes[block]; i++) bytes[i] = byte_of(block, i);
            if (kin_packed_write(p, block, bytes, SOURCE, &err) != 0) _exit(1);
            if (block == 0 && kin_packed_seal(p, &err) != 0) _exit(1);
        }
        raise(SIGKILL);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFSIGNALED(status));
    kin_packed *p = open_packed(&d, key); // works because the child's lock ended with it
    assert_true(kin_packed_has(p, 0));
    expect_bytes(p, 0);
    assert_false(kin_packed_has(p, 1));
    remove_dir(&d, kin_packed_path(p));
    kin_packed_close(p);
}

static void other_keys_have_other_files(void **state) {
    (void)state;
    temp_dir d = make_dir();
    file_path path = make_cache(&d);
    const kin_packed_key others[] = {{key.model + 1, key.variant}, {key.model, key.variant + 1}, {key.variant, key.model}};
    for (size_t k = 0; k < 3; k++) {
        kin_packed *p = open_packed(&d, others[k]);
        for (size_t i = 0; i < N_BLOCKS; i++) assert_false(kin_packed_has(p, i));
        assert_string_not_equal(kin_packed_path(p), path.text);
        unlink(kin_packed_path(p));
        kin_packed_close(p);
    }
    remove_dir(&d, path.text);
}

static void blocks_begin_where_a_page_of_any_size_begins(void **state) {
    (void)state;
    temp_dir d = make_dir();
    kin_packed *p = open_packed(&d, key);
    for (size_t i = 0; i < N_BLOCKS; i++) assert_int_equal(kin_packed_offset(p, i) % (64 << 10), 0);
    for (size_t i = 0; i < N_BLOCKS; i++) fill(p, i, true);
    for (uint64_t page = 16 << 10; page <= 64 << 10; page *= 4) {
        kin_page_bytes_fake(page);
        for (size_t i = 0; i < N_BLOCKS; i++) expect_bytes(p, i);
    }
    kin_page_bytes_fake(128 << 10);
    kin_err err;
    uint8_t *at = room();
    assert_int_equal(kin_packed_map(p, 0, at, &err), KIN_FAIL);
    assert_non_null(strstr(err.text, "pages of 131072 bytes"));
    kin_page_bytes_fake(0);
    munmap(at, ROOM);
    remove_dir(&d, kin_packed_path(p));
    kin_packed_close(p);
}

// ---- damage

// Opens the cache and checks the bytes of every block that it has. Returns the number of these blocks.
static int count_sound_blocks(const temp_dir *d, kin_packed_key k) {
    kin_packed *p = open_packed(d, k);
    int n = 0;
    for (size_t i = 0; i < N_BLOCKS; i++) {
        if (!kin_packed_has(p, i)) continue;
        expect_bytes(p, i);
        n++;
    }
    kin_packed_close(p);
    return n;
}
#define count_sound_blocks(...) FROM_TEST(count_sound_blocks(__VA_ARGS__))

static void a_truncated_file_is_begun_anew(void **state) {
    (void)state;
    temp_dir d = make_dir();
    for (off_t cut = 0;; cut += cut < 200 ? 7 : 997) {
        file_path path = make_cache(&d);
        struct stat st;
        assert_int_equal(stat(path.text, &st), 0);
        if (cut > 70000) cut += ROOM / 3;
        if (cut >= st.st_size) break;
        assert_int_equal(truncate(path.text, cut), 0);
        assert_int_equal(count_sound_blocks(&d, key), 0);
    }
    file_path path = make_cache(&d);
    struct stat st;
    assert_int_equal(stat(path.text, &st), 0);
    assert_int_equal(truncate(path.text, st.st_size + 1), 0); // a longer file is not valid either
    assert_int_equal(count_sound_blocks(&d, key), 0);
    remove_dir(&d, path.text);
}

static void a_flipped_bit_in_the_header_is_noticed(void **state) {
    (void)state;
    temp_dir d = make_dir();
    for (off_t at = 0; at < HEADER_BYTES; at++) {
        file_path path = make_cache(&d);
        flip(path.text, at, (uint8_t)(1 << at % 8));
        assert_int_equal(count_sound_blocks(&d, key), 0);
        unlink(path.text);
    }
    rmdir(d.path);
}

static void a_file_of_an_earlier_format_is_begun_anew(void **state) {
    (void)state;
    temp_dir d = make_dir();
    file_path path = make_cache(&d);
    uint8_t header[HEADER_BYTES];
    int fd = open(path.text, O_RDWR);
    assert_true(fd >= 0);
    assert_int_equal(pread(fd, header, sizeof header, 0), HEADER_BYTES);
    header[7]--; // the last byte of the magic; the rest is as the earlier version wrote it
    kin_put_u64(header + 40, kin_hash64(header, 40, 0));
    assert_int_equal(pwrite(fd, header, sizeof header, 0), HEADER_BYTES);
    close(fd);
    assert_int_equal(count_sound_blocks(&d, key), 0);
    remove_dir(&d, path.text);
}

static void a_flipped_bit_in_a_seal_loses_that_unit_only(void **state) {
    (void)state;
    temp_dir d = make_dir();
    for (off_t at = 0; at < N_BLOCKS * ENTRY_BYTES; at++) {
        file_path path = make_cache(&d);
        flip(path.text, HEADER_BYTES + at, (uint8_t)(1 << at % 8));
        kin_packed *p = open_packed(&d, key);
        for (off_t i = 0; i < N_BLOCKS; i++) {
            bool hit = at / ENTRY_BYTES == i;
            assert_int_equal(kin_packed_has(p, (size_t)i), !hit);
            if (!hit) expect_bytes(p, (size_t)i);
        }
        kin_packed_close(p);
        unlink(path.text);
    }
    rmdir(d.path);
}

static void a_file_under_another_keys_name_is_begun_anew(void **state) {
    (void)state;
    const kin_packed_key other = {key.model + 1, key.variant};
    temp_dir d = make_dir();
    file_path path = make_cache(&d);
    kin_packed *p = open_packed(&d, other);
    copy_file(path.text, kin_packed_path(p));
    unlink(path.text);
    snprintf(path.text, sizeof path.text, "%s", kin_packed_path(p));
    kin_packed_close(p);
    assert_int_equal(count_sound_blocks(&d, other), 0);
    remove_dir(&d, path.text);
}

static void other_sizes_of_blocks_begin_anew(void **state) {
    (void)state;
    const uint64_t other[N_BLOCKS] = {block_bytes[0], block_bytes[1] + 1, block_bytes[2]}; // rounds to the same file size
    temp_dir d = make_dir();
    file_path path = make_cache(&d);
    kin_packed *p;
    kin_err err;
    assert_int_equal(kin_packed_open(&p, d.path, key, STAMP, N_BLOCKS, other, &err), 0);
    assert_false(kin_packed_has(p, 1));
    kin_packed_close(p);
    remove_dir(&d, path.text);
}

// ---- content

// Flips bytes from the first to the last of each block's content.
static void a_flipped_byte_in_a_block_is_found_and_the_block_dropped(void **state) {
    (void)state;
    temp_dir d = make_dir();
    for (size_t block = 0; block < N_BLOCKS; block++) {
        for (uint64_t at = 0; at < block_bytes[block]; at += at + 1 < block_bytes[block] ? (block_bytes[block] - 1) / 3 + 1 : 1) {
            file_path path = make_cache(&d);
            kin_packed *p = open_packed(&d, key);
            flip(path.text, (off_t)(kin_packed_offset(p, block) + at), 0x10);
            for (size_t i = 0; i < N_BLOCKS; i++) {
                assert_false(kin_packed_is_checked(p, i));
                assert_int_equal(kin_packed_check(p, i, NULL), i == block ? KIN_PACKED_DAMAGED : KIN_PACKED_SOUND);
                assert_int_equal(kin_packed_has(p, i), i != block);
            }
            kin_packed_close(p);
            p = open_packed(&d, key);
            for (size_t i = 0; i < N_BLOCKS; i++) assert_int_equal(kin_packed_has(p, i), i != block);
            kin_packed_close(p);
            remove_dir(&d, path.text);
            assert_int_equal(mkdir(d.path, 0700), 0);
        }
    }
    rmdir(d.path);
}

static void content_is_checked_in_memory_and_past_the_page_cache_too(void **state) {
    (void)state;
    atomic_bool stop = false;
    uint8_t bytes[3 * PAGE];
    temp_dir d = make_dir();
    file_path path = make_cache(&d);
    kin_packed *p = open_packed(&d, key);
    for (size_t i = 0; i < block_bytes[2]; i++) bytes[i] = byte_of(2, i);
    assert_int_equal(kin_packed_check(p, 2, bytes), KIN_PACKED_SOUND);
    bytes[block_bytes[2] - 1] ^= 1;
    assert_int_equal(kin_packed_check(p, 2, bytes), KIN_PACKED_DAMAGED);
    assert_int_equal(kin_packed_check_behind(p, 0, &stop), KIN_PACKED_SOUND);
    assert_true(kin_packed_is_checked(p, 0));
    flip(path.text, (off_t)kin_packed_offset(p, 1), 1);
    atomic_store(&stop, true);
    assert_int_equal(kin_packed_check_behind(p, 1, &stop), KIN_PACKED_STOPPED);
    assert_true(kin_packed_has(p, 1));
    atomic_store(&stop, false);
    assert_int_equal(kin_packed_check_behind(p, 1, &stop), KIN_PACKED_DAMAGED);
    kin_packed_close(p);
    remove_dir(&d, path.text);
}

static void a_check_is_remembered_until_the_file_changes(void **state) {
    (void)state;
    temp_dir d = make_dir();
    file_path path = make_cache(&d);
    kin_packed *p = open_packed(&d, key);
    assert_int_equal(kin_packed_check(p, 0, NULL), KIN_PACKED_SOUND);
    kin_packed_close(p);
    p = open_packed(&d, key);
    assert_true(kin_packed_is_checked(p, 0));
    assert_false(kin_packed_is_checked(p, 1));
    assert_int_equal(kin_packed_check(p, 1, NULL), KIN_PACKED_SOUND); // remembered together with the check of `other`
    kin_packed *other = open_packed(&d, key);
    assert_int_equal(kin_packed_check(other, 2, NULL), KIN_PACKED_SOUND);
    kin_packed_close(other);
    kin_packed_close(p);
    p = open_packed(&d, key);
    for (size_t i = 0; i < N_BLOCKS; i++) assert_true(kin_packed_is_checked(p, i));
    off_t at = (off_t)kin_packed_offset(p, 0);
    kin_packed_close(p);
    flip(path.text, at, 1);
    flip(path.text, at, 1); // the content is the same again, but the file was written to
    p = open_packed(&d, key);
    for (size_t i = 0; i < N_BLOCKS; i++) assert_false(kin_packed_is_checked(p, i));
    kin_packed_close(p);
    remove_dir(&d, path.text);
}

static void a_damaged_note_checks_again(void **state) {
    (void)state;
    char note[1100];
    temp_dir d = make_dir();
    file_path path = make_cache(&d);
    kin_packed *p = open_packed(&d, key);
    for (size_t i = 0; i < N_BLOCKS; i++) assert_int_equal(kin_packed_check(p, i, NULL), KIN_PACKED_SOUND);
    kin_packed_close(p);
    snprintf(note, sizeof note, "%s" KIN_PACKED_CHECKED_SUFFIX, path.text);
    flip(note, 24, 2);
    p = open_packed(&d, key);
    for (size_t i = 0; i < N_BLOCKS; i++) assert_false(kin_packed_is_checked(p, i));
    kin_packed_close(p);
    remove_dir(&d, path.text);
}

static kin_packed *open_with_stamp(const temp_dir *d, uint64_t stamp) {
    kin_packed *p;
    kin_err err;
    if (kin_packed_open(&p, d->path, key, stamp, N_BLOCKS, block_bytes, &err) != 0) fail_msg("%s", err.text);
    return p;
}
#define open_with_stamp(...) FROM_TEST(open_with_stamp(__VA_ARGS__))

static void blocks_of_files_that_look_different_are_compared_by_their_weights(void **state) {
    (void)state;
    temp_dir d = make_dir();
    file_path path = make_cache(&d);
    kin_packed *p = open_with_stamp(&d, STAMP);
    assert_true(kin_packed_is_current(p, 0));
    kin_packed_close(p);
    p = open_with_stamp(&d, STAMP + 1);
    assert_true(kin_packed_has(p, 0) && !kin_packed_is_current(p, 0));
    assert_true(kin_packed_renew(p, 0, SOURCE));
    assert_true(kin_packed_has(p, 0) && kin_packed_is_current(p, 0));
    assert_false(kin_packed_renew(p, 1, SOURCE + 1));
    assert_false(kin_packed_has(p, 1));
    kin_packed_close(p);
    p = open_with_stamp(&d, STAMP + 1);
    assert_true(kin_packed_has(p, 0) && kin_packed_is_current(p, 0));
    assert_false(kin_packed_has(p, 1));
    assert_false(kin_packed_is_current(p, 2));
    kin_packed_close(p);
    p = open_with_stamp(&d, 0); // 0: the key alone identifies the source
    assert_true(kin_packed_is_current(p, 2));
    kin_packed_close(p);
    remove_dir(&d, path.text);
}

static void a_symbolic_link_is_not_followed(void **state) {
    (void)state;
    temp_dir d = make_dir(), elsewhere = make_dir();
    file_path path = make_cache(&d);
    char target[128];
    struct stat st;
    kin_err err;
    kin_packed *p;
    snprintf(target, sizeof target, "%s/precious", elsewhere.path);
    assert_int_equal(rename(path.text, target), 0);
    assert_int_equal(truncate(target, 100), 0);
    assert_int_equal(symlink(target, path.text), 0);
    assert_int_equal(kin_packed_open(&p, d.path, key, STAMP, N_BLOCKS, block_bytes, &err), KIN_FAIL);
    assert_non_null(strstr(err.text, "symbolic link"));
    assert_true(stat(target, &st) == 0 && st.st_size == 100);
    remove_dir(&d, path.text);
    remove_dir(&elsewhere, target);
}

// ---- two processes; two openers of the file in one process stand for them

static void readers_share_a_complete_file(void **state) {
    (void)state;
    temp_dir d = make_dir();
    file_path path = make_cache(&d);
    kin_packed *a = open_packed(&d, key), *b = open_packed(&d, key);
    for (size_t i = 0; i < N_BLOCKS; i++) {
        expect_bytes(a, i);
        expect_bytes(b, i);
    }
    kin_packed_close(a);
    kin_packed_close(b);
    remove_dir(&d, path.text);
}

static void a_file_that_is_being_written_is_refused_until_sealed(void **state) {
    (void)state;
    temp_dir d = make_dir();
    kin_packed *a = open_packed(&d, key), *b;
    kin_err err;
    fill(a, 0, false);
    assert_int_equal(kin_packed_open(&b, d.path, key, STAMP, N_BLOCKS, block_bytes, &err), KIN_FAIL);
    assert_null(b);
    assert_non_null(strstr(err.text, "being written by another kin"));
    assert_int_equal(kin_packed_seal(a, &err), 0);
    b = open_packed(&d, key);
    expect_bytes(b, 0);
    assert_int_equal(kin_packed_write(b, 1, "x", SOURCE, &err), KIN_FAIL); // `a` still reads
    assert_non_null(strstr(err.text, "in use by another kin"));
    remove_dir(&d, kin_packed_path(a));
    kin_packed_close(b);
    kin_packed_close(a);
}

// A failed attempt to make a shared lock exclusive loses the lock, so it must be taken again.
static void whoever_may_not_write_still_holds_the_file_as_a_reader(void **state) {
    (void)state;
    temp_dir d = make_dir();
    file_path path = make_cache(&d);
    kin_packed *a = open_packed(&d, key), *b = open_packed(&d, key), *c;
    kin_err err;
    assert_int_equal(kin_packed_write(a, 1, "x", SOURCE, &err), KIN_FAIL);
    kin_packed_close(b);
    flip(path.text, 20, 1);
    assert_int_equal(kin_packed_open(&c, d.path, key, STAMP, N_BLOCKS, block_bytes, &err),
                     KIN_FAIL); // a reset would truncate a's pages
    expect_bytes(a, 2);
    kin_packed_close(a);
    remove_dir(&d, path.text);
}

static void a_damaged_file_in_use_is_left_alone(void **state) {
    (void)state;
    temp_dir d = make_dir();
    file_path path = make_cache(&d);
    kin_packed *a = open_packed(&d, key), *b;
    kin_err err;
    flip(path.text, 20, 1);
    assert_int_equal(kin_packed_open(&b, d.path, key, STAMP, N_BLOCKS, block_bytes, &err), KIN_FAIL);
    assert_non_null(strstr(err.text, "in use by another kin"));
    expect_bytes(a, 2); // would be a SIGBUS if the file had been truncated
    kin_packed_close(a);
    remove_dir(&d, path.text);
}

static void a_process_that_shares_its_file_writes_while_it_reads(void **state) {
    (void)state;
    temp_dir d = make_dir();
    kin_packed *a, *b;
    kin_err err;
    assert_int_equal(kin_packed_share(&a, d.path, key, STAMP, N_BLOCKS, block_bytes, &err), 0);
    fill(a, 0, true);
    assert_int_equal(kin_packed_share(&b, d.path, key, STAMP, N_BLOCKS, block_bytes, &err), 0);
    assert_ptr_equal(a, b);
    fill(b, 1, true); // while `a` reads
    kin_packed_close(a);
    assert_true(kin_packed_is_checked(b, 0) && kin_packed_is_checked(b, 1)); // blocks just written need no check
    expect_bytes(b, 0);
    expect_bytes(b, 1);
    file_path path;
    snprintf(path.text, sizeof path.text, "%s", kin_packed_path(b));
    kin_packed_close(b);
    kin_packed *alone = open_packed(&d, key); // `a` and `b` are closed
    fill(alone, 2, true);
    expect_bytes(alone, 1);
    kin_packed_close(alone);
    remove_dir(&d, path.text);
}

// ---- folders and disks

// The file is on a read-only disk or belongs to another user.
static void a_file_that_may_only_be_read_is_used(void **state) {
    (void)state;
    temp_dir d = make_dir();
    kin_err err;
    file_path path = make_cache(&d);
    assert_int_equal(chmod(path.text, 0444), 0);
    assert_int_equal(chmod(d.path, 0555), 0);
    bool was_root = geteuid() == 0;
    if (was_root) assert_int_equal(seteuid(65534), 0);
    kin_packed *p = open_packed(&d, key);
    for (size_t i = 0; i < N_BLOCKS; i++) {
        assert_true(kin_packed_has(p, i));
        expect_bytes(p, i);
    }
    assert_int_equal(kin_packed_write(p, 0, "x", SOURCE, &err), KIN_FAIL);
    kin_packed_close(p);
    if (was_root) assert_int_equal(seteuid(0), 0);
    assert_int_equal(chmod(d.path, 0755), 0);
    remove_dir(&d, path.text);
}

static void what_is_no_file_is_refused(void **state) {
    (void)state;
    temp_dir d = make_dir();
    kin_packed *p;
    kin_err err;
    file_path path = make_cache(&d);
    assert_int_equal(unlink(path.text), 0);
    assert_int_equal(mkfifo(path.text, 0600), 0);
    assert_int_equal(kin_packed_open(&p, d.path, key, STAMP, N_BLOCKS, block_bytes, &err), KIN_FAIL);
    assert_non_null(strstr(err.text, "is not a regular file; remove it"));
    remove_dir(&d, path.text);
}

static void missing_folders_are_made(void **state) {
    (void)state;
    temp_dir d = make_dir();
    char deep[128];
    kin_packed *p;
    kin_err err;
    snprintf(deep, sizeof deep, "%s/a/b", d.path);
    assert_int_equal(kin_packed_open(&p, deep, key, STAMP, N_BLOCKS, block_bytes, &err), 0);
    unlink(kin_packed_path(p));
    kin_packed_close(p);
    rmdir(deep);
    snprintf(deep, sizeof deep, "%s/a", d.path);
    rmdir(deep);
    rmdir(d.path);
}

static void unusable_folders_are_refused_in_one_sentence(void **state) {
    (void)state;
    char too_long[2000];
    memset(too_long, 'x', sizeof too_long);
    memcpy(too_long, "/tmp/", 5);
    for (size_t i = 100; i < sizeof too_long; i += 100) too_long[i] = '/';
    too_long[sizeof too_long - 1] = '\0';
    const char *const dirs[] = {"/dev/null", "/dev/null/kin", "/proc/kin", "", too_long};
    for (size_t i = 0; i < sizeof dirs / sizeof *dirs; i++) {
        kin_packed *p;
        kin_err err = {""};
        assert_int_equal(kin_packed_open(&p, dirs[i], key, STAMP, N_BLOCKS, block_bytes, &err), KIN_FAIL);
        assert_null(p);
        assert_true(err.text[0] && !strchr(err.text, '\n'));
    }
    too_long[100] = '\0';
    assert_int_equal(access(too_long, F_OK), -1); // its first folders were not made either
}

// Writes two blocks of 40 KiB on a disk of 64 KiB: the first fits, the second does not. Returns 0 if all checks pass.
static int use_small_disk(const char *dir) {
    static uint8_t bytes[10 * PAGE];
    const uint64_t sizes[] = {sizeof bytes, sizeof bytes};
    kin_packed *p;
    kin_err err = {""};
    memset(bytes, 0x5a, sizeof bytes);
    if (kin_packed_open(&p, dir, key, STAMP, 2, sizes, &err) != 0 || kin_packed_write(p, 0, bytes, SOURCE, &err) != 0) return 1;
    if (kin_packed_write(p, 1, bytes, SOURCE, &err) == 0) return 2;
    if (!strstr(err.text, strerror(ENOSPC))) return 3;
    if (kin_packed_seal(p, &err) != 0) return 4;
    kin_packed_close(p);
    if (kin_packed_open(&p, dir, key, STAMP, 2, sizes, &err) != 0 || !kin_packed_has(p, 0) || kin_packed_has(p, 1)) return 5;
    uint8_t *at = mmap(NULL, ROOM, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (kin_packed_map(p, 0, at, &err) != 0 || memcmp(at, bytes, sizeof bytes) != 0) return 6;
    kin_packed_close(p);
    return 0;
}

static void a_full_disk_loses_only_what_does_not_fit(void **state) {
    (void)state;
    temp_dir d = make_dir();
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        if (!mount_small_disk(d.path, "64k")) _exit(77);
        _exit(use_small_disk(d.path));
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    rmdir(d.path);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 77) {
        print_message("             a private mount is not allowed here\n");
        skip();
    }
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

// With an argument: runs only the tests whose names match this pattern.
int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_sealed_block_is_found_again),
        cmocka_unit_test(a_written_block_can_be_mapped_before_it_is_sealed),
        cmocka_unit_test(a_mapped_block_is_read_only),
        cmocka_unit_test(a_block_that_was_not_sealed_is_not_there),
        cmocka_unit_test(a_block_of_which_a_part_failed_locks_nobody_out_after_sealing),
        cmocka_unit_test(a_killed_process_loses_only_unfinished_blocks),
        cmocka_unit_test(other_keys_have_other_files),
        cmocka_unit_test(blocks_begin_where_a_page_of_any_size_begins),
        cmocka_unit_test(a_truncated_file_is_begun_anew),
        cmocka_unit_test(a_flipped_bit_in_the_header_is_noticed),
        cmocka_unit_test(a_file_of_an_earlier_format_is_begun_anew),
        cmocka_unit_test(a_flipped_bit_in_a_seal_loses_that_unit_only),
        cmocka_unit_test(a_file_under_another_keys_name_is_begun_anew),
        cmocka_unit_test(other_sizes_of_blocks_begin_anew),
        cmocka_unit_test(a_flipped_byte_in_a_block_is_found_and_the_block_dropped),
        cmocka_unit_test(content_is_checked_in_memory_and_past_the_page_cache_too),
        cmocka_unit_test(a_check_is_remembered_until_the_file_changes),
        cmocka_unit_test(a_damaged_note_checks_again),
        cmocka_unit_test(blocks_of_files_that_look_different_are_compared_by_their_weights),
        cmocka_unit_test(a_symbolic_link_is_not_followed),
        cmocka_unit_test(readers_share_a_complete_file),
        cmocka_unit_test(a_file_that_is_being_written_is_refused_until_sealed),
        cmocka_unit_test(whoever_may_not_write_still_holds_the_file_as_a_reader),
        cmocka_unit_test(a_damaged_file_in_use_is_left_alone),
        cmocka_unit_test(a_process_that_shares_its_file_writes_while_it_reads),
        cmocka_unit_test(a_file_that_may_only_be_read_is_used),
        cmocka_unit_test(what_is_no_file_is_refused),
        cmocka_unit_test(missing_folders_are_made),
        cmocka_unit_test(unusable_folders_are_refused_in_one_sentence),
        cmocka_unit_test(a_full_disk_loses_only_what_does_not_fit),
    };
    if (argc > 1) cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests(tests, NULL, remove_made);
}
