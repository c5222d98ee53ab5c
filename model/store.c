#include "model/store.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/log.h"
#include "model/chunk_notes.h"
#include "sys/checks.h"
#include "sys/io.h"
#include "sys/memory.h"
#include "sys/parallel.h"
#include "sys/whole_file.h"

enum { PATH_BYTES = 4096 };

typedef struct data_file {
    char *path;
    int fd;
} data_file;

struct kin_store {
    kin_manifest manifest;
    data_file files[KIN_MANIFEST_FILES_MAX];
    char folder[PATH_BYTES]; // empty: a complete model's files, anywhere
    int manifest_fd;         // shared lock
    int notes_fd;            // exclusive lock, in mode FILL
    bool fill, is_open;

    pthread_mutex_t mutex;      // guards the following fields
    kin_chunk_notes there;      // present for this process
    kin_chunk_notes durable;    // the subset that a crash cannot lose: the content of `chunks`
    kin_chunk_notes unverified; // the subset not yet checked against their hashes since the boot or the files' last change
    uint64_t state;             // state of the files after the last write, stored in `checked`. 0: unknown
    kin_chunk_notes in_flight;  // those that the syncing thread is making durable
    uint32_t n_unsynced;        // neither durable nor in flight
    bool syncing;
    pthread_cond_t synced;
};

// Describes why a file could not be opened, from errno.
static const char *why_not(void) {
    return errno == ELOOP ? "is a symbolic link, which kin does not follow; remove it" : strerror(errno);
}

// ---- folder and manifest

static int name_in(char path[PATH_BYTES], const char *folder, const char *name, kin_err *err) {
    int n = snprintf(path, PATH_BYTES, "%s/%s", folder, name);
    return n > 0 && n < PATH_BYTES ? 0 : kin_err_set(err, "'%.40s...': the path is too long", folder);
}

static int name_folder(char folder[PATH_BYTES], const char *cache_dir, const uint8_t hash[KIN_SHA256_BYTES], kin_err *err) {
    char name[32];
    snprintf(name, sizeof name, "models/%.16s", kin_hash_to_hex(hash).text);
    return name_in(folder, cache_dir, name, err);
}

// Returns 0 if found; KIN_ABSENT if there is none, or a damaged one; KIN_FAIL if it is unreadable, or has another hash.
static int read_manifest(kin_manifest *m, const char *path, const uint8_t hash[KIN_SHA256_BYTES], kin_err *err) {
    uint8_t *bytes;
    size_t n;
    *m = (kin_manifest){0};
    int rc = kin_whole_file_read(path, KIN_MANIFEST_BYTES_MAX, &bytes, &n, err);
    if (rc != 0) return rc;
    rc = kin_manifest_parse(m, bytes, n, NULL, NULL) == 0 ? 0 : KIN_ABSENT;
    free(bytes);
    if (rc != 0 || memcmp(m->hash, hash, KIN_SHA256_BYTES) == 0) return rc;
    kin_err_set(err, "%s: belongs to another model (%.24s..., not %.24s...)", path, kin_hash_to_hex(m->hash).text,
                kin_hash_to_hex(hash).text);
    kin_manifest_fini(m);
    return KIN_FAIL;
}

int kin_store_find_manifest(kin_manifest *m, const char *cache_dir, const uint8_t hash[KIN_SHA256_BYTES], kin_err *err) {
    char folder[PATH_BYTES], path[PATH_BYTES];
    *m = (kin_manifest){0};
    if (name_folder(folder, cache_dir, hash, err) != 0 || name_in(path, folder, "manifest", err) != 0) return KIN_FAIL;
    return read_manifest(m, path, hash, err);
}

static int write_manifest(const kin_manifest *m, const char *path, kin_err *err) {
    size_t n = kin_manifest_bytes(m);
    uint8_t *bytes = malloc(n);
    if (!bytes) return kin_err_set(err, "out of memory");
    kin_manifest_write(m, bytes);
    int rc = kin_whole_file_write(path, bytes, n, err);
    free(bytes);
    return rc;
}

