#include "fetch/page_fetch.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "fetch/download.h"
#include "pure/proto/id.h"
#include "pure/proto/swarm.h"
#include "sys/completion.h"

enum {
    PEERS_MAX = KIN_SWARM_SOURCES,
    COPIES_MAX = 4096, // most queued copies
    JOBS_MAX = KIN_DOWNLOAD_REQUESTS + 1,
    TICK_MS = 2,        // pauses between slices end at a tick: after a slice of 64 KiB at 1 Gbit/s the pause is 1.6 ms
    PATIENCE_MS = 1000, // for wanted pages, since the last data
    SETTLE_MS = 2000,   // for copies, before shutdown
    COPY_MS = 30000,    // for a copy, since the last data: DATA of 256 KiB at 70 kbit/s
    DIAL_MS = 600,      // time limit to open a link
    RETRY_MS = 3000,    // before an unreachable peer is tried again
    NOBODY = -1,
    LATE = -2,
};

typedef struct peer {
    kin_page_fetch *fetch;
    kin_proto_id id;
    kin_proto_endpoint endpoint;
    kin_download *link; // NULL: none
    bool is_known;
    kin_time retry_at;
} peer;

// A page requested from a peer; its index is the chunk number in messages.
typedef struct job {
    enum { FREE, ASKED, WRITING } state;
    kin_page_name name;
    int peer;
    int i_wanted; // NOBODY: a copy; LATE: it was wanted, but that request has ended
} job;

typedef struct copy {
    kin_page_name name;
    uint32_t bytes;
    int peer;
} copy;

typedef enum want_state { MISSING, IN_FLIGHT, LACKED, HERE } want_state; // LACKED: by the peer whose turn it is

typedef struct written {
    uv_work_t work;
    kin_page_fetch *fetch;
    int i_job;
    kin_page_name name;
    uint8_t *bytes; // [n]
    size_t n;
    int rc;
    kin_err err;
} written;

struct kin_page_fetch {
    kin_endpoint *endpoint;
    bool (*is_busy)(void *user);
    void *user;
    uv_loop_t *loop;
    char *dir;
    uint32_t copy_timeout_ms;
    uv_timer_t timer;
    bool is_closed, has_logged_failure;
    int n_held; // references: the owner, the timer and the thread pool
    peer *peers[PEERS_MAX];
    int n_peers;
    job jobs[JOBS_MAX];
    copy copies[COPIES_MAX]; // ring buffer
    int first_copy, n_copies;
    bool is_copying;
    kin_time copy_at;   // earliest time for the next request
    kin_time settle_by; // a thread waits for copies until then; 0: none
    kin_completion settled;
    kin_page_fetch_stats stats;

    // The pending query; names NULL: none.
    const kin_page_name *names; // [n]
    uint8_t *states;            // [n] want_state
    int n, n_tried, turn;       // n_tried: peers tried; turn: the peer whose turn it is
    size_t bytes;
    kin_time heard_at, want_by;
    kin_completion done;
    struct {
        const kin_page_name *names;
        int n;
        size_t bytes;
        kin_time by;
    } asked; // set by the waiting thread; read once the loop's thread was notified

    uv_mutex_t mutex; // serializes page writes
    kin_kv_room room;
};

kin_proto_hash kin_page_fetch_hash(const kin_page_name *name) {
    kin_proto_hash hash = {{0}};
    memcpy(hash.bytes, name->folder, sizeof name->folder);
    memcpy(hash.bytes + sizeof name->folder, name->key.bytes, sizeof name->key.bytes);
    return hash;
}

bool kin_page_fetch_name(const kin_proto_hash *hash, kin_page_name *name) {
    static const uint8_t zeros[sizeof hash->bytes - sizeof *name];
    memcpy(name->folder, hash->bytes, sizeof name->folder);
    memcpy(name->key.bytes, hash->bytes + sizeof name->folder, sizeof name->key.bytes);
    return memcmp(hash->bytes + sizeof *name, zeros, sizeof zeros) == 0;
}

// ---- jobs

static void advance(kin_page_fetch *f);

static int find_free_job(const kin_page_fetch *f) {
    int i = 0;
    while (i < JOBS_MAX && f->jobs[i].state != FREE) i++;
    return i < JOBS_MAX ? i : NOBODY;
}

// True while copies must be rate-limited, because steps need the links.
static bool is_rate_limited(const kin_page_fetch *f) {
    return !f->settle_by && f->is_busy && f->is_busy(f->user);
}

