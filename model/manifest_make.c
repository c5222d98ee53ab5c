// Makes a manifest from files: hashes on several threads, and caches the results for later starts.
//
// Effect on the page cache: pages that were there before stay. Pages that hashing brings in also stay if the model fits in
// memory, because loading reads them next; otherwise they would only push out pages that others need, and are dropped as soon as
// they are hashed. Reads request no read-ahead, so that reading a chunk never touches the pages of the next.
//
// The cache is DIR/KEY.manifest, with KEY made from devices and inodes, so that a changed file's manifest replaces its old one:
//   0   8   magic "kinhash2"
//   8   4   number of files, 4 zeros
//   16  per file 56: device, inode, size, seconds and nanoseconds of its mtime and of its ctime (which cannot be set
//       back)
//       the manifest, as bytes
//       32 bytes: SHA-256 of everything before
#include "model/manifest.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/bytes.h"
#include "base/hash.h"
#include "base/log.h"
#include "sys/cpu.h"
#include "sys/file_times.h"
#include "sys/io.h"
#include "sys/memory.h"
#include "sys/parallel.h"
#include "sys/whole_file.h"

static const char magic[8] = {'k', 'i', 'n', 'h', 'a', 's', 'h', '2'};

enum { PIECE_BYTES = 512 << 10, THREADS_MAX = 8, HEADER_BYTES = 16, IDENTITY_BYTES = 56 };

typedef struct opened {
    int fd;
    const char *path;
    uint64_t size;
    uint8_t identity[IDENTITY_BYTES];
} opened;

typedef struct hashing {
    kin_manifest *m;
    opened files[KIN_MANIFEST_FILES_MAX];
    int n_files;
    kin_manifest_progress *progress;
    bool drop; // drop the pages that reading brings into the page cache
    atomic_uint_least32_t next;
    atomic_bool failed; // set by the one thread that writes `err`
    kin_err err;
} hashing;

kin_manifest_options kin_manifest_options_defaults(void) {
    int n = kin_cpu_n_cores();
    return (kin_manifest_options){.chunk_bytes = KIN_CHUNK_BYTES, .n_threads = n < THREADS_MAX ? n : THREADS_MAX};
}

// ---- files

static int identify(opened *file, kin_err *err) {
    struct stat st;
    if (fstat(file->fd, &st) != 0) return kin_err_set(err, "%s: %s", file->path, strerror(errno));
    if (!S_ISREG(st.st_mode)) return kin_err_set(err, "%s: not a regular file", file->path);
    struct timespec written = kin_file_written_time(&st), changed = kin_file_changed_time(&st);
    file->size = (uint64_t)st.st_size;
    kin_put_u64(file->identity, (uint64_t)st.st_dev);
    kin_put_u64(file->identity + 8, (uint64_t)st.st_ino);
    kin_put_u64(file->identity + 16, file->size);
    kin_put_u64(file->identity + 24, (uint64_t)written.tv_sec);
    kin_put_u64(file->identity + 32, (uint64_t)written.tv_nsec);
    kin_put_u64(file->identity + 40, (uint64_t)changed.tv_sec);
    kin_put_u64(file->identity + 48, (uint64_t)changed.tv_nsec);
    return 0;
}

static int open_files(hashing *h, const char *const *paths, int n_files, kin_err *err) {
    if (n_files < 1 || n_files > KIN_MANIFEST_FILES_MAX) {
        return kin_err_set(err, "%d files; a model has 1 to %d", n_files, KIN_MANIFEST_FILES_MAX);
    }
    for (; h->n_files < n_files; h->n_files++) {
        opened *file = &h->files[h->n_files];
        *file = (opened){.path = paths[h->n_files], .fd = open(paths[h->n_files], O_RDONLY | O_CLOEXEC)};
        if (file->fd < 0) return kin_err_set(err, "%s: %s", file->path, strerror(errno));
        if (identify(file, err) != 0) {
            close(file->fd);
            return KIN_FAIL;
        }
#ifdef __linux__
        posix_fadvise(file->fd, 0, 0, POSIX_FADV_RANDOM);
#endif
    }
    return 0;
}

static void close_files(hashing *h) {
    for (int i = 0; i < h->n_files; i++) close(h->files[i].fd);
}

static int expect_unchanged(const hashing *h, kin_err *err) {
    for (int i = 0; i < h->n_files; i++) {
        opened now = h->files[i];
        if (identify(&now, err) != 0) return KIN_FAIL;
        if (memcmp(now.identity, h->files[i].identity, IDENTITY_BYTES) == 0) continue;
        return kin_err_set(err, "%s: changed while it was read", now.path);
    }
    return 0;
}

// ---- hashing

