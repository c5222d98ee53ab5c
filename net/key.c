#include "net/key.h"

#include <ctype.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/rand.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/hex.h"
#include "sys/secret_file.h"
#include "sys/sha256.h"
#include "sys/whole_file.h"

enum {
    CODE_BYTES = 10, // 80 bits: 5 per character
    GROUP = 4,       // characters between dashes
    PATH_BYTES = 4096,
    HEX_CHARS = 2 * KIN_KEY_BYTES,
    FILE_BYTES = HEX_CHARS + 16 // most bytes to read: the digits and some white space
};

static const char alphabet[] = "0123456789ABCDEFGHJKMNPQRSTVWXYZ";
static const char salt[] = "kin cluster 1";

// ---- codes

// Formats 16 characters as "XXXX-XXXX-XXXX-XXXX".
static void show(char code[KIN_CODE_TEXT], const char chars[KIN_CODE_CHARS]) {
    for (int i = 0; i < KIN_CODE_CHARS; i++) {
        if (i > 0 && i % GROUP == 0) *code++ = '-';
        *code++ = chars[i];
    }
    *code = 0;
}

int kin_code_new(char code[KIN_CODE_TEXT], kin_err *err) {
    uint8_t bytes[CODE_BYTES];
    char chars[KIN_CODE_CHARS];
    if (RAND_bytes(bytes, sizeof bytes) != 1) return kin_err_set(err, "cannot get random numbers for a code");
    for (int i = 0; i < KIN_CODE_CHARS; i++) {
        int bit = 5 * i, at = bit / 8; // the character's first bit; its bits may extend into the next byte
        unsigned two = (unsigned)bytes[at] << 8 | (at + 1 < CODE_BYTES ? bytes[at + 1] : 0u);
        chars[i] = alphabet[two >> (11 - bit % 8) & 31];
    }
    show(code, chars);
    OPENSSL_cleanse(bytes, sizeof bytes);
    OPENSSL_cleanse(chars, sizeof chars);
    return 0;
}

// Returns the alphabet's character for a typed one; 0: none.
static char meant(char c) {
    c = (char)toupper((unsigned char)c);
    if (c == 'O') return '0';
    if (c == 'I' || c == 'L') return '1';
    return c && strchr(alphabet, c) ? c : 0;
}

int kin_code_parse(char code[KIN_CODE_TEXT], const char *typed, kin_err *err) {
    char chars[KIN_CODE_CHARS] = {0};
    int n = 0, rc = 0;
    code[0] = 0;
    for (const char *p = typed; *p && rc == 0; p++) {
        if (*p == '-' || isspace((unsigned char)*p)) continue;
        char c = meant(*p);
        if (!c)
            rc = isgraph((unsigned char)*p)
                     ? kin_err_set(err, "invalid code: '%c' (character %d) does not occur in codes", *p, n + 1)
                     : kin_err_set(err, "invalid code: character %d does not occur in codes", n + 1);
        else if (n < KIN_CODE_CHARS)
            chars[n] = c;
        n++;
    }
    if (rc == 0 && n != KIN_CODE_CHARS)
        rc = kin_err_set(err, "invalid code: it must have %d characters, but has %d", KIN_CODE_CHARS, n);
    if (rc == 0) show(code, chars);
    OPENSSL_cleanse(chars, sizeof chars);
    return rc;
}

int kin_key_from_code(kin_key *key, const char code[KIN_CODE_TEXT], kin_err *err) {
    char chars[KIN_CODE_CHARS];
    int n = 0;
    for (const char *p = code; *p; p++) {
        if (*p == '-') continue;
        kin_assert(n < KIN_CODE_CHARS);
        chars[n++] = *p;
    }
    kin_assert(n == KIN_CODE_CHARS);
    uint64_t max_bytes = (uint64_t)64 << 20; // scrypt needs 128 * r * N = 32 MiB and a little more
    int ok = EVP_PBE_scrypt(chars, sizeof chars, (const unsigned char *)salt, sizeof salt - 1, 1 << 15, 8, 1, max_bytes,
                            key->bytes, sizeof key->bytes);
    OPENSSL_cleanse(chars, sizeof chars);
    return ok == 1 ? 0 : kin_err_set(err, "cannot derive a key from the code: out of memory (32 MiB needed)");
}

void kin_key_wipe(kin_key *key) {
    OPENSSL_cleanse(key, sizeof *key);
}

int kin_key_derive(uint8_t secret[KIN_KEY_BYTES], const kin_key *key, const char *purpose, kin_err *err) {
    uint8_t of[64 + KIN_KEY_BYTES];
    size_t n = strlen(purpose);
    kin_assert(n <= 64);
    memcpy(of, purpose, n);
    memcpy(of + n, key->bytes, KIN_KEY_BYTES);
    int rc = kin_sha256(of, n + KIN_KEY_BYTES, secret, err);
    OPENSSL_cleanse(of, sizeof of);
    return rc;
}

