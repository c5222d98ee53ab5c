#include "serve/http/key_file.h"

#include <openssl/crypto.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "sys/secret_file.h"

enum { MAX_BYTES = 1 << 20 };

static const char mark[] = "\xef\xbb\xbf"; // the byte order mark that Notepad writes before UTF-8

static bool is_utf16(const uint8_t *bytes, size_t n) {
    bool has_mark = n >= 2 && ((bytes[0] == 0xff && bytes[1] == 0xfe) || (bytes[0] == 0xfe && bytes[1] == 0xff));
    return has_mark || memchr(bytes, 0, n) != NULL;
}

static int copy_text(char **text, const uint8_t *bytes, size_t n, const char *path, kin_err *err) {
    if (n > MAX_BYTES) return kin_err_set(err, "%s: larger than %d bytes", path, MAX_BYTES);
    if (is_utf16(bytes, n)) return kin_err_set(err, "%s: is not UTF-8 text (perhaps UTF-16): save it as UTF-8", path);
    char *copy = strndup((const char *)bytes, n);
    if (!copy) return kin_err_set(err, "out of memory");
    if (strncmp(copy, mark, strlen(mark)) == 0) memset(copy, ' ', strlen(mark));
    *text = copy;
    return 0;
}

int kin_key_file_read(char **text, const char *path, kin_err *err) {
    size_t n;
    *text = NULL;
    uint8_t *bytes = malloc(MAX_BYTES + 1);
    if (!bytes) return kin_err_set(err, "out of memory");
    int rc = kin_secret_file_read(path, bytes, MAX_BYTES + 1, &n, err);
    if (rc == KIN_ABSENT) rc = kin_err_set(err, "%s: no such API key file", path);
    if (rc == 0) rc = copy_text(text, bytes, n, path, err);
    OPENSSL_cleanse(bytes, n);
    free(bytes);
    return rc;
}

void kin_key_file_free(char *text) {
    if (text) OPENSSL_cleanse(text, strlen(text));
    free(text);
}

static bool is_blank(char c) {
    return c == ' ' || c == '\t';
}

bool kin_key_file_next(const char **at, kin_str *key) {
    for (;;) {
        *at += strspn(*at, " \t\r\n");
        *key = (kin_str){*at, strcspn(*at, "\r\n")};
        *at += key->len;
        while (key->len > 0 && is_blank(key->at[key->len - 1])) key->len--;
        if (key->len == 0) return false;
        if (key->at[0] != '#') return true;
    }
}

int kin_key_file_first(char **key, const char *path, kin_err *err) {
    char *text;
    kin_str first;
    *key = NULL;
    if (kin_key_file_read(&text, path, err) != 0) return KIN_FAIL;
    const char *at = text;
    bool has_key = kin_key_file_next(&at, &first);
    if (has_key) *key = strndup(first.at, first.len);
    kin_key_file_free(text);
    if (!has_key) return kin_err_set(err, "%s: contains no key", path);
    return *key ? 0 : kin_err_set(err, "out of memory");
}