#ifdef __linux__
// True if no page of these bytes is in the page cache; false if that is unknown.
static bool is_cold(int fd, uint64_t offset, size_t n) {
    unsigned char pages[KIN_CHUNK_BYTES / 4096];
    void *map = mmap(NULL, n, PROT_READ, MAP_SHARED, fd, (off_t)offset);
    if (map == MAP_FAILED) return false;
    bool known = mincore(map, n, pages) == 0;
    munmap(map, n);
    size_t n_pages = (n + (size_t)sysconf(_SC_PAGESIZE) - 1) / (size_t)sysconf(_SC_PAGESIZE);
    for (size_t i = 0; i < n_pages && known; i++) known = !(pages[i] & 1);
    return known;
}

static void drop_pages(int fd, uint64_t offset, size_t n) {
    posix_fadvise(fd, (off_t)offset, (off_t)n, POSIX_FADV_DONTNEED);
}
#else
static bool is_cold(int fd, uint64_t offset, size_t n) {
    (void)fd, (void)offset, (void)n;
    return false;
}

static void drop_pages(int fd, uint64_t offset, size_t n) {
    (void)fd, (void)offset, (void)n;
}
#endif

static int read_piece(const opened *file, uint8_t *buf, size_t n, uint64_t offset, kin_err *err) {
    ssize_t got = kin_io_read(file->fd, buf, n, offset);
    if (got < 0) return kin_err_set(err, "%s: %s", file->path, strerror(errno));
    return (size_t)got < n ? kin_err_set(err, "%s: was truncated while it was read", file->path) : 0;
}

static bool stopped(const hashing *h) {
    return atomic_load(&h->failed) || (h->progress && atomic_load(&h->progress->stop));
}

static int hash_chunk(hashing *h, uint32_t i_chunk, kin_sha256_stream *stream, uint8_t *buf, kin_err *err) {
    kin_chunk c = kin_manifest_chunk(h->m, i_chunk);
    const opened *file = &h->files[c.i_file];
    bool drop = h->drop && is_cold(file->fd, c.offset, c.bytes);
    for (uint32_t done = 0, n; done < c.bytes; done += n) {
        n = c.bytes - done < PIECE_BYTES ? c.bytes - done : PIECE_BYTES;
        if (stopped(h)) return kin_err_set(err, "%s: reading was interrupted", file->path);
        if (read_piece(file, buf, n, c.offset + done, err) != 0) return KIN_FAIL;
        if (kin_sha256_add(stream, buf, n, err) != 0) return KIN_FAIL;
        if (h->progress) atomic_fetch_add(&h->progress->done, n);
    }
    if (drop) drop_pages(file->fd, c.offset, c.bytes);
    return kin_sha256_end(stream, h->m->hashes[i_chunk], err);
}

static void hash_some(void *user, size_t i_thread) {
    (void)i_thread;
    hashing *h = user;
    kin_sha256_stream *stream = NULL;
    kin_err err;
    uint8_t *buf = malloc(PIECE_BYTES);
    int rc = buf ? kin_sha256_open(&stream, &err) : kin_err_set(&err, "out of memory");
    while (rc == 0) {
        uint32_t i_chunk = atomic_fetch_add(&h->next, 1);
        if (i_chunk >= h->m->n_chunks) break;
        rc = hash_chunk(h, i_chunk, stream, buf, &err);
    }
    if (rc != 0 && !atomic_exchange(&h->failed, true)) h->err = err;
    if (stream) kin_sha256_close(stream);
    free(buf);
}

// Returns the file's name for display, or a replacement if it is not valid in a manifest (not UTF-8, for example).
static const char *base_name(const char *path) {
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    return kin_manifest_check_name(name, NULL) == 0 ? name : "model.gguf";
}

static int hash_all(hashing *h, kin_manifest *m, const kin_manifest_options *o, kin_err *err) {
    uint64_t sizes[KIN_MANIFEST_FILES_MAX];
    const char *names[KIN_MANIFEST_FILES_MAX];
    for (int i = 0; i < h->n_files; i++) {
        sizes[i] = h->files[i].size;
        names[i] = base_name(h->files[i].path);
    }
    if (kin_manifest_begin(m, o->chunk_bytes, h->n_files, sizes, names, err) != 0) return KIN_FAIL;
    h->m = m;
    h->drop = kin_manifest_total(m) > kin_memory_read().available / 2;
    if (h->progress) atomic_store(&h->progress->total, kin_manifest_total(m));
    kin_parallel(o->n_threads, o->n_threads > 1 ? (size_t)o->n_threads : 1, hash_some, h);
    if (atomic_load(&h->failed)) {
        if (err) *err = h->err;
    } else if (expect_unchanged(h, err) == 0 && kin_manifest_finish(m, NULL, err) == 0) {
        return 0;
    }
    kin_manifest_fini(m);
    return KIN_FAIL;
}

// ---- cache

typedef struct cache_path {
    char text[4096];
} cache_path;

static int name_cache(const hashing *h, const kin_manifest_options *o, cache_path *path, kin_err *err) {
    uint64_t key = o->chunk_bytes;
    for (int i = 0; i < h->n_files; i++) key = kin_hash64(h->files[i].identity, 16, key);
    int n = snprintf(path->text, sizeof path->text, "%s/%016" PRIx64 ".manifest", o->cache_dir, key);
    if (n > 0 && (size_t)n < sizeof path->text) return 0;
    return kin_err_set(err, "'%.40s...': the directory's path is too long", o->cache_dir);
}

