#include "engine/kv/room.h"

#include <dirent.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/units.h"

enum {
    CAP_SHARE = 20,      // by default pages may use 1 / CAP_SHARE of the disk
    FREE_SHARE = 20,     // 1 / FREE_SHARE of the disk stays free, but at most MAX_FREE_BYTES
    SCANS_PER_FILL = 16, // the folder is scanned again after 1 / SCANS_PER_FILL of the room is used
    MAX_FILES = 1 << 20,
    DISK_BLOCK_BYTES = 4096,
};

static const uint64_t MAX_FREE_BYTES = (uint64_t)1 << 30;

typedef struct file {
    char name[96]; // HASH16/KEY32
    time_t used;
    uint64_t bytes;
} file;

typedef struct files {
    file *at; // [n]
    size_t n, cap;
    uint64_t bytes;
} files;

static uint64_t bytes_on_disk(uint64_t n) {
    return (n + DISK_BLOCK_BYTES - 1) / DISK_BLOCK_BYTES * DISK_BLOCK_BYTES;
}

static int oldest_first(const void *a, const void *b) {
    time_t x = ((const file *)a)->used, y = ((const file *)b)->used;
    return (x > y) - (x < y);
}

static void add_file(files *list, const char *dir, const char *folder, const char *name) {
    char path[1200];
    struct stat st;
    file f;
    int n = snprintf(f.name, sizeof f.name, "%s/%s", folder, name);
    snprintf(path, sizeof path, "%s/%s/%s", dir, folder, name);
    if (n >= (int)sizeof f.name || lstat(path, &st) != 0 || !S_ISREG(st.st_mode)) return;
    if (list->n == list->cap) {
        size_t cap = list->cap ? 2 * list->cap : 1024;
        file *larger = cap <= MAX_FILES ? realloc(list->at, cap * sizeof *larger) : NULL;
        if (!larger) return;
        list->at = larger;
        list->cap = cap;
    }
    f.used = st.st_mtime;
    f.bytes = bytes_on_disk((uint64_t)st.st_size); // the size on disk may still grow (delayed allocation)
    list->bytes += f.bytes;
    list->at[list->n++] = f;
}

static void list_folder(files *list, const char *dir, const char *folder) {
    char path[1100];
    snprintf(path, sizeof path, "%s/%s", dir, folder);
    DIR *d = opendir(path);
    for (struct dirent *e; d && (e = readdir(d));) {
        if (e->d_name[0] != '.') add_file(list, dir, folder, e->d_name);
    }
    if (d) closedir(d);
}

static files list_files(const char *dir) {
    files list = {0};
    DIR *d = opendir(dir);
    for (struct dirent *e; d && (e = readdir(d));) {
        if (e->d_name[0] != '.') list_folder(&list, dir, e->d_name);
    }
    if (d) closedir(d);
    if (list.n) qsort(list.at, list.n, sizeof *list.at, oldest_first);
    return list;
}

static void remove_oldest(files *list, const char *dir, uint64_t most) {
    for (size_t i = 0; i < list->n && list->bytes > most; i++) {
        char path[1200];
        snprintf(path, sizeof path, "%s/%s", dir, list->at[i].name);
        if (unlink(path) == 0) list->bytes -= list->at[i].bytes;
    }
}

// Returns how many bytes all pages may use: the cap, or less if the disk has less room. In that case *free_least is the space
// that must stay free, otherwise 0.
static uint64_t max_bytes_of(const kin_kv_room *room, const char *dir, uint64_t bytes, uint64_t *free_least) {
    struct statvfs fs;
    *free_least = 0;
    if (statvfs(dir, &fs) != 0) return room->cap;
    uint64_t disk = (uint64_t)fs.f_blocks * fs.f_frsize,
             kept = disk / FREE_SHARE < MAX_FREE_BYTES ? disk / FREE_SHARE : MAX_FREE_BYTES;
    uint64_t cap = room->cap ? room->cap : disk / CAP_SHARE, free_bytes = (uint64_t)fs.f_bavail * fs.f_frsize;
    uint64_t could = bytes + free_bytes > kept ? bytes + free_bytes - kept : 0;
    if (cap <= could) return cap;
    *free_least = kept;
    return could;
}

int kin_kv_room_make(kin_kv_room *room, const char *dir, uint64_t n, kin_err *err) {
    char a[32], b[32];
    n = bytes_on_disk(n);
    if (n <= room->left) {
        room->left -= n;
        return 0;
    }
    files list = list_files(dir);
    uint64_t free_least, most = max_bytes_of(room, dir, list.bytes, &free_least);
    if (n <= most && list.bytes + n > most) remove_oldest(&list, dir, most - n < most / 10 * 9 ? most - n : most / 10 * 9);
    bool fits = list.bytes + n <= most;
    room->left = fits ? (most - list.bytes - n) / SCANS_PER_FILL : 0;
    free(list.at);
    if (fits) return 0;
    kin_size_format(n, a, sizeof a);
    if (free_least > 0)
        return kin_err_set(err, "%s: no room for a page of %s: the disk is full (kin keeps %s of it free)", dir, a,
                           kin_size_format(free_least, b, sizeof b));
    return kin_err_set(err, "%s: no room for a page of %s: the size limit is %s (--kv-disk)", dir, a,
                       kin_size_format(most, b, sizeof b));
}
