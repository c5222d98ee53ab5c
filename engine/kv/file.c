#include "engine/kv/file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/hex.h"
#include "sys/io.h"
#include "sys/whole_file.h"

enum { FOLDER_DIGITS = 16, NAME_DIGITS = 32 };

// suffix: added to the page's name for a temporary file; or empty. has_key false: the path of the folder.
static kin_kv_path path_of(const char *dir, const kin_page_name *name, bool has_key, const char *suffix) {
    kin_kv_path path;
    char folder[FOLDER_DIGITS + 1], key[NAME_DIGITS + 1];
    *kin_hex_put(folder, name->folder, sizeof name->folder) = '\0';
    *kin_hex_put(key, name->key.bytes, sizeof name->key.bytes) = '\0';
    snprintf(path.text, sizeof path.text, "%s/kv/%s%s%s%s", dir, folder, has_key ? "/" : "", has_key ? key : "", suffix);
    return path;
}

kin_kv_path kin_kv_file_path(const char *dir, const kin_page_name *name) {
    return path_of(dir, name, true, "");
}

bool kin_kv_file_has(const char *dir, const kin_page_name *name) {
    return access(kin_kv_file_path(dir, name).text, F_OK) == 0;
}

// Returns a name unique to this process and this call, because several threads may write the same page.
static kin_kv_path passing_path(const char *dir, const kin_page_name *name, const void *call) {
    char suffix[64];
    snprintf(suffix, sizeof suffix, ".%lx.%zx", (long)getpid(), (size_t)call);
    return path_of(dir, name, true, suffix);
}

int kin_kv_file_write(const char *dir, kin_kv_room *room, const kin_page_name *name, const uint8_t *bytes, size_t n,
                      kin_err *err) {
    char all[1100];
    kin_kv_path path = kin_kv_file_path(dir, name), passing = passing_path(dir, name, bytes);
    snprintf(all, sizeof all, "%s/kv", dir);
    if (kin_folder_make(path_of(dir, name, false, "").text, err) != 0 || kin_kv_room_make(room, all, n, err) != 0)
        return KIN_FAIL;
    int fd = open(passing.text, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600);
    bool ok = fd >= 0 && kin_io_write(fd, bytes, n, 0) == 0;
    if (!ok) kin_err_set(err, "%s: %s", all, strerror(errno)); // names the folder, because users know it; a page's name is a hash
    if (fd >= 0 && close(fd) != 0 && ok) ok = kin_err_set(err, "%s: %s", all, strerror(errno)) == 0;
    if (ok && rename(passing.text, path.text) != 0) ok = kin_err_set(err, "%s: %s", all, strerror(errno)) == 0;
    if (!ok && fd >= 0) unlink(passing.text);
    return ok ? 0 : KIN_FAIL;
}

// Opens a page and marks it as used. KIN_ABSENT: it cannot be opened now, which says nothing about its content: this process may
// have too many files open.
static int open_file(const char *path, int *fd) {
    *fd = open(path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    if (*fd < 0) return KIN_ABSENT;
    futimens(*fd, NULL);
    return 0;
}

static int read_at(int fd, const char *path, uint8_t *bytes, size_t n, uint64_t at, size_t *got, kin_err *err) {
    ssize_t n_read = kin_io_read(fd, bytes, n, at);
    if (n_read < 0) kin_err_set(err, "%s: %s", path, strerror(errno));
    close(fd);
    *got = n_read < 0 ? 0 : (size_t)n_read;
    return n_read < 0 ? KIN_FAIL : 0;
}

int kin_kv_file_read(const char *dir, const kin_page_name *name, uint8_t *bytes, size_t most, size_t *n, kin_err *err) {
    kin_kv_path path = kin_kv_file_path(dir, name);
    int fd, rc = open_file(path.text, &fd);
    return rc == 0 ? read_at(fd, path.text, bytes, most, 0, n, err) : rc;
}

int kin_kv_file_read_piece(const char *dir, const kin_page_name *name, uint64_t at, uint8_t *bytes, size_t n, kin_err *err) {
    kin_kv_path path = kin_kv_file_path(dir, name);
    size_t got;
    int fd, rc = open_file(path.text, &fd);
    if (rc == 0) rc = read_at(fd, path.text, bytes, n, at, &got, err);
    return rc == 0 && got < n ? KIN_ABSENT : rc;
}

void kin_kv_file_remove(const char *dir, const kin_page_name *name) {
    unlink(kin_kv_file_path(dir, name).text);
}
