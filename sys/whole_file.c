#include "sys/whole_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "sys/io.h"

enum { PATH_BYTES = 4096 };

// Creates the folders before each slash, and the path itself if it is a folder.
static int make_folders(const char *text, bool is_folder, mode_t mode, kin_err *err) {
    char path[PATH_BYTES];
    size_t len = strlen(text);
    if (len == 0 || len >= sizeof path)
        return kin_err_set(err, "'%.40s' is not a valid directory name: it is empty or too long", text);
    memcpy(path, text, len + 1);
    for (char *slash = strchr(path + 1, '/'); slash || is_folder; slash = strchr(slash + 1, '/')) {
        if (slash) *slash = '\0';
        struct stat st;
        if (mkdir(path, mode) != 0 && errno != EEXIST) return kin_err_set(err, "%s: %s", path, strerror(errno));
        if (stat(path, &st) == 0 && !S_ISDIR(st.st_mode)) return kin_err_set(err, "%s: %s", path, strerror(ENOTDIR));
        if (!slash) break;
        *slash = '/';
    }
    return 0;
}

int kin_folder_make(const char *path, kin_err *err) {
    return make_folders(path, true, 0755, err);
}

int kin_folder_make_private_above(const char *path, kin_err *err) {
    return make_folders(path, false, 0700, err);
}

static int read_all(int fd, uint8_t *bytes, size_t n) {
    ssize_t got = kin_io_read(fd, bytes, n, 0);
    if (got >= 0 && (size_t)got < n) errno = EIO; // the file shrank
    return got == (ssize_t)n ? 0 : KIN_FAIL;
}

int kin_whole_file_read(const char *path, size_t max, uint8_t **bytes, size_t *n, kin_err *err) {
    struct stat st;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); // a pipe without a writer must not block
    *bytes = NULL;
    if (fd < 0 && errno == ENOENT) return KIN_ABSENT;
    if (fd < 0 || fstat(fd, &st) != 0) goto failed;
    if (!S_ISREG(st.st_mode) || (uint64_t)st.st_size > max) {
        close(fd);
        return kin_err_set(err, "%s: not a regular file, or larger than %zu bytes", path, max);
    }
    *n = (size_t)st.st_size;
    *bytes = malloc(*n + 1);
    if (!*bytes || read_all(fd, *bytes, *n) != 0) goto failed;
    (*bytes)[*n] = '\0';
    close(fd);
    return 0;

failed:
    kin_err_set(err, "%s: %s", path, strerror(errno));
    free(*bytes);
    *bytes = NULL;
    if (fd >= 0) close(fd);
    return KIN_FAIL;
}

static int read_to_end(int fd, const char *path, size_t max, uint8_t **bytes, size_t *n, kin_err *err) {
    size_t cap = 0;
    ssize_t got = 1;
    for (*n = 0; got > 0; *n += (size_t)got) {
        if (*n > max) return kin_err_set(err, "%s: larger than %zu bytes", path, max);
        if (*n + 1 >= cap) {
            cap = cap ? 2 * cap : 4096;
            uint8_t *larger = realloc(*bytes, cap);
            if (!larger) return kin_err_set(err, "%s: out of memory for %zu bytes", path, cap);
            *bytes = larger;
        }
        got = read(fd, *bytes + *n, cap - *n);
        if (got < 0) return kin_err_set(err, "%s: %s", path, strerror(errno));
    }
    (*bytes)[*n] = '\0'; // room for the NUL was allocated
    return 0;
}

int kin_whole_input_read(const char *path, size_t max, uint8_t **bytes, size_t *n, kin_err *err) {
    bool is_stdin = strcmp(path, "-") == 0;
    int fd = is_stdin ? STDIN_FILENO : open(path, O_RDONLY | O_CLOEXEC);
    *bytes = NULL;
    if (fd < 0) return kin_err_set(err, "%s: %s", path, strerror(errno));
    int rc = read_to_end(fd, is_stdin ? "stdin" : path, max, bytes, n, err);
    if (!is_stdin) close(fd);
    if (rc == 0) return 0;
    free(*bytes);
    *bytes = NULL;
    return KIN_FAIL;
}

// A rename is durable only once its folder is synced.
static void sync_folder_of(const char *path) {
    char folder[PATH_BYTES];
    const char *slash = strrchr(path, '/');
    snprintf(folder, sizeof folder, "%.*s", slash ? (int)(slash - path) + 1 : 1, slash ? path : ".");
    int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) return;
    fsync(fd);
    close(fd);
}

int kin_whole_file_write(const char *path, const void *bytes, size_t n, kin_err *err) {
    char temp[PATH_BYTES];
    int len = snprintf(temp, sizeof temp, "%s.XXXXXX", path);
    if (len < 0 || (size_t)len >= sizeof temp) return kin_err_set(err, "'%.40s...': the path is too long", path);
    int fd = mkstemp(temp);
    if (fd < 0) return kin_err_set(err, "%s: %s", path, strerror(errno));
    bool written = kin_io_write(fd, bytes, n, 0) == 0 && fsync(fd) == 0;
    if (written && rename(temp, path) == 0) {
        close(fd);
        sync_folder_of(path);
        return 0;
    }
    kin_err_set(err, "%s: %s", path, strerror(errno));
    close(fd);
    unlink(temp);
    return KIN_FAIL;
}