// Returns false if it cannot be requested now.
static bool ask(kin_page_fetch *f, int i_peer, const kin_page_name *name, uint32_t bytes, int i_wanted) {
    int i = find_free_job(f);
    kin_proto_hash hash = kin_page_fetch_hash(name);
    kin_download_set_rate_limited(f->peers[i_peer]->link, i_wanted == NOBODY && is_rate_limited(f));
    const kin_chunk_part nothing = {.i_chunk = (uint32_t)i};
    if (i == NOBODY || !kin_download_ask(f->peers[i_peer]->link, &hash, &nothing, bytes)) return false;
    f->jobs[i] = (job){ASKED, *name, i_peer, i_wanted};
    if (i_wanted == NOBODY) {
        f->is_copying = true;
        f->heard_at = kin_clock_now();
    }
    return true;
}

// Ends a job.
static void end_job(kin_page_fetch *f, int i, bool is_here) {
    job j = f->jobs[i];
    f->jobs[i].state = FREE;
    if (j.i_wanted == NOBODY) {
        const kin_download *link = f->peers[j.peer]->link;
        f->is_copying = false;
        f->copy_at = link && is_rate_limited(f) ? kin_download_next_at(link) : 0;
        f->stats.n_copied += is_here;
        f->stats.n_left_out += !is_here;
    } else if (j.i_wanted != LATE) {
        f->states[j.i_wanted] = is_here ? HERE : LACKED;
        f->stats.n_found += is_here;
        if (is_here) f->heard_at = kin_clock_now();
    }
}

static void release_fetch(kin_page_fetch *f) {
    if (--f->n_held > 0) return;
    kin_completion_fini(&f->done);
    kin_completion_fini(&f->settled);
    uv_mutex_destroy(&f->mutex);
    for (int i = 0; i < f->n_peers; i++) free(f->peers[i]);
    free(f->dir);
    free(f);
}

static void write_page(uv_work_t *work) {
    written *w = work->data;
    kin_page_fetch *f = w->fetch;
    uv_mutex_lock(&f->mutex);
    w->rc = kin_kv_file_write(f->dir, &f->room, &w->name, w->bytes, w->n, &w->err);
    uv_mutex_unlock(&f->mutex);
}

static void on_written(uv_work_t *work, int status) {
    (void)status; // work is never cancelled here
    written *w = work->data;
    kin_page_fetch *f = w->fetch;
    if (w->rc != 0 && !f->has_logged_failure) kin_log(KIN_LOG_WARN, "cannot store a fetched KV page: %s", w->err.text);
    f->has_logged_failure = f->has_logged_failure || w->rc != 0;
    if (!f->is_closed) {
        end_job(f, w->i_job, w->rc == 0);
        advance(f);
    }
    free(w->bytes);
    free(w);
    release_fetch(f);
}

// ---- callbacks of downloads. The chunk number is the job's index

static void on_accepted(void *user) {
    advance(((peer *)user)->fetch);
}

static void on_page_hashes(void *user, const kin_proto_hashes *hashes) {
    (void)user, (void)hashes; // never requested
}

static void on_page_heard(void *user, uint32_t n_bytes) {
    kin_page_fetch *f = ((peer *)user)->fetch;
    f->stats.bytes += n_bytes;
    f->heard_at = kin_clock_now();
}

static void on_page(void *user, const kin_chunk_part *whole) {
    kin_page_fetch *f = ((peer *)user)->fetch;
    uint32_t i = whole->i_chunk;
    written *w = calloc(1, sizeof *w);
    if (!w) {
        free(whole->bytes);
        end_job(f, (int)i, false);
        advance(f);
        return;
    }
    *w = (written){
        .work.data = w, .fetch = f, .i_job = (int)i, .name = f->jobs[i].name, .bytes = whole->bytes, .n = whole->n_here};
    f->jobs[i].state = WRITING;
    f->n_held++;
    uv_queue_work(f->loop, &w->work, write_page, on_written);
    advance(f); // the next page may be requested meanwhile
}

static void on_page_lacks(void *user, uint32_t i) {
    kin_page_fetch *f = ((peer *)user)->fetch;
    if (i < JOBS_MAX && f->jobs[i].state == ASKED) end_job(f, (int)i, false);
    advance(f);
}

