#include "sys/secret_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "sys/io.h"

// True for a file in the folder that systemd makes for the secrets of a service (LoadCredential). The folder is protected; the
// list of users that may read the file shows as rights of its group.
static bool is_credential(const char *path) {
    const char *folder = getenv("CREDENTIALS_DIRECTORY");
    size_t n = folder ? strlen(folder) : 0;
    return n > 0 && strncmp(path, folder, n) == 0 && path[n] == '/' && !strchr(path + n + 1, '/');
}

// Returns the rights that others may have: secrets of a container are often readable by all, on a mount where chmod is
// impossible.
static mode_t rights_of_others(int fd, const char *path) {
    struct statvfs fs;
    if (is_credential(path)) return S_IRGRP;
    return fstatvfs(fd, &fs) == 0 && fs.f_flag & ST_RDONLY ? S_IRGRP | S_IROTH : 0;
}

static int check(int fd, const char *path, kin_err *err) {
    struct stat st;
    if (fstat(fd, &st) != 0) return kin_err_set(err, "%s: %s", path, strerror(errno));
    if (!S_ISREG(st.st_mode)) return kin_err_set(err, "%s: not a regular file, so it cannot hold a key", path);
    // root reads those of all, for example the code of a service that has a user of its own.
    if (st.st_uid != geteuid() && st.st_uid != 0 && geteuid() != 0)
        return kin_err_set(err, "%s: this key belongs to another user", path);
    if (st.st_mode & (S_IRWXG | S_IRWXO) & ~rights_of_others(fd, path))
        return kin_err_set(err, "%s: other users can read or change this key; fix it with: chmod 600 '%s'", path, path);
    return 0;
}

int kin_secret_file_read(const char *path, void *bytes, size_t max, size_t *n, kin_err *err) {
    *n = 0;
    // Non-blocking: if a pipe is in place of the file, open must not hang before it is refused.
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) {
        int reason = errno;
        kin_err_set(err, "%s: %s", path, strerror(reason));
        return reason == ENOENT ? KIN_ABSENT : KIN_FAIL;
    }
    int rc = check(fd, path, err);
    ssize_t got = rc == 0 ? kin_io_read(fd, bytes, max, 0) : 0;
    if (got < 0) rc = kin_err_set(err, "%s: %s", path, strerror(errno));
    if (rc == 0) *n = (size_t)got;
    close(fd);
    return rc;
}
