#include "pull/part_file.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/hash.h"
#include "sys/checks.h"
#include "sys/io.h"

enum { STATE_BYTES = 4096 }; // a text, followed by NULs

static void path_of(const char *path, const char *suffix, char out[KIN_PART_PATH + 16]) {
    snprintf(out, KIN_PART_PATH + 16, "%s%s", path, suffix);
}

// ---- the state

// Returns a text's hash, which ends the state, so that a torn or damaged one is not believed.
static uint64_t hash_of(const char *text) {
    return kin_hash64(text, strlen(text), 1);
}

// "kin-part 1\nsize N\nboot N\nidentity TEXT\nmissing RANGES\nhash N\n"
static int print_state(const kin_part_file *part, const kin_byte_ranges *missing, char text[STATE_BYTES]) {
    char ranges[3000];
    if (!kin_byte_ranges_print(missing, ranges, sizeof ranges)) return KIN_FAIL;
    int n = snprintf(text, STATE_BYTES, "kin-part 1\nsize %" PRIu64 "\nboot %" PRIx64 "\nidentity %s\nmissing %s\n", part->size,
                     kin_checks_state(1), part->identity, ranges);
    uint64_t hash = hash_of(text);
    snprintf(text + n, (size_t)(STATE_BYTES - n), "hash %" PRIx64 "\n", hash);
    return 0;
}

typedef struct state {
    uint64_t size, boot;
    char identity[200];
    kin_byte_ranges missing;
} state;

// Takes the rest of the line after "NAME " and moves on.
static char *pop_line(char **at, const char *name) {
    size_t n = strlen(name);
    char *end = strchr(*at, '\n'), *value = *at + n + 1;
    if (!end || strncmp(*at, name, n) != 0 || (*at)[n] != ' ') return NULL;
    *end = '\0';
    *at = end + 1;
    return value;
}

static bool read_state(int fd, state *s) {
    char text[STATE_BYTES + 1] = {0}, *at = text, *v;
    *s = (state){0};
    if (kin_io_read(fd, text, STATE_BYTES, 0) <= 0) return false;
    char *hash = strstr(text, "\nhash ");
    if (!hash) return false;
    uint64_t stated = strtoull(hash + 6, NULL, 16);
    hash[1] = '\0';
    if (hash_of(text) != stated || !(v = pop_line(&at, "kin-part")) || strcmp(v, "1") != 0) return false;
    if (!(v = pop_line(&at, "size"))) return false;
    s->size = strtoull(v, NULL, 10);
    if (!(v = pop_line(&at, "boot"))) return false;
    s->boot = strtoull(v, NULL, 16);
    if (!(v = pop_line(&at, "identity"))) return false;
    snprintf(s->identity, sizeof s->identity, "%s", v);
    return (v = pop_line(&at, "missing")) && kin_byte_ranges_parse(&s->missing, v, s->size);
}

int kin_part_file_save(kin_part_file *part, const kin_byte_ranges *missing, kin_err *err) {
    char text[STATE_BYTES] = {0};
    if (print_state(part, missing, text) != 0) return 0; // too many pieces: the state before it is still right
    if (kin_io_write(part->state_fd, text, sizeof text, 0) == 0) return 0;
    return kin_err_set(err, "%s.part.state: %s", part->path, strerror(errno));
}

// True if the bytes of a state belong to the file that is wanted now.
static bool is_usable(const kin_part_file *part, const state *s) {
    if (s->size != part->size || strcmp(s->identity, part->identity) != 0 || !part->identity[0]) return false;
    return part->has_hash || s->boot == kin_checks_state(1);
}

// ---- open and close

int kin_part_file_begin_anew(kin_part_file *part, kin_err *err) {
    part->missing = (kin_byte_ranges){.n = 0};
    kin_byte_ranges_add(&part->missing, 0, part->size);
    if (ftruncate(part->fd, 0) != 0 || ftruncate(part->fd, (off_t)part->size) != 0)
        return kin_err_set(err, "%s.part: %s", part->path, strerror(errno));
    return kin_part_file_save(part, &part->missing, err);
}

static int open_file(const char *path, const char *suffix, kin_err *err) {
    char name[KIN_PART_PATH + 16];
    path_of(path, suffix, name);
    int fd = open(name, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0644); // a link would have its target overwritten
    if (fd < 0) kin_err_set(err, "%s: %s", name, errno == ELOOP ? "is a symbolic link; remove it" : strerror(errno));
    return fd;
}

// Locks it. False if another process has it, or has renamed it since it was opened. A file system may have no locks.
static bool lock(const kin_part_file *part) {
    char name[KIN_PART_PATH + 16];
    struct stat opened, named;
    path_of(part->path, ".part", name);
    if (flock(part->fd, LOCK_EX | LOCK_NB) != 0 && (errno == EWOULDBLOCK || errno == EINTR)) return false;
    return fstat(part->fd, &opened) == 0 && stat(name, &named) == 0 && opened.st_ino == named.st_ino &&
           opened.st_dev == named.st_dev;
}

kin_part_outcome kin_part_file_open(kin_part_file *part, const char *path, uint64_t size, const char *sha256, const char *etag,
                                    kin_err *err) {
    state s;
    struct stat st;
    *part = (kin_part_file){.fd = -1, .state_fd = -1, .size = size, .has_hash = sha256[0] != '\0'};
    snprintf(part->path, sizeof part->path, "%s", path);
    snprintf(part->identity, sizeof part->identity, "%s", part->has_hash ? sha256 : etag);
    if ((part->fd = open_file(path, ".part", err)) < 0) return KIN_PART_FAILED;
    if (!lock(part)) {
        kin_part_file_close(part);
        return KIN_PART_BUSY;
    }
    if ((part->state_fd = open_file(path, ".part.state", err)) < 0) goto failed;
    part->was_begun =
        read_state(part->state_fd, &s) && is_usable(part, &s) && fstat(part->fd, &st) == 0 && (uint64_t)st.st_size == size;
    part->missing = s.missing;
    if (part->was_begun || kin_part_file_begin_anew(part, err) == 0) return KIN_PART_OPENED;

failed:
    kin_part_file_close(part);
    return KIN_PART_FAILED;
}

void kin_part_file_close(kin_part_file *part) {
    if (part->state_fd >= 0) close(part->state_fd);
    if (part->fd >= 0) close(part->fd);
    part->fd = part->state_fd = -1;
}

int kin_part_file_finish(kin_part_file *part, kin_err *err) {
    char name[KIN_PART_PATH + 16], state_name[KIN_PART_PATH + 16];
    path_of(part->path, ".part", name);
    path_of(part->path, ".part.state", state_name);
    if (kin_io_sync(part->fd) != 0 || rename(name, part->path) != 0)
        return kin_err_set(err, "%s: %s", part->path, strerror(errno));
    unlink(state_name);
    kin_part_file_close(part);
    return 0;
}

uint64_t kin_part_file_missing(const char *path) {
    char name[KIN_PART_PATH + 16];
    state s;
    path_of(path, ".part.state", name);
    int fd = open(name, O_RDONLY | O_CLOEXEC);
    bool is_read = fd >= 0 && read_state(fd, &s);
    if (fd >= 0) close(fd);
    return is_read ? kin_byte_ranges_sum(&s.missing) : UINT64_MAX;
}

void kin_part_file_remove(const char *path) {
    char name[KIN_PART_PATH + 16];
    path_of(path, ".part", name);
    unlink(name);
    path_of(path, ".part.state", name);
    unlink(name);
}
