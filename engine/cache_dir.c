#include "engine/cache_dir.h"

#include <dirent.h>
#include <errno.h>
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

enum { MAX_ENTRIES = 1024, PACKS_SHARE = 5, MODELS_SHARE = 2, FREE_SHARE = 20, HASH_DIGITS = 16 };

static const uint64_t FREE_MOST = (uint64_t)1 << 30;

typedef struct deep_path { // the path of a file in a model's folder, or beside a packed file
    char text[sizeof((kin_cache_entry *)0)->path + 300];
} deep_path;

static int oldest_first(const void *a, const void *b) {
    time_t x = ((const kin_cache_entry *)a)->used, y = ((const kin_cache_entry *)b)->used;
    return (x > y) - (x < y);
}

const char *kin_cache_entry_name(const kin_cache_entry *entry) {
    return strrchr(entry->path, '/') + 1;
}

// ---- listing

static bool is_pack(const char *name) {
    size_t n = strlen(name), suffix = strlen(KIN_PACKED_SUFFIX);
    return n > suffix && strcmp(name + n - suffix, KIN_PACKED_SUFFIX) == 0;
}

static bool is_hash(const char *name) {
    return strlen(name) == HASH_DIGITS && strspn(name, "0123456789abcdef") == HASH_DIGITS;
}

// The files that belong to a packed file.
static const char *const note_suffixes[] = {KIN_PACKED_CHECKED_SUFFIX, KIN_PACKED_EXPERTS_SUFFIX};
enum { N_NOTES = sizeof note_suffixes / sizeof note_suffixes[0] };

static deep_path note_of(const kin_cache_entry *pack, int i) {
    deep_path path;
    snprintf(path.text, sizeof path.text, "%s%s", pack->path, note_suffixes[i]);
    return path;
}

// Adds a file to an entry's size and time of use. A symbolic link counts as itself.
static void add_file(kin_cache_entry *entry, const char *path) {
    struct stat st;
    if (lstat(path, &st) != 0) return;
    entry->bytes += (uint64_t)st.st_blocks * 512;
    if (st.st_mtime > entry->used) entry->used = st.st_mtime;
}

static void add_folder(kin_cache_entry *entry) {
    DIR *d = opendir(entry->path);
    for (struct dirent *e; d && (e = readdir(d));) {
        deep_path path;
        if (e->d_name[0] == '.') continue;
        snprintf(path.text, sizeof path.text, "%s/%s", entry->path, e->d_name);
        add_file(entry, path.text);
    }
    if (d) closedir(d);
}

static size_t list_kind(const char *dir, kin_cache_kind kind, kin_cache_entry *list, size_t n) {
    DIR *d = opendir(dir);
    for (struct dirent *e; d && n < MAX_ENTRIES && (e = readdir(d));) {
        kin_cache_entry *entry = &list[n];
        struct stat st;
        *entry = (kin_cache_entry){.kind = kind};
        if (!(kind == KIN_CACHE_PACK ? is_pack(e->d_name) : is_hash(e->d_name))) continue;
        int len = snprintf(entry->path, sizeof entry->path, "%s/%s", dir, e->d_name);
        if (len >= (int)sizeof entry->path || lstat(entry->path, &st) != 0) continue;
        if (kind != KIN_CACHE_PACK && !S_ISDIR(st.st_mode)) continue;
        if (kind != KIN_CACHE_PACK) {
            add_folder(entry);
        } else {
            add_file(entry, entry->path);
            for (int i = 0; i < N_NOTES; i++) add_file(entry, note_of(entry, i).text);
        }
        n++;
    }
    if (d) closedir(d);
    return n;
}

size_t kin_cache_dir_list(const char *dir, kin_cache_entry **list) {
    char folder[sizeof((kin_cache_entry *)0)->path];
    *list = calloc(MAX_ENTRIES, sizeof **list);
    if (!*list) return 0;
    size_t n = list_kind(dir, KIN_CACHE_PACK, *list, 0);
    if (snprintf(folder, sizeof folder, "%s/models", dir) < (int)sizeof folder) n = list_kind(folder, KIN_CACHE_MODEL, *list, n);
    if (snprintf(folder, sizeof folder, "%s/kv", dir) < (int)sizeof folder) n = list_kind(folder, KIN_CACHE_KV, *list, n);
    qsort(*list, n, sizeof **list, oldest_first);
    return n;
}

// ---- removing

