#include "engine/kv/store.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "sys/cond.h"
#include "sys/sha256.h"

enum {
    MAX_QUEUED = 1024,           // pages waiting to be written: a prompt's step of 512 tokens in 128 layers, ...
    MAX_QUEUED_BYTES = 64 << 20, // ... but at most this many bytes, and at least one page
    WAIT_NS = 100000000,
    END_MS = 2000, // limit for writing the queue, at close and before pages are removed
};

typedef struct queued {
    kin_page_key key;
    uint8_t *page;
    bool is_removed; // while it was queued
} queued;

struct kin_kv_store {
    char dir[1000];
    const kin_kv_peers *peers; // NULL: none
    uint8_t folder[sizeof((kin_page_name *)0)->folder];
    kin_kv_page_seal seal;
    size_t n_page;
    uint8_t *page; // for reading
    bool has_logged_damage;
    kin_kv_room room; // used by the thread only
    bool has_thread;
    pthread_t thread;
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    // Guarded by the mutex.
    queued queue[MAX_QUEUED]; // a ring buffer; the first entry is being written
    int first, n;
    int most; // maximum queue length
    bool closes, is_behind, has_failed;
    kin_kv_store_stats stats;
};

static kin_page_name name_of(const kin_kv_store *s, const kin_page_key *key) {
    kin_page_name name = {.key = *key};
    memcpy(name.folder, s->folder, sizeof name.folder);
    return name;
}

static void remove_file(const kin_kv_store *s, const kin_page_key *key) {
    kin_page_name name = name_of(s, key);
    kin_kv_file_remove(s->dir, &name);
}

// Returns a page in the queue that is to be written; NULL: none. Call with the mutex held.
static queued *find_queued(kin_kv_store *s, const kin_page_key *key) {
    for (int i = 0; i < s->n; i++) {
        queued *q = &s->queue[(s->first + i) % MAX_QUEUED];
        if (!q->is_removed && memcmp(&q->key, key, sizeof *key) == 0) return q;
    }
    return NULL;
}

// ---- writing, on the store's thread

static int write_page(kin_kv_store *s, const queued *q, kin_err *err) {
    kin_page_name name = name_of(s, &q->key);
    size_t n = s->n_page + KIN_KV_PAGE_FRAME;
    if (kin_kv_page_seal_up(&s->seal, &q->key, q->page, s->n_page, err) != 0) return KIN_FAIL;
    if (kin_kv_file_write(s->dir, &s->room, &name, q->page, n, err) != 0) return KIN_FAIL;
    if (s->peers) s->peers->written(s->peers->user, &name, n);
    return 0;
}