static void end_jobs_of(kin_page_fetch *f, const peer *p) {
    for (int i = 0; i < JOBS_MAX; i++) {
        if (f->jobs[i].state == ASKED && f->peers[f->jobs[i].peer] == p) end_job(f, i, false);
    }
}

static void on_closed(void *user, const char *reason) {
    peer *p = user;
    kin_log(KIN_LOG_DEBUG, "cannot fetch KV pages from a device: %s", reason);
    p->link = NULL;
    p->retry_at = kin_clock_now() + RETRY_MS * UINT64_C(1000000);
    p->fetch->heard_at = kin_clock_now();
    end_jobs_of(p->fetch, p);
    advance(p->fetch);
}

// ---- peers

// True if the peer can be asked, now or once its link is open.
static bool is_of_use(peer *p) {
    static const kin_download_callbacks callbacks = {on_accepted, on_page_hashes, on_page_heard, on_page,
                                                     NULL,        on_page_lacks,  on_closed};
    kin_page_fetch *f = p->fetch;
    kin_err err;
    if (!p->is_known || p->link) return p->is_known;
    if (kin_clock_now() < p->retry_at) return false;
    kin_dial_options o = kin_dial_options_default(kin_endpoint_tls(f->endpoint));
    o.to = p->endpoint;
    o.open = kin_endpoint_self(f->endpoint);
    o.open.role = KIN_PROTO_FETCH;
    o.answers = p->id;
    o.limit_ms = DIAL_MS;
    if (kin_download_open(&p->link, f->loop, &o, &callbacks, p, &err) == 0) return true;
    p->retry_at = kin_clock_now() + RETRY_MS * UINT64_C(1000000);
    return false;
}

static int find_peer(const kin_page_fetch *f, const kin_proto_id *id) {
    for (int i = 0; i < f->n_peers; i++) {
        if (kin_proto_id_equal(&f->peers[i]->id, id)) return i;
    }
    return NOBODY;
}

static void close_link(peer *p) {
    kin_download_close(p->link, NULL);
    p->link = NULL;
    end_jobs_of(p->fetch, p);
}

void kin_page_fetch_forget(kin_page_fetch *f) {
    for (int i = 0; i < f->n_peers; i++) f->peers[i]->is_known = false;
}

// True if its slot can be reused: the peer is gone, or its link has ended, and nothing waits for it.
static bool is_vacant(const kin_page_fetch *f, int i) {
    const peer *p = f->peers[i];
    bool is_needed = p->link || (p->is_known && p->retry_at == 0);
    for (int k = 0; k < JOBS_MAX; k++) is_needed = is_needed || (f->jobs[k].state != FREE && f->jobs[k].peer == i);
    for (int k = 0; k < f->n_copies; k++) is_needed = is_needed || f->copies[(f->first_copy + k) % COPIES_MAX].peer == i;
    return !is_needed;
}

// Returns a slot for another peer; NOBODY: there is none.
static int new_place(kin_page_fetch *f) {
    if (f->n_peers < PEERS_MAX) {
        peer *p = calloc(1, sizeof *p);
        if (!p) return NOBODY;
        f->peers[f->n_peers] = p;
        return f->n_peers++;
    }
    int i = 0;
    while (i < PEERS_MAX && !is_vacant(f, i)) i++;
    return i < PEERS_MAX ? i : NOBODY;
}

void kin_page_fetch_know(kin_page_fetch *f, const kin_proto_id *id, const kin_proto_endpoint *endpoint) {
    kin_proto_id self = kin_endpoint_self(f->endpoint).id;
    int i = find_peer(f, id);
    if (kin_proto_id_equal(id, &self) || endpoint->n_addresses == 0) return;
    if (i == NOBODY) {
        i = new_place(f);
        if (i == NOBODY) return;
        *f->peers[i] = (peer){.fetch = f, .id = *id};
    }
    f->peers[i]->endpoint = *endpoint;
    f->peers[i]->is_known = true;
    f->peers[i]->retry_at = 0;
}

// ---- wanted pages

static int count(const kin_page_fetch *f, want_state state) {
    int n = 0;
    for (int i = 0; i < f->n; i++) n += f->states[i] == state;
    return n;
}

static void end_want(kin_page_fetch *f) {
    kin_log(KIN_LOG_DEBUG, "fetched %d of %d wanted KV pages from other devices", f->states ? count(f, HERE) : 0, f->n);
    f->names = NULL;
    for (int i = 0; i < JOBS_MAX; i++) { // pages that still arrive are kept
        if (f->jobs[i].i_wanted != NOBODY) f->jobs[i].i_wanted = LATE;
    }
    free(f->states);
    f->states = NULL;
    kin_completion_done(&f->done, kin_completion_asked(&f->done), true);
}

