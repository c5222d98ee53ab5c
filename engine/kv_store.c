#include "engine/kv_store.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/hex.h"
#include "base/log.h"
#include "engine/kv_room.h"
#include "sys/cond.h"
#include "sys/io.h"
#include "sys/sha256.h"
#include "sys/whole_file.h"

enum {
    MAX_QUEUED = 8,              // pages in memory that are to be written: of a prompt's step of 512 tokens, ...
    MAX_QUEUED_BYTES = 32 << 20, // ... but no more bytes, if that is a page
    WAIT_NS = 100000000,
    END_MS = 2000, // for writing what is queued, at close and before a page is removed
    NAME_DIGITS = 32,
    FOLDER_DIGITS = 16,
};

typedef struct queued {
    kin_page_key key;
    uint8_t *page;
} queued;

struct kin_kv_store {
    char dir[1000], folder[1024];
    kin_kv_page_seal seal;
    size_t n_page;
    uint8_t *page; // for reading
    bool has_told_damage;
    kin_kv_room room; // the thread's
    bool has_thread;
    pthread_t thread;
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    // Under the mutex.
    queued queue[MAX_QUEUED]; // cyclic; the first one is being written
    int first, n;
    int most; // queued
    bool closes, is_behind, has_failed;
    kin_kv_store_stats stats;
};

typedef struct page_path {
    char text[1024 + NAME_DIGITS + 32];
} page_path;

static page_path path_of(const kin_kv_store *s, const kin_page_key *key, const char *suffix) {
    page_path path;
    char name[NAME_DIGITS + 1];
    *kin_hex_put(name, key->bytes, sizeof key->bytes) = '\0';
    snprintf(path.text, sizeof path.text, "%s/%s%s", s->folder, name, suffix);
    return path;
}

// ---- writing, in the store's thread

// Under a name of this process's own first. The data need not reach the disk before the name does: a torn page does not open.
static int write_page(kin_kv_store *s, const queued *q, kin_err *err) {
    char suffix[32];
    snprintf(suffix, sizeof suffix, ".%ld", (long)getpid());
    page_path path = path_of(s, &q->key, ""), passing = path_of(s, &q->key, suffix);
    size_t n = s->n_page + KIN_KV_PAGE_FRAME;
    if (kin_kv_page_seal_up(&s->seal, &q->key, q->page, s->n_page, err) != 0) return KIN_FAIL;
    if (kin_folder_make(s->folder, err) != 0 || kin_kv_room_make(&s->room, s->dir, n, err) != 0) return KIN_FAIL;
    int fd = open(passing.text, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600);
    bool ok = fd >= 0 && kin_io_write(fd, q->page, n, 0) == 0;
    if (!ok) kin_err_set(err, "%s: %s", passing.text, strerror(errno));
    if (fd >= 0 && close(fd) != 0 && ok) ok = kin_err_set(err, "%s: %s", passing.text, strerror(errno)) == 0;
    if (ok && rename(passing.text, path.text) != 0) ok = kin_err_set(err, "%s: %s", path.text, strerror(errno)) == 0;
    if (!ok && fd >= 0) unlink(passing.text);
    return ok ? 0 : KIN_FAIL;
}

// The first failure is told. Later pages are tried: room may be there again.
static void tell_failure(kin_kv_store *s, const kin_err *why) {
    if (!s->has_failed) kin_log(KIN_LOG_WARN, "texts are not kept on the disk for later: %s", why->text);
    s->has_failed = true;
    s->stats.n_left_out++;
}

static void *write_pages(void *arg) {
    kin_kv_store *s = arg;
    pthread_mutex_lock(&s->mutex);
    for (;;) {
        while (s->n == 0 && !s->closes) pthread_cond_wait(&s->changed, &s->mutex);
        if (s->n == 0) break;
        queued q = s->queue[s->first];
        pthread_mutex_unlock(&s->mutex);
        kin_err err;
        int rc = write_page(s, &q, &err);
        free(q.page);
        pthread_mutex_lock(&s->mutex);
        if (rc == 0)
            s->stats.n_written++;
        else
            tell_failure(s, &err);
        s->first = (s->first + 1) % MAX_QUEUED;
        if (--s->n == 0) s->is_behind = false;
        pthread_cond_broadcast(&s->changed);
    }
    pthread_mutex_unlock(&s->mutex);
    return NULL;
}

// ---- keeping

uint8_t *kin_kv_store_begin(kin_kv_store *s) {
    pthread_mutex_lock(&s->mutex);
    if (s->n == s->most && !s->is_behind) kin_cond_wait_for(&s->changed, &s->mutex, WAIT_NS);
    bool has_room = s->n < s->most;
    if (!has_room) s->is_behind = true;
    if (!s->has_thread) s->has_thread = pthread_create(&s->thread, NULL, write_pages, s) == 0;
    uint8_t *page = has_room && s->has_thread ? malloc(s->n_page + KIN_KV_PAGE_FRAME) : NULL;
    if (!page) s->stats.n_left_out++;
    pthread_mutex_unlock(&s->mutex);
    return page ? page + KIN_KV_PAGE_HEAD : NULL;
}

void kin_kv_store_keep(kin_kv_store *s, const kin_page_key *key, uint8_t *content) {
    pthread_mutex_lock(&s->mutex);
    kin_assert(s->n < MAX_QUEUED);
    s->queue[(s->first + s->n++) % MAX_QUEUED] = (queued){*key, content - KIN_KV_PAGE_HEAD};
    pthread_cond_broadcast(&s->changed);
    pthread_mutex_unlock(&s->mutex);
}