// True if no kin process has the file open. The caller then holds an exclusive lock until it closes *fd (-1: there is nothing to
// lock).
static bool lock_exclusively(const char *path, int *fd) {
    *fd = open(path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    if (*fd < 0 || flock(*fd, LOCK_EX | LOCK_NB) == 0) return true;
    close(*fd);
    return false;
}

static int remove_folder(const char *folder, kin_err *err) {
    int fd = open(folder, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    DIR *d = fd >= 0 ? fdopendir(fd) : NULL;
    if (!d && fd >= 0) close(fd);
    for (struct dirent *e; d && (e = readdir(d));) {
        if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0) unlinkat(dirfd(d), e->d_name, 0);
    }
    if (d) closedir(d);
    return rmdir(folder) == 0 ? 0 : kin_err_set(err, "%s: %s", folder, strerror(errno));
}

int kin_cache_dir_remove(const kin_cache_entry *entry, kin_err *err) {
    deep_path locked;
    int fd, rc;
    // A process that uses a model locks its manifest (model/store.h); one that uses a packed file locks that file. KV pages are
    // not locked: a process recomputes what is gone.
    snprintf(locked.text, sizeof locked.text, entry->kind == KIN_CACHE_MODEL ? "%s/manifest" : "%s", entry->path);
    if (!lock_exclusively(locked.text, &fd)) return kin_err_set(err, "%s: in use by a running kin", entry->path);
    if (entry->kind != KIN_CACHE_PACK) {
        rc = remove_folder(entry->path, err);
    } else {
        rc = unlink(entry->path) == 0 ? 0 : kin_err_set(err, "%s: %s", entry->path, strerror(errno));
        for (int i = 0; i < N_NOTES && rc == 0; i++) unlink(note_of(entry, i).text);
    }
    if (fd >= 0) close(fd);
    return rc;
}

// ---- room

typedef struct room {
    kin_cache_kind kind; // the kind of file to make room for
    uint64_t need, cap;
    uint64_t total;      // of all entries of that kind
    uint64_t free_bytes; // on the disk, without what must stay free
} room;

static bool counts(const room *r, const kin_cache_entry *entry) {
    return entry->kind == r->kind;
}

// Room for fetched weights may also remove prepacked ones, which can be made again here; the reverse is not true.
static bool may_leave(const room *r, const kin_cache_entry *entry) {
    return counts(r, entry) || r->kind == KIN_CACHE_MODEL;
}

static void remove_oldest(room *r, const kin_cache_entry *entries, size_t n) {
    char size[32];
    for (size_t i = 0; i < n; i++) {
        bool helps =
            (counts(r, &entries[i]) && r->total + r->need > r->cap) || (may_leave(r, &entries[i]) && r->free_bytes < r->need);
        if (!helps || kin_cache_dir_remove(&entries[i], NULL) != 0) continue;
        if (counts(r, &entries[i])) r->total -= entries[i].bytes;
        r->free_bytes += entries[i].bytes;
        kin_log(KIN_LOG_INFO, "removed %s (%s) from the cache to make room", entries[i].path,
                kin_size_format(entries[i].bytes, size, sizeof size));
    }
}

static int make_cache_room(const char *dir, room *r, const char *what, kin_err *err) {
    char a[32], b[32];
    kin_cache_entry *entries;
    if (r->need > r->cap) {
        return kin_err_set(err, "%s of %s exceed the cache's limit of %s (--cache-size)", kin_size_format(r->need, a, sizeof a),
                           what, kin_size_format(r->cap, b, sizeof b));
    }
    size_t n = kin_cache_dir_list(dir, &entries);
    uint64_t could_leave = 0;
    for (size_t i = 0; i < n; i++) {
        r->total += counts(r, &entries[i]) ? entries[i].bytes : 0;
        could_leave += may_leave(r, &entries[i]) ? entries[i].bytes : 0;
    }
    if (r->free_bytes + could_leave >= r->need) remove_oldest(r, entries, n);
    free(entries);
    if (r->free_bytes < r->need) {
        return kin_err_set(err, "%s: no room for %s of %s (%s free on the disk)", dir, kin_size_format(r->need, a, sizeof a),
                           what, kin_size_format(r->free_bytes, b, sizeof b));
    }
    if (r->total + r->need <= r->cap) return 0;
    return kin_err_set(err, "%s: no room for %s of %s besides files in use: the cache's limit is %s (--cache-size)", dir,
                       kin_size_format(r->need, a, sizeof a), what, kin_size_format(r->cap, b, sizeof b));
}

int kin_cache_dir_make_room(const char *dir, uint64_t need, uint64_t cap, kin_err *err) {
    struct statvfs fs;
    if (statvfs(dir, &fs) != 0) return 0; // the folder does not exist yet: it will be created, or that will fail
    uint64_t disk = (uint64_t)fs.f_blocks * fs.f_frsize;
    room r = {KIN_CACHE_PACK, need, cap ? cap : disk / PACKS_SHARE, 0, (uint64_t)fs.f_bavail * fs.f_frsize};
    return make_cache_room(dir, &r, "prepacked weights", err);
}

int kin_cache_dir_make_room_for_model(const char *dir, uint64_t need, uint64_t cap, kin_err *err) {
    struct statvfs fs;
    if (need == 0 || statvfs(dir, &fs) != 0) return 0;
    uint64_t disk = (uint64_t)fs.f_blocks * fs.f_frsize, kept = disk / FREE_SHARE < FREE_MOST ? disk / FREE_SHARE : FREE_MOST;
    uint64_t free_bytes = (uint64_t)fs.f_bavail * fs.f_frsize;
    room r = {KIN_CACHE_MODEL, need, cap ? cap : disk / MODELS_SHARE, 0, free_bytes > kept ? free_bytes - kept : 0};
    return make_cache_room(dir, &r, "fetched weights", err);
}
