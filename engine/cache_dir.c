#include "engine/cache_dir.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/log.h"
#include "base/units.h"
#include "engine/packed.h"

enum { MAX_FILES = 1024, DISK_SHARE = 5 };

typedef struct entry {
    char path[1024];
    uint64_t bytes; // on the disk
    time_t used;
} entry;

static int oldest_first(const void *a, const void *b) {
    time_t x = ((const entry *)a)->used, y = ((const entry *)b)->used;
    return (x > y) - (x < y);
}

static bool is_pack(const char *name) {
    size_t n = strlen(name), suffix = strlen(KIN_PACKED_SUFFIX);
    return n > suffix && strcmp(name + n - suffix, KIN_PACKED_SUFFIX) == 0;
}

// The cache files of a folder, least recently used first. Returns how many; *list is the caller's to free.
static size_t list_files(const char *dir, entry **list) {
    size_t n = 0;
    DIR *d = opendir(dir);
    *list = calloc(MAX_FILES, sizeof **list);
    for (struct dirent *e; d && *list && n < MAX_FILES && (e = readdir(d));) {
        entry *file = &(*list)[n];
        struct stat st, note;
        char note_path[sizeof file->path + sizeof KIN_PACKED_CHECKED_SUFFIX];
        int len = snprintf(file->path, sizeof file->path, "%s/%s", dir, e->d_name);
        if (!is_pack(e->d_name) || len >= (int)sizeof file->path || lstat(file->path, &st) != 0) continue;
        snprintf(note_path, sizeof note_path, "%s" KIN_PACKED_CHECKED_SUFFIX, file->path);
        file->bytes = (uint64_t)st.st_blocks * 512;
        file->used = lstat(note_path, &note) == 0 && note.st_mtime > st.st_mtime ? note.st_mtime : st.st_mtime;
        n++;
    }
    if (d) closedir(d);
    if (n > 0) qsort(*list, n, sizeof **list, oldest_first);
    return n;
}

// Removes a file that no kin has open.
static bool remove_unused(const entry *file) {
    int fd = open(file->path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return false;
    bool gone = flock(fd, LOCK_EX | LOCK_NB) == 0 && unlink(file->path) == 0;
    close(fd);
    char size[32], note_path[sizeof file->path + sizeof KIN_PACKED_CHECKED_SUFFIX];
    snprintf(note_path, sizeof note_path, "%s" KIN_PACKED_CHECKED_SUFFIX, file->path);
    if (gone) unlink(note_path);
    if (gone)
        kin_log(KIN_LOG_INFO, "removed %s (%s) from the cache to make room", file->path,
                kin_size_format(file->bytes, size, sizeof size));
    return gone;
}

int kin_cache_dir_make_room(const char *dir, uint64_t need, uint64_t cap, kin_err *err) {
    struct statvfs fs;
    char a[32], b[32];
    if (statvfs(dir, &fs) != 0) return 0; // not there yet: it will be made, or that will fail
    if (cap == 0) cap = (uint64_t)fs.f_blocks * fs.f_frsize / DISK_SHARE;
    if (need > cap) {
        return kin_err_set(err, "%s of prepacked weights are beyond the cache's limit of %s (--cache-size)",
                           kin_size_format(need, a, sizeof a), kin_size_format(cap, b, sizeof b));
    }
    entry *files;
    size_t n = list_files(dir, &files);
    uint64_t total = 0, free_bytes = (uint64_t)fs.f_bavail * fs.f_frsize;
    for (size_t i = 0; i < n; i++) total += files[i].bytes;
    bool possible = free_bytes + total >= need;
    for (size_t i = 0; i < n && possible && (total + need > cap || free_bytes < need); i++) {
        if (!remove_unused(&files[i])) continue;
        total -= files[i].bytes;
        free_bytes += files[i].bytes;
    }
    free(files);
    if (free_bytes >= need && total + need <= cap) return 0;
    return kin_err_set(err, "%s: no room for %s of prepacked weights (%s free on the disk)", dir,
                       kin_size_format(need, a, sizeof a), kin_size_format(free_bytes, b, sizeof b));
}