static void ask_for_missing(kin_page_fetch *f) {
    for (int i = 0; i < f->n; i++) {
        if (f->states[i] != MISSING) continue;
        if (!ask(f, f->turn, &f->names[i], (uint32_t)f->bytes, i)) return;
        f->states[i] = IN_FLIGHT;
    }
}

// Turns to the next peer for the pages that this one lacks.
static void start_next(kin_page_fetch *f) {
    for (int i = 0; i < f->n; i++) {
        if (f->states[i] == LACKED) f->states[i] = MISSING;
    }
    f->turn = f->n_peers > 0 ? (f->turn + 1) % f->n_peers : 0;
    f->n_tried++;
}

static void advance_wanted(kin_page_fetch *f) {
    while (f->n_tried < f->n_peers && count(f, HERE) < f->n) {
        peer *p = f->peers[f->turn];
        if (is_of_use(p)) {
            if (!kin_download_is_accepted(p->link)) return; // callbacks follow
            ask_for_missing(f);
            if (count(f, IN_FLIGHT) > 0) return;
            if (count(f, MISSING) > 0 && find_free_job(f) == NOBODY) return; // until a page has been written
        }
        start_next(f);
    }
    if (count(f, IN_FLIGHT) == 0) end_want(f);
}

// kin_mailbox_fn
static void on_want(void *arg) {
    kin_page_fetch *f = arg;
    f->names = f->asked.names;
    f->n = f->asked.n;
    f->bytes = f->asked.bytes;
    f->want_by = f->asked.by;
    f->n_tried = 0;
    f->turn = f->n_peers > 0 ? f->turn % f->n_peers : 0; // starts with the peer that had pages the last time
    f->heard_at = kin_clock_now();
    f->stats.n_wanted += (uint64_t)f->n;
    f->states = calloc((size_t)f->n, 1);
    if (f->states)
        advance(f);
    else
        end_want(f);
}

void kin_page_fetch_want(kin_page_fetch *f, const kin_page_name *names, int n, size_t bytes, int timeout_ms) {
    if (n <= 0 || bytes > KIN_PROTO_MAX_CHUNK_BYTES) return;
    uint32_t generation = kin_completion_ask(&f->done);
    f->asked.names = names;
    f->asked.n = n;
    f->asked.bytes = bytes;
    f->asked.by = kin_clock_now() + (kin_time)timeout_ms * UINT64_C(1000000);
    if (kin_endpoint_call(f->endpoint, on_want, f)) kin_completion_wait(&f->done, generation);
}

// ---- copies

void kin_page_fetch_copy(kin_page_fetch *f, const kin_proto_kept *kept) {
    int i_peer = find_peer(f, &kept->id);
    for (uint32_t i = 0; i_peer != NOBODY && i < kept->n_names; i++) {
        copy c = {.bytes = kept->page_bytes, .peer = i_peer};
        kin_proto_hash hash;
        memcpy(hash.bytes, kept->names + sizeof hash * i, sizeof hash);
        if (!kin_page_fetch_name(&hash, &c.name)) continue;
        if (f->n_copies == COPIES_MAX) {
            f->first_copy = (f->first_copy + 1) % COPIES_MAX;
            f->n_copies--;
            f->stats.n_left_out++;
        }
        f->copies[(f->first_copy + f->n_copies++) % COPIES_MAX] = c;
    }
    advance(f);
}

static void advance_copies(kin_page_fetch *f) {
    while (f->n_copies > 0 && !f->is_copying && kin_clock_now() >= f->copy_at) {
        const copy *c = &f->copies[f->first_copy];
        peer *p = f->peers[c->peer];
        bool is_of_some_use = is_of_use(p);
        if (is_of_some_use && !kin_download_is_accepted(p->link)) return;
        if (is_of_some_use && !ask(f, c->peer, &c->name, c->bytes, NOBODY)) return; // retried when another job ends
        f->stats.n_left_out += !is_of_some_use;
        f->first_copy = (f->first_copy + 1) % COPIES_MAX;
        f->n_copies--;
    }
}

// kin_mailbox_fn
static void on_settle(void *arg) {
    kin_page_fetch *f = arg;
    f->copy_at = 0;
    f->settle_by = kin_clock_now() + SETTLE_MS * UINT64_C(1000000);
    advance(f);
}