bool kin_kv_store_has(const kin_kv_store *s, const kin_page_key *key) {
    return access(path_of(s, key, "").text, F_OK) == 0;
}

// Until what is queued is written, or the time is over. The mutex is held.
static void wait_for_writes(kin_kv_store *s) {
    for (kin_time begun = kin_clock_now(); s->n > 0 && kin_clock_ms(begun, kin_clock_now()) < END_MS;)
        kin_cond_wait_for(&s->changed, &s->mutex, WAIT_NS);
}

void kin_kv_store_remove(kin_kv_store *s, const kin_page_key *key) {
    pthread_mutex_lock(&s->mutex);
    wait_for_writes(s);
    pthread_mutex_unlock(&s->mutex);
    unlink(path_of(s, key, "").text);
}

// ---- reading

// As much as a page has, and a byte more where there is more. KIN_ABSENT: there is none.
static int read_file(const kin_kv_store *s, const char *path, size_t *n, kin_err *err) {
    int fd = open(path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0 && (errno == ENOENT || errno == ENOTDIR)) return KIN_ABSENT;
    ssize_t got = fd >= 0 ? kin_io_read(fd, s->page, s->n_page + KIN_KV_PAGE_FRAME + 1, 0) : -1;
    if (got < 0) kin_err_set(err, "%s", strerror(errno));
    if (fd >= 0) {
        futimens(fd, NULL); // it was used
        close(fd);
    }
    *n = got < 0 ? 0 : (size_t)got;
    return got < 0 ? KIN_FAIL : 0;
}

const uint8_t *kin_kv_store_read(kin_kv_store *s, const kin_page_key *key) {
    page_path path = path_of(s, key, "");
    size_t n;
    kin_err err;
    if (!s->page) s->page = malloc(s->n_page + KIN_KV_PAGE_FRAME + 1);
    if (!s->page) return NULL;
    int rc = read_file(s, path.text, &n, &err);
    if (rc == KIN_ABSENT) return NULL;
    if (rc == 0) rc = kin_kv_page_unseal(&s->seal, key, s->page, n, s->n_page, &err);
    pthread_mutex_lock(&s->mutex);
    if (rc == 0)
        s->stats.n_read++;
    else
        s->stats.n_damaged++;
    pthread_mutex_unlock(&s->mutex);
    if (rc == 0) return s->page + KIN_KV_PAGE_HEAD;
    if (!s->has_told_damage)
        kin_log(KIN_LOG_WARN, "%s: a damaged page of an earlier text is removed, and computed again (%s)", path.text, err.text);
    s->has_told_damage = true; // there may be many
    unlink(path.text);
    return NULL;
}

kin_kv_store_stats kin_kv_store_get_stats(kin_kv_store *s) {
    pthread_mutex_lock(&s->mutex);
    kin_kv_store_stats stats = s->stats;
    pthread_mutex_unlock(&s->mutex);
    return stats;
}

// ---- life

static int name_folder(kin_kv_store *s, const kin_kv_disk *disk, kin_err *err) {
    uint8_t hash[KIN_SHA256_BYTES];
    char name[FOLDER_DIGITS + 1];
    if (kin_sha256(&s->seal, sizeof s->seal, hash, err) != 0) return KIN_FAIL;
    *kin_hex_put(name, hash, FOLDER_DIGITS / 2) = '\0';
    int n = snprintf(s->dir, sizeof s->dir, "%s/kv", disk->dir);
    if (n < 0 || n >= (int)sizeof s->dir) return kin_err_set(err, "%s: the name is too long", disk->dir);
    snprintf(s->folder, sizeof s->folder, "%s/%s", s->dir, name);
    return 0;
}

int kin_kv_store_open(kin_kv_store **out, const kin_kv_disk *disk, const uint8_t variant[KIN_KV_VARIANT_BYTES], size_t n_page,
                      kin_err *err) {
    *out = NULL;
    kin_assert(disk->dir);
    if (n_page > KIN_KV_PAGE_MAX) return kin_err_set(err, "pages of %zu MiB are too large to be kept", n_page >> 20);
    kin_kv_store *s = calloc(1, sizeof *s);
    if (!s) return kin_err_set(err, "out of memory");
    s->n_page = n_page;
    s->most = n_page * MAX_QUEUED < MAX_QUEUED_BYTES ? MAX_QUEUED
              : n_page < MAX_QUEUED_BYTES            ? (int)(MAX_QUEUED_BYTES / n_page)
                                                     : 1;
    s->room.cap = disk->cap;
    memcpy(s->seal.secret, disk->secret, sizeof s->seal.secret);
    memcpy(s->seal.variant, variant, sizeof s->seal.variant);
    if (name_folder(s, disk, err) != 0) {
        free(s);
        return KIN_FAIL;
    }
    pthread_mutex_init(&s->mutex, NULL);
    kin_cond_init(&s->changed);
    *out = s;
    return 0;
}

void kin_kv_store_close(kin_kv_store *s) {
    if (!s) return;
    pthread_mutex_lock(&s->mutex);
    s->closes = true;
    pthread_cond_broadcast(&s->changed);
    wait_for_writes(s);
    while (s->n > 1) free(s->queue[(s->first + --s->n) % MAX_QUEUED].page); // the first one is being written
    pthread_mutex_unlock(&s->mutex);
    if (s->has_thread) pthread_join(s->thread, NULL);
    pthread_cond_destroy(&s->changed);
    pthread_mutex_destroy(&s->mutex);
    free(s->page);
    free(s);
}