static size_t identities_bytes(const hashing *h) {
    return HEADER_BYTES + (size_t)h->n_files * IDENTITY_BYTES;
}

static void put_identities(const hashing *h, uint8_t *bytes) {
    memset(bytes, 0, HEADER_BYTES);
    memcpy(bytes, magic, sizeof magic);
    kin_put_u32(bytes + 8, (uint32_t)h->n_files);
    for (int i = 0; i < h->n_files; i++) memcpy(bytes + HEADER_BYTES + i * IDENTITY_BYTES, h->files[i].identity, IDENTITY_BYTES);
}

// Files that were moved or renamed keep their content; the manifest gets their present names.
static int rename_files(const hashing *h, kin_manifest *m) {
    if (m->n_files != h->n_files) return KIN_FAIL;
    for (int i = 0; i < m->n_files; i++) {
        const char *name = base_name(h->files[i].path);
        if (m->files[i].size != h->files[i].size) return KIN_FAIL;
        memcpy(m->files[i].name, name, strlen(name) + 1);
    }
    return 0;
}

// Parses a cache file for exactly these files; KIN_FAIL if it is about others, outdated or damaged.
static int parse_cache(const hashing *h, const uint8_t *bytes, size_t n, uint32_t chunk_bytes, kin_manifest *m) {
    uint8_t sum[KIN_SHA256_BYTES], expected[HEADER_BYTES + KIN_MANIFEST_FILES_MAX * IDENTITY_BYTES];
    size_t n_expected = identities_bytes(h);
    put_identities(h, expected);
    if (n < n_expected + sizeof sum || memcmp(bytes, expected, n_expected) != 0) return KIN_FAIL;
    n -= sizeof sum;
    if (kin_sha256(bytes, n, sum, NULL) != 0 || memcmp(sum, bytes + n, sizeof sum) != 0) return KIN_FAIL;
    if (kin_manifest_parse(m, bytes + n_expected, n - n_expected, NULL, NULL) != 0) return KIN_FAIL;
    if (m->chunk_bytes == chunk_bytes && rename_files(h, m) == 0) return 0;
    kin_manifest_fini(m);
    return KIN_FAIL;
}

static bool find_cached(const hashing *h, const kin_manifest_options *o, const char *path, kin_manifest *m) {
    uint8_t *bytes;
    size_t n;
    size_t max = HEADER_BYTES + KIN_MANIFEST_FILES_MAX * IDENTITY_BYTES + KIN_MANIFEST_BYTES_MAX + KIN_SHA256_BYTES;
    if (kin_whole_file_read(path, max, &bytes, &n, NULL) != 0) return false;
    bool found = parse_cache(h, bytes, n, o->chunk_bytes, m) == 0;
    free(bytes);
    return found;
}

static int save(const hashing *h, const char *dir, const char *path, kin_err *err) {
    size_t n_identities = identities_bytes(h), n = n_identities + kin_manifest_bytes(h->m);
    uint8_t *bytes = malloc(n + KIN_SHA256_BYTES);
    if (!bytes) return kin_err_set(err, "out of memory");
    put_identities(h, bytes);
    kin_manifest_write(h->m, bytes + n_identities);
    int rc = kin_sha256(bytes, n, bytes + n, err);
    if (rc == 0) rc = kin_folder_make(dir, err);
    if (rc == 0) rc = kin_whole_file_write(path, bytes, n + KIN_SHA256_BYTES, err);
    free(bytes);
    return rc;
}

static int make_cached(hashing *h, kin_manifest *m, const kin_manifest_options *o, kin_err *err) {
    cache_path path;
    kin_err why;
    if (name_cache(h, o, &path, err) != 0) return KIN_FAIL;
    if (find_cached(h, o, path.text, m)) {
        if (h->progress) atomic_store(&h->progress->total, kin_manifest_total(m));
        if (h->progress) atomic_store(&h->progress->done, kin_manifest_total(m));
        return 0;
    }
    if (hash_all(h, m, o, err) != 0) return KIN_FAIL;
    if (save(h, o->cache_dir, path.text, &why) != 0) {
        kin_log(KIN_LOG_WARN, "cannot store the model's hashes, so the next start computes them again: %s", why.text);
    }
    return 0;
}

int kin_manifest_make(kin_manifest *m, const char *const *paths, int n_files, const kin_manifest_options *o, kin_err *err) {
    *m = (kin_manifest){0};
    hashing *h = calloc(1, sizeof *h);
    if (!h) return kin_err_set(err, "out of memory");
    h->progress = o->progress;
    int rc = open_files(h, paths, n_files, err);
    if (rc == 0) rc = o->cache_dir ? make_cached(h, m, o, err) : hash_all(h, m, o, err);
    close_files(h);
    free(h);
    return rc;
}