// Ensures that the manifest in the folder is this store's; in mode FILL it is written if missing.
static int settle_manifest(kin_store *s, kin_err *err) {
    char path[PATH_BYTES];
    kin_manifest found;
    if (name_in(path, s->folder, "manifest", err) != 0) return KIN_FAIL;
    int rc = read_manifest(&found, path, s->manifest.hash, err);
    kin_manifest_fini(&found);
    if (rc < 0) return KIN_FAIL;
    if (rc == KIN_ABSENT && !s->fill) return kin_err_set(err, "%s: the copy of the model is missing or damaged", s->folder);
    if (rc == KIN_ABSENT && write_manifest(&s->manifest, path, err) != 0) return KIN_FAIL;
    s->manifest_fd = open(path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    if (s->manifest_fd < 0) return kin_err_set(err, "%s: %s", path, why_not());
    if (flock(s->manifest_fd, LOCK_SH | LOCK_NB) != 0) return kin_err_set(err, "%s: another kin is removing it", s->folder);
    return 0;
}

// ---- files

static int name_files(kin_store *s, kin_err *err) {
    int n = s->manifest.n_files;
    for (int i = 0; i < n; i++) {
        char name[64] = "model.gguf", path[PATH_BYTES];
        if (n > 1) snprintf(name, sizeof name, "model-%05d-of-%05d.gguf", i + 1, n);
        if (name_in(path, s->folder, name, err) != 0) return KIN_FAIL;
        s->files[i].path = strdup(path);
        if (!s->files[i].path) return kin_err_set(err, "out of memory");
    }
    return 0;
}

static int pread_all(const data_file *file, uint8_t *bytes, size_t n, uint64_t offset, kin_err *err) {
    ssize_t got = kin_io_read(file->fd, bytes, n, offset);
    if (got < 0) return kin_err_set(err, "%s: %s", file->path, strerror(errno));
    return (size_t)got < n ? kin_err_set(err, "%s: was truncated by another program", file->path) : 0;
}

static kin_chunk_check check_stored(const kin_store *s, uint32_t i_chunk) {
    kin_chunk c = kin_manifest_chunk(&s->manifest, i_chunk);
    kin_chunk_check check = KIN_CHUNK_WRONG;
    uint8_t *bytes = malloc(c.bytes);
    if (!bytes) return KIN_CHUNK_UNCHECKED;
    if (pread_all(&s->files[c.i_file], bytes, c.bytes, c.offset, NULL) == 0)
        check = kin_manifest_check_chunk(&s->manifest, i_chunk, bytes, c.bytes, NULL);
    free(bytes);
    return check;
}

static int save_notes(const kin_store *s, bool to_disk, kin_err *err) {
    if (kin_chunk_notes_save(&s->durable, s->notes_fd) == 0 && (!to_disk || kin_io_sync(s->notes_fd) == 0)) return 0;
    return kin_err_set(err, "%s/chunks: %s", s->folder, strerror(errno));
}

static int open_file(kin_store *s, int i_file, kin_err *err) {
    data_file *file = &s->files[i_file];
    uint64_t size = s->manifest.files[i_file].size;
    struct stat st;
    int follow = s->folder[0] ? O_NOFOLLOW : 0; // links in the cache are not followed
    file->fd = open(file->path, (s->fill ? O_RDWR | O_CREAT : O_RDONLY) | O_CLOEXEC | follow, 0644);
    if (file->fd < 0 || fstat(file->fd, &st) != 0) return kin_err_set(err, "%s: %s", file->path, why_not());
    if (!S_ISREG(st.st_mode)) return kin_err_set(err, "%s: not a regular file", file->path);
    if ((uint64_t)st.st_size == size) return 0;
    if (!s->fill) {
        return kin_err_set(err, "%s: has %" PRIu64 " bytes, not the model's %" PRIu64, file->path, (uint64_t)st.st_size, size);
    }
    if (ftruncate(file->fd, (off_t)size) == 0) return 0;
    return kin_err_set(err, "%s: cannot reserve %" PRIu64 " bytes on disk: %s", file->path, size, strerror(errno));
}

static int open_store(kin_store *s, kin_err *err) {
    for (int i = 0; i < s->manifest.n_files; i++) {
        if (open_file(s, i, err) != 0) return KIN_FAIL;
    }
    return 0;
}

// ---- the state

static kin_store *new_store(const kin_manifest *manifest, kin_err *err) {
    kin_store *s = calloc(1, sizeof *s);
    if (!s) {
        kin_err_set(err, "out of memory");
        return NULL;
    }
    pthread_mutex_init(&s->mutex, NULL);
    pthread_cond_init(&s->synced, NULL);
    s->manifest_fd = s->notes_fd = -1;
    for (int i = 0; i < KIN_MANIFEST_FILES_MAX; i++) s->files[i].fd = -1;
    if (kin_manifest_copy(&s->manifest, manifest, err) == 0 &&
        kin_chunk_notes_init(&s->there, manifest->n_chunks, manifest->hash, err) == 0 &&
        kin_chunk_notes_init(&s->durable, manifest->n_chunks, manifest->hash, err) == 0 &&
        kin_chunk_notes_init(&s->unverified, manifest->n_chunks, manifest->hash, err) == 0 &&
        kin_chunk_notes_init(&s->in_flight, manifest->n_chunks, manifest->hash, err) == 0) {
        return s;
    }
    kin_store_close(s);
    return NULL;
}

static int open_notes(kin_store *s, kin_err *err) {
    char path[PATH_BYTES];
    if (name_in(path, s->folder, "chunks", err) != 0) return KIN_FAIL;
    s->notes_fd = open(path, (s->fill ? O_RDWR | O_CREAT : O_RDONLY) | O_NOFOLLOW | O_CLOEXEC, 0644);
    if (s->notes_fd < 0 && errno == ENOENT) return kin_err_set(err, "%s: there is no copy of the model", s->folder);
    if (s->notes_fd < 0) return kin_err_set(err, "%s: %s", path, why_not());
    if (!s->fill || flock(s->notes_fd, LOCK_EX | LOCK_NB) == 0) return 0;
    return kin_err_set(err, "%s: another kin is writing to it; set another directory with --cache DIR", s->folder);
}

// In mode FILL the file afterwards contains exactly these records, and its disk blocks are allocated.
static int read_notes(kin_store *s, kin_err *err) {
    kin_chunk_notes_load(&s->durable, s->notes_fd);
    return s->fill ? save_notes(s, false, err) : 0;
}

static void add_notes(kin_chunk_notes *to, const kin_chunk_notes *from) {
    for (size_t i = 0; i < kin_chunk_notes_n_words(to); i++) to->words[i] |= from->words[i];
}

// ---- chunks checked since the boot

static uint64_t state_of_files(const kin_store *s) {
    uint64_t stamp = 1;
    for (int i = 0; i < s->manifest.n_files; i++) stamp = kin_file_stamp(s->files[i].fd, stamp);
    return kin_checks_state(stamp);
}

static void load_checks(kin_store *s) {
    char path[PATH_BYTES];
    uint32_t n = s->manifest.n_chunks;
    uint8_t *checked = calloc(n / 8 + 1, 1);
    s->state = state_of_files(s);
    if (checked && name_in(path, s->folder, "checked", NULL) == 0) kin_checks_load(checked, n, path, s->state);
    for (uint32_t i = 0; i < n; i++) {
        bool known = checked && kin_checks_has(checked, i), is_durable = kin_chunk_notes_get(&s->durable, i);
        kin_chunk_notes_set(known ? &s->there : &s->unverified, i, is_durable);
    }
    free(checked);
}

// Saves the state after this process's last write: if another process writes later, all chunks are in doubt at the next start.
static void save_checks(kin_store *s) {
    char path[PATH_BYTES];
    kin_err err;
    uint32_t n = s->manifest.n_chunks;
    uint8_t *checked = calloc(n / 8 + 1, 1);
    bool any = false;
    for (uint32_t i = 0; i < n && checked; i++) {
        if (!kin_chunk_notes_get(&s->there, i) || !kin_chunk_notes_get(&s->durable, i)) continue;
        kin_checks_add(checked, i);
        any = true;
    }
    if (any && name_in(path, s->folder, "checked", &err) == 0 && kin_checks_save(checked, n, path, s->state, &err) != 0)
        kin_log(KIN_LOG_DEBUG, "%s", err.text); // the next start reads all chunks again
    free(checked);
}

// ---- opening and closing a store

static bool is_link(const char *path) {
    struct stat st;
    return lstat(path, &st) == 0 && S_ISLNK(st.st_mode);
}

int kin_store_open(kin_store **out, const char *cache_dir, const kin_manifest *manifest, kin_store_mode mode, kin_err *err) {
    *out = NULL;
    kin_store *s = new_store(manifest, err);
    if (!s) return KIN_FAIL;
    s->fill = mode == KIN_STORE_FILL;
    if (name_folder(s->folder, cache_dir, manifest->hash, err) != 0 || name_files(s, err) != 0) goto fail;
    if (s->fill && kin_folder_make(s->folder, err) != 0) goto fail;
    if (is_link(s->folder)) {
        kin_err_set(err, "%s: is a symbolic link, which kin does not follow; remove it", s->folder);
        goto fail;
    }
    // First the lock, then the check whose folder this is, then its content.
    if (open_notes(s, err) != 0 || settle_manifest(s, err) != 0 || read_notes(s, err) != 0 || open_store(s, err) != 0) goto fail;
    load_checks(s);
    s->is_open = true;
    *out = s;
    return 0;

fail:
    kin_store_close(s);
    return KIN_FAIL;
}

int kin_store_open_files(kin_store **out, const kin_manifest *manifest, const char *const *paths, kin_err *err) {
    *out = NULL;
    kin_store *s = new_store(manifest, err);
    if (!s) return KIN_FAIL;
    for (int i = 0; i < manifest->n_files; i++) {
        s->files[i].path = strdup(paths[i]);
        if (!s->files[i].path) {
            kin_err_set(err, "out of memory");
            goto fail;
        }
    }
    if (open_store(s, err) != 0) goto fail;
    for (uint32_t i = 0; i < manifest->n_chunks; i++) kin_chunk_notes_set(&s->there, i, true);
    *out = s;
    return 0;

fail:
    kin_store_close(s);
    return KIN_FAIL;
}

void kin_store_close(kin_store *s) {
    kin_err err;
    if (!s) return;
    if (s->fill && s->n_unsynced > 0 && kin_store_sync(s, &err) != 0) kin_log(KIN_LOG_WARN, "%s", err.text);
    if (s->fill && s->is_open) save_checks(s);
    for (int i = 0; i < KIN_MANIFEST_FILES_MAX; i++) {
        if (s->files[i].fd >= 0) close(s->files[i].fd);
        free(s->files[i].path);
    }
    if (s->notes_fd >= 0) close(s->notes_fd);
    if (s->manifest_fd >= 0) close(s->manifest_fd);
    kin_chunk_notes_fini(&s->in_flight);
    kin_chunk_notes_fini(&s->unverified);
    kin_chunk_notes_fini(&s->durable);
    kin_chunk_notes_fini(&s->there);
    kin_manifest_fini(&s->manifest);
    pthread_cond_destroy(&s->synced);
    pthread_mutex_destroy(&s->mutex);
    free(s);
}

// ---- syncing: bytes first, then their records

static int sync_files(const kin_store *s, const bool dirty[KIN_MANIFEST_FILES_MAX], kin_err *err) {
    for (int i = 0; i < s->manifest.n_files; i++) {
        if (dirty[i] && kin_io_sync(s->files[i].fd) != 0) return kin_err_set(err, "%s: %s", s->files[i].path, strerror(errno));
    }
    return 0;
}

// Puts everything present but not durable in flight.
static void gather_in_flight(kin_store *s, bool dirty[KIN_MANIFEST_FILES_MAX]) {
    for (size_t i = 0; i < kin_chunk_notes_n_words(&s->there); i++)
        s->in_flight.words[i] = s->there.words[i] & ~s->durable.words[i];
    for (int i = 0; i < s->manifest.n_files; i++) {
        dirty[i] = kin_chunk_notes_any(&s->in_flight, s->manifest.files[i].chunk_begin, s->manifest.files[i].chunk_end);
    }
    s->n_unsynced = 0;
}

// After a failed sync the kernel no longer knows which pages it could not write, so the state on the disk is unknown.
static void forget_in_flight(kin_store *s) {
    for (size_t i = 0; i < kin_chunk_notes_n_words(&s->there); i++) s->there.words[i] &= ~s->in_flight.words[i];
}

// Call with the mutex held; releases it while the disk works.
static int sync_locked(kin_store *s, kin_err *err) {
    bool dirty[KIN_MANIFEST_FILES_MAX];
    while (s->syncing) pthread_cond_wait(&s->synced, &s->mutex);
    if (s->n_unsynced == 0) return 0;
    gather_in_flight(s, dirty);
    s->syncing = true;
    pthread_mutex_unlock(&s->mutex);
    int rc = sync_files(s, dirty, err);
    pthread_mutex_lock(&s->mutex);
    s->state = rc == 0 ? state_of_files(s) : 0;
    s->syncing = false;
    pthread_cond_broadcast(&s->synced);
    if (rc != 0) {
        forget_in_flight(s);
        return KIN_FAIL;
    }
    add_notes(&s->durable, &s->in_flight);
    return save_notes(s, false, err);
}

int kin_store_sync(kin_store *s, kin_err *err) {
    if (!s->fill) return 0;
    pthread_mutex_lock(&s->mutex);
    int rc = sync_locked(s, err);
    pthread_mutex_unlock(&s->mutex);
    if (rc == 0 && kin_io_sync(s->notes_fd) != 0) rc = kin_err_set(err, "%s/chunks: %s", s->folder, strerror(errno));
    return rc;
}

// ---- chunks

bool kin_store_has(kin_store *s, uint32_t i_chunk) {
    pthread_mutex_lock(&s->mutex);
    bool has = i_chunk < s->manifest.n_chunks && kin_chunk_notes_get(&s->there, i_chunk);
    pthread_mutex_unlock(&s->mutex);
    return has;
}

bool kin_store_has_all(kin_store *s, uint32_t begin, uint32_t end) {
    pthread_mutex_lock(&s->mutex);
    bool has = end <= s->manifest.n_chunks;
    for (uint32_t i = begin; i < end && has; i++) has = kin_chunk_notes_get(&s->there, i);
    pthread_mutex_unlock(&s->mutex);
    return has;
}

static int write_chunk(const kin_store *s, kin_chunk c, const uint8_t *bytes, kin_err *err) {
    const data_file *file = &s->files[c.i_file];
    return kin_io_write(file->fd, bytes, c.bytes, c.offset) == 0 ? 0 : kin_err_set(err, "%s: %s", file->path, strerror(errno));
}

static int note_written(kin_store *s, uint32_t i_chunk, kin_err *err) {
    int rc = 0;
    pthread_mutex_lock(&s->mutex);
    if (!kin_chunk_notes_get(&s->there, i_chunk)) {
        kin_chunk_notes_set(&s->there, i_chunk, true);
        kin_chunk_notes_set(&s->unverified, i_chunk, false);
        s->n_unsynced++;
    }
    if (s->n_unsynced >= KIN_STORE_SYNC_CHUNKS && !s->syncing) rc = sync_locked(s, err);
    pthread_mutex_unlock(&s->mutex);
    return rc;
}

kin_store_result kin_store_put(kin_store *s, uint32_t i_chunk, const void *bytes, size_t n, kin_err *err) {
    kin_chunk_check check = kin_manifest_check_chunk(&s->manifest, i_chunk, bytes, n, err);
    if (check != KIN_CHUNK_RIGHT) return check == KIN_CHUNK_WRONG ? KIN_STORE_WRONG : KIN_STORE_FAILED;
    if (kin_store_has(s, i_chunk)) return KIN_STORE_OK;
    if (!s->fill) {
        kin_err_set(err, "%s: is open read-only", s->files[0].path);
        return KIN_STORE_FAILED;
    }
    // Two threads may write the same chunk at the same time, with the same bytes.
    if (write_chunk(s, kin_manifest_chunk(&s->manifest, i_chunk), bytes, err) != 0) return KIN_STORE_FAILED;
    return note_written(s, i_chunk, err) == 0 ? KIN_STORE_OK : KIN_STORE_FAILED;
}

int kin_store_read(kin_store *s, uint32_t i_chunk, uint32_t offset, void *bytes, size_t n, kin_err *err) {
    if (!kin_store_has(s, i_chunk)) return kin_err_set(err, "chunk %" PRIu32 " is missing", i_chunk);
    kin_chunk c = kin_manifest_chunk(&s->manifest, i_chunk);
    if (offset > c.bytes || n > c.bytes - offset) {
        return kin_err_set(err, "chunk %" PRIu32 " has %" PRIu32 " bytes, not %zu at %" PRIu32, i_chunk, c.bytes, n, offset);
    }
    return pread_all(&s->files[c.i_file], bytes, n, c.offset + offset, err);
}

// Removes the record from the disk before the chunk is written again.
static void forget_chunk(kin_store *s, uint32_t i_chunk) {
    kin_err err;
    pthread_mutex_lock(&s->mutex);
    kin_chunk_notes_set(&s->there, i_chunk, false);
    kin_chunk_notes_set(&s->in_flight, i_chunk, false);
    kin_chunk_notes_set(&s->durable, i_chunk, false);
    kin_chunk_notes_set(&s->unverified, i_chunk, false);
    if (s->fill && save_notes(s, true, &err) != 0) kin_log(KIN_LOG_WARN, "%s", err.text);
    pthread_mutex_unlock(&s->mutex);
}

// ---- chunks in doubt

typedef struct verifying {
    kin_store *store;
    const atomic_bool *stop;
    bool drop; // drop the pages that reading brings into the page cache
    atomic_uint_least32_t next, n_lost, n_unchecked;
} verifying;

static bool is_unverified(kin_store *s, uint32_t i_chunk) {
    pthread_mutex_lock(&s->mutex);
    bool is = kin_chunk_notes_get(&s->unverified, i_chunk);
    pthread_mutex_unlock(&s->mutex);
    return is;
}

static void verify_chunk(verifying *v, uint32_t i_chunk) {
    kin_store *s = v->store;
    kin_chunk_check check = check_stored(s, i_chunk);
    if (check == KIN_CHUNK_WRONG) {
        forget_chunk(s, i_chunk);
        atomic_fetch_add(&v->n_lost, 1);
    }
    if (check == KIN_CHUNK_UNCHECKED) atomic_fetch_add(&v->n_unchecked, 1);
    if (check != KIN_CHUNK_RIGHT) return;
    pthread_mutex_lock(&s->mutex);
    kin_chunk_notes_set(&s->there, i_chunk, true);
    kin_chunk_notes_set(&s->unverified, i_chunk, false);
    pthread_mutex_unlock(&s->mutex);
#ifdef POSIX_FADV_DONTNEED
    kin_chunk c = kin_manifest_chunk(&s->manifest, i_chunk);
    if (v->drop) posix_fadvise(s->files[c.i_file].fd, (off_t)c.offset, (off_t)c.bytes, POSIX_FADV_DONTNEED);
#endif
}

static void verify_some(void *user, size_t i_thread) {
    verifying *v = user;
    uint32_t n = v->store->manifest.n_chunks, i;
    (void)i_thread;
    while ((!v->stop || !atomic_load(v->stop)) && (i = atomic_fetch_add(&v->next, 1)) < n) {
        if (is_unverified(v->store, i)) verify_chunk(v, i);
    }
}

int kin_store_verify(kin_store *s, int n_threads, const atomic_bool *stop, kin_err *err) {
    verifying v = {.store = s, .stop = stop, .drop = kin_store_size_on_disk(s) > kin_memory_read().available / 2};
    kin_parallel(n_threads, n_threads > 1 ? (size_t)n_threads : 1, verify_some, &v);
    uint32_t n_lost = atomic_load(&v.n_lost), n_unchecked = atomic_load(&v.n_unchecked);
    const char *path = s->files[0].path;
    if (n_lost > 0) {
        kin_log(KIN_LOG_WARN, "%s: was damaged, truncated or replaced: %" PRIu32 " of its chunks must be fetched again", path,
                n_lost);
    }
    if (atomic_load(&v.next) < s->manifest.n_chunks) return kin_err_set(err, "%s: reading was interrupted", path);
    if (n_unchecked > 0) return kin_err_set(err, "%s: out of memory: %" PRIu32 " chunks were not checked", path, n_unchecked);
    return 0;
}

// ---- inspection

const kin_manifest *kin_store_manifest(const kin_store *s) {
    return &s->manifest;
}

const char *kin_store_path(const kin_store *s, int i_file) {
    kin_assert(i_file >= 0 && i_file < s->manifest.n_files);
    return s->files[i_file].path;
}

int kin_store_chunks_of_range(const kin_store *s, int i_file, uint64_t offset, uint64_t bytes, uint32_t *begin, uint32_t *end,
                              kin_err *err) {
    return kin_manifest_chunks_of_range(&s->manifest, i_file, offset, bytes, begin, end, err);
}

uint32_t kin_store_bitmap(kin_store *s, uint8_t *bits) {
    uint32_t n = 0;
    memset(bits, 0, (s->manifest.n_chunks + 7) / 8);
    pthread_mutex_lock(&s->mutex);
    for (uint32_t i = 0; i < s->manifest.n_chunks; i++) {
        if (!kin_chunk_notes_get(&s->there, i)) continue;
        bits[i / 8] |= (uint8_t)(1 << i % 8);
        n++;
    }
    pthread_mutex_unlock(&s->mutex);
    return n;
}

static bool is_same_file(const char *path, int fd) {
    struct stat there, held;
    return stat(path, &there) == 0 && fstat(fd, &held) == 0 && there.st_dev == held.st_dev && there.st_ino == held.st_ino;
}

static bool is_named_in_place(const kin_store *s, const char *name, int fd) {
    char path[PATH_BYTES];
    return fd < 0 || (name_in(path, s->folder, name, NULL) == 0 && is_same_file(path, fd));
}

bool kin_store_is_in_place(const kin_store *s) {
    for (int i = 0; i < s->manifest.n_files; i++) {
        struct stat st;
        if (!is_same_file(s->files[i].path, s->files[i].fd)) return false;
        if (fstat(s->files[i].fd, &st) != 0 || (uint64_t)st.st_size < s->manifest.files[i].size) return false;
    }
    return is_named_in_place(s, "chunks", s->notes_fd) && is_named_in_place(s, "manifest", s->manifest_fd);
}

uint64_t kin_store_size_on_disk(const kin_store *s) {
    uint64_t sum = 0;
    struct stat st;
    for (int i = 0; i < s->manifest.n_files; i++) {
        if (fstat(s->files[i].fd, &st) == 0) sum += (uint64_t)st.st_blocks * 512;
    }
    return sum;
}
