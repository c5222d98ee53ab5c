// The cluster's key: codes as people type them, the key derived from a code, and the key file.
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "net/key.h"
#include "tests/place.h"

static void expect_code(const char *typed, const char *shown) {
    char code[KIN_CODE_TEXT];
    kin_err err = {""};
    assert_int_equal(kin_code_parse(code, typed, &err), 0);
    assert_string_equal(code, shown);
}
#define expect_code(...) FROM_TEST(expect_code(__VA_ARGS__))

static void expect_no_code(const char *typed, const char *words) {
    char code[KIN_CODE_TEXT];
    kin_err err;
    assert_int_equal(kin_code_parse(code, typed, &err), KIN_FAIL);
    assert_non_null(strstr(err.text, words));
    assert_string_equal(code, "");
}
#define expect_no_code(...) FROM_TEST(expect_no_code(__VA_ARGS__))

static void new_codes_have_the_form_and_use_the_whole_alphabet(void **state) {
    (void)state;
    int seen[256] = {0}, n_kinds = 0;
    char code[KIN_CODE_TEXT], last[KIN_CODE_TEXT] = "";
    for (int i = 0; i < 200; i++) {
        assert_int_equal(kin_code_new(code, NULL), 0);
        assert_int_equal(strlen(code), 19);
        assert_string_not_equal(code, last);
        memcpy(last, code, sizeof last);
        expect_code(code, code);
        for (int k = 0; k < 19; k++) seen[(unsigned char)code[k]]++;
    }
    for (int c = 0; c < 256; c++) n_kinds += seen[c] > 0;
    assert_int_equal(n_kinds, 32 + 1);
    assert_int_equal(seen['-'], 600);
    assert_int_equal(seen['I'] + seen['L'] + seen['O'] + seen['U'], 0);
}

static void a_code_may_be_typed_in_many_ways(void **state) {
    (void)state;
    expect_code("7K2M-XQ4T-9B0H-WZ3D", "7K2M-XQ4T-9B0H-WZ3D");
    expect_code("7k2mxq4t9b0hwz3d", "7K2M-XQ4T-9B0H-WZ3D");
    expect_code("  7k2m xq4t\t9b0h - wz3d\n", "7K2M-XQ4T-9B0H-WZ3D");
    expect_code("7-k-2-m-x-q-4-t-9-b-0-h-w-z-3-d", "7K2M-XQ4T-9B0H-WZ3D");
    expect_code("oO0 iI lL1 2345 6789", "0001-1111-2345-6789");
}

static void a_typo_is_answered_with_what_is_wrong(void **state) {
    (void)state;
    expect_no_code("", "invalid code: it must have 16 characters, but has 0");
    expect_no_code("7K2M-XQ4T-9B0H-WZ3", "invalid code: it must have 16 characters, but has 15");
    expect_no_code("7K2M-XQ4T-9B0H-WZ3D-7", "invalid code: it must have 16 characters, but has 17");
    expect_no_code("7K2M-XQ4T-9B0H-WU3D", "invalid code: 'U' (character 14) does not occur in codes");
    expect_no_code("7K2M!XQ4T-9B0H-WZ3D", "'!' (character 5)");
    expect_no_code("7K2M-XQ4T-9B0H-WZ3\xc3\xa4", "character 16");
}

static void errors_do_not_tell_the_code(void **state) {
    (void)state;
    char code[KIN_CODE_TEXT];
    kin_err err;
    assert_int_equal(kin_code_parse(code, "7K2M-XQ4T-9B0H-WZ3", &err), KIN_FAIL);
    assert_null(strstr(err.text, "7K2M"));
}