// Logs the first failure. Later pages are still tried, since the disk may have room again.
static void log_failure(kin_kv_store *s, const kin_err *why) {
    if (!s->has_failed) kin_log(KIN_LOG_WARN, "a page of the KV cache was not stored, and others may not be: %s", why->text);
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
        const bool is_written = !q.is_removed && write_page(s, &q, &err) == 0;
        free(q.page);
        pthread_mutex_lock(&s->mutex);
        if (is_written)
            s->stats.n_written++;
        else if (!q.is_removed)
            log_failure(s, &err);
        if (is_written && s->queue[s->first].is_removed) remove_file(s, &q.key); // meanwhile
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

uint8_t *kin_kv_store_begin_within(kin_kv_store *s, int timeout_ms) {
    pthread_mutex_lock(&s->mutex);
    for (kin_time begun = kin_clock_now(); s->n == s->most && kin_clock_ms(begun, kin_clock_now()) < timeout_ms;)
        kin_cond_wait_for(&s->changed, &s->mutex, WAIT_NS);
    const bool has_room = s->n < s->most;
    pthread_mutex_unlock(&s->mutex);
    return has_room ? kin_kv_store_begin(s) : NULL;
}

void kin_kv_store_keep(kin_kv_store *s, const kin_page_key *key, uint8_t *content) {
    pthread_mutex_lock(&s->mutex);
    kin_assert(s->n < MAX_QUEUED);
    s->queue[(s->first + s->n++) % MAX_QUEUED] = (queued){*key, content - KIN_KV_PAGE_HEAD, false};
    pthread_cond_broadcast(&s->changed);
    pthread_mutex_unlock(&s->mutex);
}

void kin_kv_store_give_up(kin_kv_store *s, uint8_t *content) {
    pthread_mutex_lock(&s->mutex);
    s->stats.n_left_out++;
    pthread_mutex_unlock(&s->mutex);
    free(content - KIN_KV_PAGE_HEAD);
}

bool kin_kv_store_has(const kin_kv_store *s, const kin_page_key *key) {
    kin_page_name name = name_of(s, key);
    return kin_kv_file_has(s->dir, &name);
}

bool kin_kv_store_is_queued(kin_kv_store *s, const kin_page_key *key) {
    pthread_mutex_lock(&s->mutex);
    const bool is = find_queued(s, key) != NULL;
    pthread_mutex_unlock(&s->mutex);
    return is;
}

// Waits until the queue is written, or END_MS have passed. Call with the mutex held.
static void wait_for_writes(kin_kv_store *s) {
    for (kin_time begun = kin_clock_now(); s->n > 0 && kin_clock_ms(begun, kin_clock_now()) < END_MS;)
        kin_cond_wait_for(&s->changed, &s->mutex, WAIT_NS);
}

void kin_kv_store_settle(kin_kv_store *s) {
    pthread_mutex_lock(&s->mutex);
    wait_for_writes(s);
    pthread_mutex_unlock(&s->mutex);
}

void kin_kv_store_remove(kin_kv_store *s, const kin_page_key *key) {
    pthread_mutex_lock(&s->mutex);
    for (queued *q; (q = find_queued(s, key));) q->is_removed = true;
    pthread_mutex_unlock(&s->mutex);
    remove_file(s, key);
}

// ---- fetching from peers

void kin_kv_store_fetch(kin_kv_store *s, const kin_page_key *keys, int n, int timeout_ms) {
    kin_page_name *names = s->peers && n > 0 ? malloc((size_t)n * sizeof *names) : NULL;
    for (int i = 0; names && i < n; i++) names[i] = name_of(s, &keys[i]);
    if (names) s->peers->fetch(s->peers->user, names, n, s->n_page + KIN_KV_PAGE_FRAME, timeout_ms);
    free(names);
}

// ---- reading

const uint8_t *kin_kv_store_read(kin_kv_store *s, const kin_page_key *key) {
    kin_page_name name = name_of(s, key);
    size_t n, most = s->n_page + KIN_KV_PAGE_FRAME + 1; // one more byte, to detect files that are too long
    kin_err err;
    if (!s->page) s->page = malloc(most);
    if (!s->page) return NULL;
    int rc = kin_kv_file_read(s->dir, &name, s->page, most, &n, &err);
    if (rc == KIN_ABSENT) return NULL;
    if (rc == 0) rc = kin_kv_page_unseal(&s->seal, key, s->page, n, s->n_page, &err);
    pthread_mutex_lock(&s->mutex);
    if (rc == 0)
        s->stats.n_read++;
    else
        s->stats.n_damaged++;
    pthread_mutex_unlock(&s->mutex);
    if (rc == 0) return s->page + KIN_KV_PAGE_HEAD;
    if (!s->has_logged_damage)
        kin_log(KIN_LOG_WARN, "%s: removed a damaged KV page, which is recomputed (%s)", kin_kv_file_path(s->dir, &name).text,
                err.text);
    s->has_logged_damage = true; // log only once: there may be many
    kin_kv_file_remove(s->dir, &name);
    return NULL;
}

kin_kv_store_stats kin_kv_store_get_stats(kin_kv_store *s) {
    pthread_mutex_lock(&s->mutex);
    kin_kv_store_stats stats = s->stats;
    pthread_mutex_unlock(&s->mutex);
    return stats;
}

// ---- open and close

static int name_folder(kin_kv_store *s, const kin_kv_disk *disk, kin_err *err) {
    uint8_t hash[KIN_SHA256_BYTES];
    if (kin_sha256(&s->seal, sizeof s->seal, hash, err) != 0) return KIN_FAIL;
    memcpy(s->folder, hash, sizeof s->folder);
    int n = snprintf(s->dir, sizeof s->dir, "%s", disk->dir);
    return n >= 0 && n < (int)sizeof s->dir ? 0 : kin_err_set(err, "%s: the name is too long", disk->dir);
}

int kin_kv_store_open(kin_kv_store **out, const kin_kv_disk *disk, const uint8_t variant[KIN_KV_VARIANT_BYTES], size_t n_page,
                      kin_err *err) {
    *out = NULL;
    kin_assert(disk->dir);
    if (n_page > KIN_KV_PAGE_MAX) return kin_err_set(err, "pages of %zu MiB are too large to be stored", n_page >> 20);
    kin_kv_store *s = calloc(1, sizeof *s);
    if (!s) return kin_err_set(err, "out of memory");
    s->n_page = n_page;
    s->most = n_page * MAX_QUEUED < MAX_QUEUED_BYTES ? MAX_QUEUED
              : n_page < MAX_QUEUED_BYTES            ? (int)(MAX_QUEUED_BYTES / n_page)
                                                     : 1;
    s->room.cap = disk->cap;
    s->peers = disk->peers;
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
    while (s->n > 1) free(s->queue[(s->first + --s->n) % MAX_QUEUED].page); // the first entry is being written
    pthread_mutex_unlock(&s->mutex);
    if (s->has_thread) pthread_join(s->thread, NULL);
    pthread_cond_destroy(&s->changed);
    pthread_mutex_destroy(&s->mutex);
    free(s->page);
    free(s);
}
