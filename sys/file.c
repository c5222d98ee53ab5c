#include "sys/file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "sys/file_times.h"
#include "sys/io.h"
#include "sys/pages.h"

enum { GUARDED_MAX = 512 };

// Says what the path is, and how to solve it.
static int fail_kind(const char *path, mode_t mode, kin_err *err) {
    if (S_ISDIR(mode)) return kin_err_set(err, "%s: is a directory, not a file", path);
    if (S_ISFIFO(mode)) return kin_err_set(err, "%s: is a pipe, which cannot be mapped; save its output to a file", path);
    return kin_err_set(err, "%s: not a regular file", path);
}

// ---- identities

static kin_file_identity identity_of(const struct stat *st) {
    struct timespec written = kin_file_written_time(st), changed = kin_file_changed_time(st);
    return (kin_file_identity){.device = (uint64_t)st->st_dev,
                               .inode = (uint64_t)st->st_ino,
                               .size = (uint64_t)st->st_size,
                               .written_s = (uint64_t)written.tv_sec,
                               .written_ns = (uint64_t)written.tv_nsec,
                               .changed_s = (uint64_t)changed.tv_sec,
                               .changed_ns = (uint64_t)changed.tv_nsec};
}

int kin_file_identify(int fd, kin_file_identity *identity) {
    struct stat st;
    if (fstat(fd, &st) != 0) return KIN_FAIL;
    *identity = identity_of(&st);
    return 0;
}

int kin_file_identify_path(const char *path, kin_file_identity *identity) {
    struct stat st;
    if (stat(path, &st) != 0) return KIN_FAIL;
    *identity = identity_of(&st);
    return 0;
}

// ---- guarded mappings

typedef enum place { FREE, TAKEN, GUARDED } place;

static struct {
    atomic_int place;
    atomic_bool is_cut;
    atomic_uintptr_t begin, end; // of the mapping, while GUARDED
} guarded[GUARDED_MAX];

void kin_file_guard(kin_file *file) {
    if (!file->bytes || file->fd < 0 || file->guard >= 0) return;
    for (int i = 0; i < GUARDED_MAX; i++) {
        int expected = FREE;
        if (!atomic_compare_exchange_strong(&guarded[i].place, &expected, TAKEN)) continue;
        atomic_store(&guarded[i].is_cut, false);
        atomic_store(&guarded[i].begin, (uintptr_t)file->bytes);
        atomic_store(&guarded[i].end, (uintptr_t)file->bytes + file->size);
        atomic_store(&guarded[i].place, GUARDED);
        file->guard = i;
        return;
    }
}

static void unguard(const kin_file *file) {
    if (file->guard >= 0) atomic_store(&guarded[file->guard].place, FREE);
}

bool kin_file_mend(uintptr_t at) {
    for (int i = 0; i < GUARDED_MAX; i++) {
        uintptr_t begin = atomic_load(&guarded[i].begin), end = atomic_load(&guarded[i].end), page = kin_page_bytes();
        if (atomic_load(&guarded[i].place) != GUARDED || at < begin || at >= (end + page - 1) / page * page) continue;
        atomic_store(&guarded[i].is_cut, true);
        void *from = (void *)(at / page * page); // NOLINT(performance-no-int-to-ptr)
        return mmap(from, end - at / page * page, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == from;
    }
    return false;
}

static bool misses_pages(const kin_file *file) {
    return file->guard >= 0 && atomic_load(&guarded[file->guard].is_cut);
}

bool kin_file_is_cut(const kin_file *file) {
    kin_file_identity now;
    return misses_pages(file) || kin_file_identify(file->fd, &now) != 0 || now.size < file->size;
}

kin_file_state kin_file_check(const kin_file *file, const kin_file_identity *then) {
    kin_file_identity now;
    if (misses_pages(file) || kin_file_identify(file->fd, &now) != 0) return KIN_FILE_CHANGED;
    if (now.device != then->device || now.inode != then->inode || now.size != then->size || now.written_s != then->written_s ||
        now.written_ns != then->written_ns)
        return KIN_FILE_CHANGED;
    return now.changed_s == then->changed_s && now.changed_ns == then->changed_ns ? KIN_FILE_SAME : KIN_FILE_TOUCHED;
}

// ---- opening

int kin_file_open(kin_file *file, const char *path, kin_err *err) {
    *file = (kin_file){.fd = -1, .guard = -1};
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); // a pipe without a writer must not block
    if (fd < 0) return kin_err_set(err, "%s: %s", path, strerror(errno));

    struct stat st;
    if (fstat(fd, &st) != 0) {
        kin_err_set(err, "%s: %s", path, strerror(errno));
        goto fail;
    }
    if (!S_ISREG(st.st_mode)) {
        fail_kind(path, st.st_mode, err);
        goto fail;
    }
    file->identity = identity_of(&st);
    file->size = (uint64_t)st.st_size;
    if (file->size > 0) {
        void *map = mmap(NULL, (size_t)file->size, PROT_READ, MAP_SHARED, fd, 0);
        if (map == MAP_FAILED) {
            kin_err_set(err, "%s: cannot map %llu bytes: %s", path, (unsigned long long)file->size, strerror(errno));
            goto fail;
        }
        file->bytes = map;
    }
    file->fd = fd;
    return 0;

fail:
    close(fd);
    return KIN_FAIL;
}

void kin_file_close(kin_file *file) {
    if (!file) return;
    unguard(file);
    if (file->bytes) munmap((void *)file->bytes, (size_t)file->size);
    if (file->fd >= 0) close(file->fd);
    *file = (kin_file){.fd = -1, .guard = -1};
}

int kin_file_read(const kin_file *file, uint64_t at, void *to, size_t n) {
    return kin_io_read(file->fd, to, n, at) == (ssize_t)n ? 0 : KIN_FAIL;
}