static void a_code_gives_the_key_of_scrypt(void **state) {
    (void)state;
    // python3: hashlib.scrypt(b"7K2MXQ4T9B0HWZ3D", salt=b"kin cluster 1", n=2**15, r=8, p=1, dklen=32, maxmem=2**26)
    static const uint8_t expected[KIN_KEY_BYTES] = {0x92, 0x94, 0x34, 0x9d, 0xc3, 0x7c, 0x81, 0x99, 0xa6, 0x81, 0x05,
                                                    0xe0, 0xa4, 0x18, 0x8a, 0x4f, 0x2a, 0x57, 0x50, 0x47, 0x05, 0x14,
                                                    0xde, 0x17, 0x15, 0x6c, 0xf6, 0x82, 0x90, 0x83, 0xda, 0xca};
    kin_key key, again;
    char code[KIN_CODE_TEXT];
    assert_int_equal(kin_code_parse(code, "7k2m xq4t 9boh wz3d", NULL), 0);
    assert_int_equal(kin_key_from_code(&key, code, NULL), 0);
    assert_memory_equal(key.bytes, expected, sizeof expected);
    assert_int_equal(kin_key_from_code(&again, "7K2M-XQ4T-9B0H-WZ3E", NULL), 0);
    assert_memory_not_equal(key.bytes, again.bytes, sizeof key.bytes);
    kin_key_wipe(&key);
    for (int i = 0; i < KIN_KEY_BYTES; i++) assert_int_equal(key.bytes[i], 0);
}

// ---- the file

typedef struct folder {
    char path[64], deep[96], file[128];
} folder;

static int make_folder(void **state) {
    folder *f = calloc(1, sizeof *f);
    snprintf(f->path, sizeof f->path, "/tmp/kin-key-XXXXXX");
    assert_non_null(mkdtemp(f->path));
    snprintf(f->deep, sizeof f->deep, "%s/kin", f->path);
    snprintf(f->file, sizeof f->file, "%s/cluster.key", f->deep);
    *state = f;
    return 0;
}

static int remove_folder(void **state) {
    folder *f = *state;
    char code[160];
    snprintf(code, sizeof code, "%s.code", f->file);
    unlink(code);
    unlink(f->file);
    assert_int_equal(rmdir(f->deep), 0); // fails if another file was left there
    assert_int_equal(rmdir(f->path), 0);
    free(f);
    return 0;
}

static const kin_key some_key = {{1, 2, 0xab, 0xff}};

static void write_text(const folder *f, const char *text, mode_t mode) {
    unlink(f->file);
    int fd = open(f->file, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    assert_int_equal(write(fd, text, strlen(text)), strlen(text));
    assert_int_equal(fchmod(fd, mode), 0);
    close(fd);
}
#define write_text(...) FROM_TEST(write_text(__VA_ARGS__))

static void a_saved_key_is_loaded_and_unique(void **state) {
    const folder *f = *state;
    struct stat st;
    kin_key key;
    kin_err err;
    assert_false(kin_key_is_there(f->file));
    assert_int_equal(kin_key_save(&some_key, f->file, &err), 0);
    assert_true(kin_key_is_there(f->file));
    assert_int_equal(stat(f->file, &st), 0);
    assert_int_equal(st.st_mode & 07777, 0600);
    assert_int_equal(stat(f->deep, &st), 0);
    assert_int_equal(st.st_mode & 07777, 0700);
    assert_int_equal(kin_key_load(&key, f->file, &err), 0);
    assert_memory_equal(key.bytes, some_key.bytes, KIN_KEY_BYTES);
}

static void a_new_key_replaces_the_old_one(void **state) {
    const folder *f = *state;
    kin_key key = some_key;
    key.bytes[31] = 9;
    assert_int_equal(kin_key_save(&some_key, f->file, NULL), 0);
    assert_int_equal(kin_key_save(&key, f->file, NULL), 0);
    key = some_key;
    assert_int_equal(kin_key_load(&key, f->file, NULL), 0);
    assert_int_equal(key.bytes[31], 9);
}

static void a_code_is_kept_beside_its_key_for_its_user_alone(void **state) {
    const folder *f = *state;
    static const char shown[KIN_CODE_TEXT] = "7K2M-XQ4T-9B0H-WZ3D";
    char code[KIN_CODE_TEXT], path[160];
    struct stat st;
    kin_err err;
    snprintf(path, sizeof path, "%s.code", f->file);
    assert_false(kin_code_is_there(f->file));
    assert_int_equal(kin_code_save(shown, f->file, &err), 0);
    assert_true(kin_code_is_there(f->file));
    assert_false(kin_key_is_there(f->file));
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 07777, 0600);
    assert_int_equal(kin_code_load(code, f->file, &err), 0);
    assert_string_equal(code, shown);
    assert_int_equal(chmod(path, 0640), 0);
    assert_int_equal(kin_code_load(code, f->file, &err), KIN_FAIL);
    assert_non_null(strstr(err.text, "chmod 600"));
    assert_string_equal(code, "");
    assert_int_equal(chmod(path, 0600), 0);
    int fd = open(path, O_WRONLY | O_TRUNC);
    assert_int_equal(write(fd, "7K2M\n", 5), 5);
    close(fd);
    assert_int_equal(kin_code_load(code, f->file, &err), KIN_FAIL);
    assert_non_null(strstr(err.text, "not a cluster code"));
    assert_null(strstr(err.text, "7K2M"));
}