bool kin_key_is_same(const kin_key *a, const kin_key *b) {
    return CRYPTO_memcmp(a->bytes, b->bytes, sizeof a->bytes) == 0;
}

void kin_code_wipe(char *code, size_t n) {
    OPENSSL_cleanse(code, n);
}

// ---- the files

const char *kin_key_default_path(char *buf, size_t n) {
    const char *xdg = getenv("XDG_CONFIG_HOME"), *home = getenv("HOME");
    int length = -1;
    if (xdg && xdg[0])
        length = snprintf(buf, n, "%s/kin/cluster.key", xdg);
    else if (home && home[0])
#ifdef __APPLE__
        length = snprintf(buf, n, "%s/Library/Application Support/kin/cluster.key", home);
#else
        length = snprintf(buf, n, "%s/.config/kin/cluster.key", home);
#endif
    return length >= 0 && (size_t)length < n ? buf : NULL;
}

bool kin_key_is_there(const char *path) {
    return access(path, F_OK) == 0;
}

// Parses 64 digits, followed only by white space.
static int parse_hex(kin_key *key, const char *text, size_t n) {
    if (n < HEX_CHARS || n == FILE_BYTES) return KIN_FAIL;
    if (kin_hex_get(key->bytes, text, KIN_KEY_BYTES) != 0) return KIN_FAIL;
    for (size_t i = HEX_CHARS; i < n; i++) {
        if (!isspace((unsigned char)text[i])) return KIN_FAIL;
    }
    return 0;
}

// The caller wipes the text.
static int load_secret(char text[FILE_BYTES], size_t *n, const char *path, kin_err *err) {
    return kin_secret_file_read(path, text, FILE_BYTES, n, err) == 0 ? 0 : KIN_FAIL;
}

int kin_key_load(kin_key *key, const char *path, kin_err *err) {
    char text[FILE_BYTES];
    size_t n;
    kin_key_wipe(key);
    int rc = load_secret(text, &n, path, err);
    if (rc == 0 && parse_hex(key, text, n) != 0)
        rc = kin_err_set(err, "%s: not a cluster key: it must be %d hexadecimal digits", path, HEX_CHARS);
    OPENSSL_cleanse(text, sizeof text);
    if (rc != 0) kin_key_wipe(key);
    return rc;
}

static int code_path(char path[PATH_BYTES], const char *key_path, kin_err *err) {
    if ((size_t)snprintf(path, PATH_BYTES, "%s.code", key_path) < PATH_BYTES) return 0;
    return kin_err_set(err, "%s: the path is too long", key_path);
}

bool kin_code_is_there(const char *key_path) {
    char path[PATH_BYTES];
    return code_path(path, key_path, NULL) == 0 && access(path, F_OK) == 0;
}

int kin_code_read(char code[KIN_CODE_TEXT], const char *path, kin_err *err) {
    char text[FILE_BYTES + 1];
    size_t n = 0;
    code[0] = 0;
    int rc = load_secret(text, &n, path, err);
    text[n] = 0;
    if (rc == 0 && (strlen(text) != n || kin_code_parse(code, text, NULL) != 0))
        rc = kin_err_set(err, "%s: not a cluster code: it must be %d characters", path, KIN_CODE_CHARS);
    OPENSSL_cleanse(text, sizeof text);
    if (rc != 0) kin_code_wipe(code, KIN_CODE_TEXT);
    return rc;
}

int kin_code_load(char code[KIN_CODE_TEXT], const char *key_path, kin_err *err) {
    char path[PATH_BYTES];
    code[0] = 0;
    return code_path(path, key_path, err) == 0 ? kin_code_read(code, path, err) : KIN_FAIL;
}

static int save_secret(const char *text, size_t n, const char *path, kin_err *err) {
    return kin_folder_make_private_above(path, err) == 0 ? kin_whole_file_write(path, text, n, err) : KIN_FAIL;
}

int kin_key_save(const kin_key *key, const char *path, kin_err *err) {
    char text[HEX_CHARS + 1];
    *kin_hex_put(text, key->bytes, KIN_KEY_BYTES) = '\n';
    int rc = save_secret(text, sizeof text, path, err);
    OPENSSL_cleanse(text, sizeof text);
    return rc;
}

int kin_code_save(const char code[KIN_CODE_TEXT], const char *key_path, kin_err *err) {
    char path[PATH_BYTES], text[KIN_CODE_TEXT + 1];
    if (code_path(path, key_path, err) != 0) return KIN_FAIL;
    int n = snprintf(text, sizeof text, "%s\n", code);
    int rc = save_secret(text, (size_t)n, path, err);
    OPENSSL_cleanse(text, sizeof text);
    return rc;
}