void kin_page_fetch_settle(kin_page_fetch *f) {
    uint32_t generation = kin_completion_ask(&f->settled);
    if (kin_endpoint_call(f->endpoint, on_settle, f)) kin_completion_wait(&f->settled, generation);
}

static void check_settled(kin_page_fetch *f) {
    bool copies = f->n_copies > 0 || f->is_copying;
    if (!f->settle_by || (copies && kin_clock_now() < f->settle_by)) return;
    f->settle_by = 0;
    kin_completion_done(&f->settled, kin_completion_asked(&f->settled), true);
}

// ---- time

// Closes links with outstanding wanted pages, which would come too late.
static void close_slow_links(kin_page_fetch *f) {
    for (int i = 0; i < JOBS_MAX; i++) {
        const job *j = &f->jobs[i];
        if (j->state == ASKED && j->i_wanted != NOBODY) close_link(f->peers[j->peer]);
    }
}

// Closes links to peers from which a copy does not arrive; pauses between slices do not count.
static void leave_hanging_peers(kin_page_fetch *f, kin_time now) {
    for (int i = 0; i < JOBS_MAX; i++) {
        const job *j = &f->jobs[i];
        if (j->state != ASKED || j->i_wanted != NOBODY) continue;
        peer *p = f->peers[j->peer];
        kin_time rests_until = kin_download_next_at(p->link), since = rests_until > f->heard_at ? rests_until : f->heard_at;
        if (now < since || kin_clock_ms(since, now) <= f->copy_timeout_ms) continue;
        close_link(p);
        p->retry_at = now + RETRY_MS * UINT64_C(1000000);
    }
}

static void on_timer(uv_timer_t *timer) {
    kin_page_fetch *f = timer->data;
    for (int i = 0; i < f->n_peers; i++) {
        peer *p = f->peers[i];
        if (p->link && !p->is_known) close_link(p);
        if (p->link) kin_download_tick(p->link);
    }
    kin_time now = kin_clock_now();
    if (f->names && (now > f->want_by || kin_clock_ms(f->heard_at, now) > PATIENCE_MS)) {
        close_slow_links(f);
        start_next(f); // the next query starts with another peer
        end_want(f);
    }
    leave_hanging_peers(f, now);
    advance(f);
}

// Continues pending work. The timer runs while anything is outstanding.
static void advance(kin_page_fetch *f) {
    if (f->names)
        advance_wanted(f);
    else
        advance_copies(f);
    bool is_busy = f->names || f->n_copies > 0 || f->is_copying;
    if (f->is_closed) return;
    check_settled(f);
    if (!is_busy)
        uv_timer_stop(&f->timer);
    else if (!uv_is_active((uv_handle_t *)&f->timer))
        uv_timer_start(&f->timer, on_timer, TICK_MS, TICK_MS);
}

// ---- life

int kin_page_fetch_open(kin_page_fetch **out, const kin_page_fetch_options *o, kin_err *err) {
    kin_page_fetch *f = *out = calloc(1, sizeof *f);
    if (f) f->dir = strdup(o->dir);
    if (!f || !f->dir) {
        free(f);
        *out = NULL;
        return kin_err_set(err, "out of memory");
    }
    f->endpoint = o->endpoint;
    f->is_busy = o->is_busy;
    f->user = o->user;
    f->loop = kin_endpoint_loop(o->endpoint);
    f->room.cap = o->cap;
    f->copy_timeout_ms = o->copy_timeout_ms ? o->copy_timeout_ms : COPY_MS;
    f->n_held = 1;
    kin_completion_init(&f->done);
    kin_completion_init(&f->settled);
    uv_mutex_init(&f->mutex);
    uv_timer_init(f->loop, &f->timer);
    f->timer.data = f;
    return 0;
}

static void on_timer_closed(uv_handle_t *handle) {
    release_fetch(handle->data);
}

void kin_page_fetch_close(kin_page_fetch *f) {
    if (!f) return;
    f->is_closed = true;
    for (int i = 0; i < f->n_peers; i++) close_link(f->peers[i]);
    f->n_held++;
    uv_close((uv_handle_t *)&f->timer, on_timer_closed);
    release_fetch(f);
}

kin_page_fetch_stats kin_page_fetch_stats_now(const kin_page_fetch *f) {
    return f->stats;
}