static void a_code_of_any_file_is_read_if_only_its_owner_can(void **state) {
    const folder *f = *state;
    const char *path = f->file;
    char code[KIN_CODE_TEXT];
    kin_err err;
    assert_int_equal(mkdir(f->deep, 0700), 0);
    int fd = open(path, O_WRONLY | O_CREAT, 0600);
    assert_int_equal(write(fd, "7k2m xq4t 9boh wz3d\n", 20), 20);
    close(fd);
    assert_int_equal(kin_code_read(code, path, &err), 0);
    assert_string_equal(code, "7K2M-XQ4T-9B0H-WZ3D");
    assert_int_equal(chmod(path, 0440), 0);
    assert_int_equal(kin_code_read(code, path, &err), KIN_FAIL);
    assert_non_null(strstr(err.text, "chmod 600"));
    // In systemd's folder of a service's secrets the group's right to read stands for a list of users.
    setenv("CREDENTIALS_DIRECTORY", f->deep, 1);
    assert_int_equal(kin_code_read(code, path, &err), 0);
    assert_int_equal(chmod(path, 0444), 0);
    assert_int_equal(kin_code_read(code, path, &err), KIN_FAIL);
    assert_int_equal(chmod(path, 0440), 0);
    setenv("CREDENTIALS_DIRECTORY", f->path, 1); // the file is in a folder below it
    assert_int_equal(kin_code_read(code, path, &err), KIN_FAIL);
    unsetenv("CREDENTIALS_DIRECTORY");
    assert_int_equal(unlink(path), 0);
    assert_int_equal(kin_code_read(code, path, &err), KIN_FAIL);
    assert_non_null(strstr(err.text, "No such file"));
}

static void a_code_that_is_wiped_leaves_nothing(void **state) {
    (void)state;
    char code[KIN_CODE_TEXT] = "7K2M-XQ4T-9B0H-WZ3D";
    kin_code_wipe(code, sizeof code);
    for (size_t i = 0; i < sizeof code; i++) assert_int_equal(code[i], 0);
}

static void keys_are_the_same_only_in_every_byte(void **state) {
    (void)state;
    kin_key key = some_key;
    assert_true(kin_key_is_same(&key, &some_key));
    key.bytes[KIN_KEY_BYTES - 1] ^= 1;
    assert_false(kin_key_is_same(&key, &some_key));
}

static void expect_refused(const folder *f, const char *words) {
    kin_key key = some_key;
    kin_err err;
    assert_int_equal(kin_key_load(&key, f->file, &err), KIN_FAIL);
    assert_non_null(strstr(err.text, f->file));
    assert_non_null(strstr(err.text, words));
    assert_int_equal(key.bytes[2], 0);
}
#define expect_refused(...) FROM_TEST(expect_refused(__VA_ARGS__))

static const char hex[] = "0102abFF00000000000000000000000000000000000000000000000000000000";

static void a_file_that_others_may_read_is_refused_with_the_remedy(void **state) {
    const folder *f = *state;
    static const mode_t modes[] = {0640, 0604, 0620, 0660, 0644};
    assert_int_equal(kin_key_save(&some_key, f->file, NULL), 0);
    char remedy[256];
    snprintf(remedy, sizeof remedy, "chmod 600 '%s'", f->file);
    for (int i = 0; i < 5; i++) {
        write_text(f, hex, modes[i]);
        expect_refused(f, remedy);
    }
    write_text(f, hex, 0400);
    kin_key key;
    assert_int_equal(kin_key_load(&key, f->file, NULL), 0);
    assert_memory_equal(key.bytes, some_key.bytes, KIN_KEY_BYTES);
}

static void a_file_that_is_no_key_is_refused(void **state) {
    const folder *f = *state;
    char text[200];
    assert_int_equal(kin_key_save(&some_key, f->file, NULL), 0);
    write_text(f, "", 0600);
    expect_refused(f, "64 hexadecimal digits");
    write_text(f, "0102", 0600);
    expect_refused(f, "64 hexadecimal digits");
    snprintf(text, sizeof text, "%.63sg", hex);
    write_text(f, text, 0600);
    expect_refused(f, "64 hexadecimal digits");
    snprintf(text, sizeof text, "%s0", hex);
    write_text(f, text, 0600);
    expect_refused(f, "64 hexadecimal digits");
    snprintf(text, sizeof text, "%s\r\n", hex);
    write_text(f, text, 0600);
    kin_key key;
    assert_int_equal(kin_key_load(&key, f->file, NULL), 0);
}

static void what_is_no_file_is_refused(void **state) {
    const folder *f = *state;
    assert_int_equal(kin_key_save(&some_key, f->file, NULL), 0);
    unlink(f->file);
    expect_refused(f, "No such file");
    assert_int_equal(mkdir(f->file, 0700), 0);
    expect_refused(f, "regular file");
    kin_err err;
    assert_int_equal(kin_key_save(&some_key, f->file, &err), KIN_FAIL); // and leaves no temporary file
    assert_int_equal(rmdir(f->file), 0);
    assert_int_equal(mkfifo(f->file, 0600), 0);
    expect_refused(f, "regular file");
}

static void a_folder_that_cannot_be_made_is_an_error_that_names_it(void **state) {
    const folder *f = *state;
    char path[200];
    kin_err err;
    assert_int_equal(kin_key_save(&some_key, f->file, NULL), 0);
    snprintf(path, sizeof path, "%s/deeper/cluster.key", f->file);
    assert_int_equal(kin_key_save(&some_key, path, &err), KIN_FAIL);
    assert_non_null(strstr(err.text, "Not a directory"));
}

static void the_default_path_follows_the_environment(void **state) {
    (void)state;
    char path[256];
    setenv("XDG_CONFIG_HOME", "/x", 1);
    setenv("HOME", "/home/me", 1);
    assert_string_equal(kin_key_default_path(path, sizeof path), "/x/kin/cluster.key");
    assert_null(kin_key_default_path(path, 10));
    unsetenv("XDG_CONFIG_HOME");
#ifdef __APPLE__
    assert_string_equal(kin_key_default_path(path, sizeof path), "/home/me/Library/Application Support/kin/cluster.key");
#else
    assert_string_equal(kin_key_default_path(path, sizeof path), "/home/me/.config/kin/cluster.key");
#endif
    unsetenv("HOME");
    assert_null(kin_key_default_path(path, sizeof path));
}

int main(void) {
#define WITH_FOLDER(name) cmocka_unit_test_setup_teardown(name, make_folder, remove_folder)
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(new_codes_have_the_form_and_use_the_whole_alphabet),
        cmocka_unit_test(a_code_may_be_typed_in_many_ways),
        cmocka_unit_test(a_typo_is_answered_with_what_is_wrong),
        cmocka_unit_test(errors_do_not_tell_the_code),
        cmocka_unit_test(a_code_gives_the_key_of_scrypt),
        WITH_FOLDER(a_saved_key_is_loaded_and_unique),
        WITH_FOLDER(a_new_key_replaces_the_old_one),
        WITH_FOLDER(a_code_is_kept_beside_its_key_for_its_user_alone),
        WITH_FOLDER(a_code_of_any_file_is_read_if_only_its_owner_can),
        cmocka_unit_test(a_code_that_is_wiped_leaves_nothing),
        cmocka_unit_test(keys_are_the_same_only_in_every_byte),
        WITH_FOLDER(a_file_that_others_may_read_is_refused_with_the_remedy),
        WITH_FOLDER(a_file_that_is_no_key_is_refused),
        WITH_FOLDER(what_is_no_file_is_refused),
        WITH_FOLDER(a_folder_that_cannot_be_made_is_an_error_that_names_it),
        cmocka_unit_test(the_default_path_follows_the_environment),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
