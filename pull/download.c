#ifdef KIN_HAVE_CURL
#include "pull/download.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>

#include "base/clock.h"
#include "base/hex.h"
#include "base/units.h"
#include "pull/part_file.h"
#include "pull/web_impl.h"
#include "pure/pull/rate_floor.h"
#include "sys/disk.h"
#include "sys/io.h"
#include "sys/sha256.h"

enum {
    MIB = 1 << 20,
    MIN_RANGE = 1 * MIB, // of a request
    MAX_RANGE = 64 * MIB,
    SAVE_BYTES = 256 << 10, // if the process is killed, each connection fetches at most this much again
    HASH_BYTES = 1 * MIB,
    POLL_MS = 100,
    RATE_MS = 500,
    DISK_RESERVE = 64 * MIB,
};

typedef enum verdict {
    GOING_ON,
    NOT_A_MODEL, // the first bytes are not those of a GGUF file
    CHANGED,     // on the server
    NO_RANGES,   // the server sends only whole files
    MISMATCH,    // the answer is not what was asked for
    DISK_FAILED,
} verdict;

struct download;

// A request for bytes [at, end). It is idle while `easy` is NULL.
typedef struct connection {
    struct download *d;
    CURL *easy;
    struct curl_slist *headers;
    kin_web_answer answer;
    char detail[CURL_ERROR_SIZE];
    uint64_t at, end;
    bool is_checked, uses_direct;
} connection;

typedef struct download {
    const kin_download_options *o;
    CURLM *multi;
    kin_part_file part;
    kin_byte_ranges unassigned; // missing, and not asked for by a connection
    connection connections[KIN_DOWNLOAD_MAX_CONNECTIONS];
    int n_connections;
    uint64_t range_bytes;
    char *direct; // where the URL led to: the next ranges are asked for there; NULL: not known
    verdict verdict;
    char first[4]; // of the file
    int n_failed;  // requests since bytes last arrived
    double wait_s; // before the next try
    kin_rate_floor floor;
    kin_time next_try, saved_at, rated_at;
    uint64_t n_new, n_saved, n_rated;
    double bytes_s;
    int disk_errno;
    kin_err reason; // of the last failed request
} download;

// ---- progress

static uint64_t n_missing(const download *d) {
    uint64_t n = kin_byte_ranges_sum(&d->unassigned);
    for (int i = 0; i < d->n_connections; i++)
        if (d->connections[i].easy) n += d->connections[i].end - d->connections[i].at;
    return n;
}

static void report(const kin_download_options *o, kin_download_phase phase, uint64_t done, double bytes_s) {
    const kin_download_progress p = {.phase = phase, .done = done, .total = o->size, .bytes_s = bytes_s};
    if (o->progress) o->progress(o->user, &p);
}

static void update_rate(download *d, kin_time now) {
    double ms = kin_clock_ms(d->rated_at, now);
    if (ms < RATE_MS) return;
    double rate = (double)(d->n_new - d->n_rated) / ms * 1000;
    d->bytes_s = d->bytes_s > 0 ? 0.7 * d->bytes_s + 0.3 * rate : rate;
    d->n_rated = d->n_new;
    d->rated_at = now;
}

static bool is_stopped(const kin_download_options *o) {
    return o->stop && atomic_load(o->stop);
}

// Writes the state: what is not assigned, and the rest of each connection's range.
static int save(download *d, kin_err *err) {
    kin_byte_ranges missing = d->unassigned;
    for (int i = 0; i < d->n_connections; i++)
        if (d->connections[i].easy && !kin_byte_ranges_add(&missing, d->connections[i].at, d->connections[i].end)) return 0;
    d->n_saved = d->n_new;
    return kin_part_file_save(&d->part, &missing, err);
}

// ---- what arrives

static bool is_gguf(download *d, uint64_t offset, const char *at, size_t n) {
    static const char magic[4] = {'G', 'G', 'U', 'F'};
    bool is_one = true;
    for (size_t i = 0; i < n && offset + i < sizeof magic; i++) {
        d->first[offset + i] = at[i];
        is_one = is_one && at[i] == magic[offset + i];
    }
    return is_one;
}

// Decides from the answer's header, and the body's first n bytes, whether the body is the bytes that were asked for.
static verdict check_answer(connection *c, const char *from, size_t n) {
    const kin_download_options *o = c->d->o;
    const kin_web_answer *a = &c->answer;
    bool has_other_hash = o->sha256[0] && strlen(a->linked_etag) == 64 && strcasecmp(a->linked_etag, o->sha256) != 0;
    bool has_other_etag = !o->sha256[0] && o->etag[0] && strcmp(a->etag, o->etag) != 0;
    if (a->status == 200 && !is_gguf(c->d, 0, from, n)) return NOT_A_MODEL;
    if (a->status == 206 && !a->has_range) return MISMATCH;
    if (has_other_hash || has_other_etag || (a->total != 0 && a->total != o->size)) return CHANGED;
    if (a->status == 200) return c->at == 0 && c->end == o->size ? GOING_ON : NO_RANGES;
    return a->begin == c->at && a->total == o->size ? GOING_ON : MISMATCH;
}

static size_t fail_with(download *d, verdict v) {
    d->verdict = v;
    return 0;
}

static size_t on_body(char *from, size_t size, size_t n, void *user) {
    connection *c = user;
    download *d = c->d;
    long status = 0;
    n *= size;
    curl_easy_getinfo(c->easy, CURLINFO_RESPONSE_CODE, &status);
    if (status != 200 && status != 206) return n; // the body is an error page
    if (!c->is_checked) {
        c->answer.status = (int)status;
        verdict v = check_answer(c, from, n);
        if (v != GOING_ON) return fail_with(d, v);
        c->is_checked = true;
    }
    if (n > c->end - c->at) return fail_with(d, MISMATCH);
    if (!is_gguf(d, c->at, from, n)) return fail_with(d, NOT_A_MODEL);
    if (kin_io_write(d->part.fd, from, n, c->at) != 0) {
        d->disk_errno = errno;
        return fail_with(d, DISK_FAILED);
    }
    c->at += n;
    d->n_new += n;
    d->n_failed = 0;
    kin_err err;
    if (d->n_new - d->n_saved >= SAVE_BYTES) save(d, &err); // a failure shows at the next write or at the end
    return n;
}

// ---- connections

static void release(connection *c) {
    if (!c->easy) return;
    curl_multi_remove_handle(c->d->multi, c->easy);
    curl_easy_cleanup(c->easy);
    curl_slist_free_all(c->headers);
    c->easy = NULL;
    c->headers = NULL;
    kin_byte_ranges_add(&c->d->unassigned, c->at, c->end); // never more pieces than connections and holes of the state
}

static int ask(download *d, connection *c, kin_err *err) {
    char range[64];
    kin_byte_range r = kin_byte_ranges_pop(&d->unassigned, d->range_bytes);
    const kin_web_request request = {
        .url = d->direct ? d->direct : d->o->url, .token = d->direct ? NULL : d->o->token, .stop = d->o->stop};
    *c = (connection){.d = d, .at = r.begin, .end = r.end, .uses_direct = d->direct != NULL};
    c->easy = kin_web_request_new(&request, &c->answer, &c->headers);
    if (!c->easy) return kin_err_set(err, "out of memory");
    snprintf(range, sizeof range, "%" PRIu64 "-%" PRIu64, r.begin, r.end - 1);
    if (d->o->accepts_ranges) curl_easy_setopt(c->easy, CURLOPT_RANGE, range);
    curl_easy_setopt(c->easy, CURLOPT_ERRORBUFFER, c->detail);
    curl_easy_setopt(c->easy, CURLOPT_WRITEFUNCTION, on_body);
    curl_easy_setopt(c->easy, CURLOPT_WRITEDATA, c);
    curl_easy_setopt(c->easy, CURLOPT_PRIVATE, c);
    return curl_multi_add_handle(d->multi, c->easy) == CURLM_OK ? 0 : kin_err_set(err, "out of memory");
}

// Remembers where the URL led to, so that the server of the registry is not asked for every range.
static void remember_direct(connection *c) {
    long n_redirects = 0;
    char *url = NULL;
    curl_easy_getinfo(c->easy, CURLINFO_REDIRECT_COUNT, &n_redirects);
    curl_easy_getinfo(c->easy, CURLINFO_EFFECTIVE_URL, &url);
    if (n_redirects > 0 && url && !c->d->direct) c->d->direct = strdup(url);
}

static void forget_direct(download *d) {
    free(d->direct);
    d->direct = NULL;
}

static const char *name_of(const kin_download_options *o) {
    const char *slash = strrchr(o->path, '/');
    return slash ? slash + 1 : o->path;
}

// True if an address to which the registry has redirected is refused, although the registry may name a better one: a signed
// address ends after some time. If nothing has arrived yet, it returns true only a few times.
static bool is_stale(const connection *c, CURLcode code) {
    enum { MAX_UNPROVEN = 2 };
    const download *d = c->d;
    long n_redirects = 0;
    int status = c->answer.status;
    curl_easy_getinfo(c->easy, CURLINFO_REDIRECT_COUNT, &n_redirects);
    if (code != CURLE_OK || status < 400 || status >= 500 || status == 429) return false;
    return c->uses_direct || (n_redirects > 0 && (d->n_new > 0 || d->n_failed < MAX_UNPROVEN));
}

// Called when a request ended before all of its bytes arrived. Decides whether to try again.
static int on_failure(connection *c, CURLcode code, kin_err *err) {
    download *d = c->d;
    bool may_recover = is_stale(c, code) || kin_web_may_recover(code, c->answer.status);
    if (c->uses_direct) forget_direct(d); // a signed address ends after some time, a host may be gone
    if (code == CURLE_OK && c->answer.status < 300)
        kin_err_set(&d->reason, "%s: the server ended the answer early", name_of(d->o));
    else if (code == CURLE_OK)
        kin_web_refused(name_of(d->o), &c->answer, &d->reason);
    else
        kin_web_failed(d->o->url, code, c->detail, &d->reason);
    double wait_s = kin_web_wait_s(&c->answer, ++d->n_failed < 16 ? d->n_failed : 16);
    bool is_short = code == CURLE_OK && c->answer.status < 300;
    release(c);
    if ((!may_recover && !is_short) || d->n_failed >= KIN_WEB_MAX_TRIES + d->n_connections || wait_s > KIN_WEB_MAX_WAIT_S) {
        *err = d->reason;
        return KIN_FAIL;
    }
    d->wait_s = wait_s;
    kin_time due = kin_clock_now() + (kin_time)(wait_s * 1e9);
    if (due > d->next_try) d->next_try = due;
    return 0;
}

static int explain_verdict(download *d, kin_err *err) {
    const char *name = name_of(d->o);
    switch (d->verdict) {
    case NOT_A_MODEL:
        return kin_err_set(err, "%s: the server sent no GGUF file (it begins with '%.4s'); perhaps it is a web page", name,
                           d->first);
    case CHANGED:
        return kin_err_set(err, "%s has changed on the server in the meantime; the same command fetches the new one", name);
    case DISK_FAILED: return kin_err_set(err, "%s.part: %s", d->o->path, strerror(d->disk_errno));
    case MISMATCH: return kin_err_set(err, "%s: the server sent bytes that were not requested", name);
    default: return 0;
    }
}

static int on_done(connection *c, CURLcode code, kin_err *err) {
    long status = 0;
    curl_easy_getinfo(c->easy, CURLINFO_RESPONSE_CODE, &status);
    c->answer.status = (int)status;
    if (c->d->verdict != GOING_ON && c->d->verdict != NO_RANGES) return explain_verdict(c->d, err);
    if (c->d->verdict == NO_RANGES) return 0;
    if (status == 416) {
        c->d->verdict = CHANGED;
        return explain_verdict(c->d, err);
    }
    if (code != CURLE_OK || c->at < c->end || (status != 200 && status != 206)) return on_failure(c, code, err);
    remember_direct(c);
    release(c);
    return 0;
}

// The server ignores ranges: the whole file is asked for at once, from its beginning.
static int without_ranges(download *d, kin_err *err) {
    for (int i = 0; i < d->n_connections; i++) release(&d->connections[i]);
    d->verdict = GOING_ON;
    d->n_connections = 1;
    d->range_bytes = d->o->size;
    if (kin_part_file_begin_anew(&d->part, err) != 0) return KIN_FAIL;
    d->unassigned = d->part.missing;
    return 0;
}

static int assign(download *d, kin_err *err) {
    if (kin_clock_now() < d->next_try) return 0;
    for (int i = 0; i < d->n_connections; i++) {
        if (d->connections[i].easy || d->unassigned.n == 0) continue;
        if (ask(d, &d->connections[i], err) != 0) return KIN_FAIL;
        if (d->n_failed > 0) return 0; // one at a time until bytes arrive again
    }
    return 0;
}

static bool is_idle(const download *d) {
    for (int i = 0; i < d->n_connections; i++)
        if (d->connections[i].easy) return false;
    return true;
}

// A longer wait is one that the server has asked for.
static int check_rate(download *d, kin_time now, kin_err *err) {
    enum { MAX_OWN_WAIT_S = 2 };
    uint64_t n;
    bool counts = !is_idle(d) || d->wait_s <= MAX_OWN_WAIT_S;
    char size[32];
    if (!kin_rate_floor_is_missed(&d->floor, now / 1000000, d->n_new, counts, &n)) return 0;
    return kin_err_set(err, "%s: the server sent only %s in %d seconds; the same command continues later", name_of(d->o),
                       kin_size_format(n, size, sizeof size), d->o->patience_s);
}

static int turn(download *d, kin_err *err) {
    int n_running, n_left;
    if (assign(d, err) != 0) return KIN_FAIL;
    curl_multi_perform(d->multi, &n_running);
    for (CURLMsg *m; (m = curl_multi_info_read(d->multi, &n_left));) {
        connection *c = NULL;
        CURLcode code = m->data.result;
        curl_easy_getinfo(m->easy_handle, CURLINFO_PRIVATE, &c);
        if (m->msg == CURLMSG_DONE && on_done(c, code, err) != 0) return KIN_FAIL;
        if (d->verdict == NO_RANGES) return without_ranges(d, err);
    }
    curl_multi_poll(d->multi, NULL, 0, POLL_MS, NULL);
    kin_time now = kin_clock_now();
    update_rate(d, now);
    report(d->o, is_idle(d) && d->unassigned.n > 0 ? KIN_DOWNLOAD_PAUSED : KIN_DOWNLOAD_FETCHING, d->o->size - n_missing(d),
           d->bytes_s);
    return check_rate(d, now, err);
}

static int fetch(download *d, kin_err *err) {
    int rc = 0;
    d->multi = curl_multi_init();
    if (!d->multi) return kin_err_set(err, "out of memory");
    d->rated_at = kin_clock_now();
    while (rc == 0 && (d->unassigned.n > 0 || !is_idle(d))) {
        rc = is_stopped(d->o) ? kin_err_set(err, "stopped") : turn(d, err);
    }
    if (rc != 0 && is_stopped(d->o)) kin_err_set(err, "stopped"); // replaces libcurl's message
    for (int i = 0; i < d->n_connections; i++) release(&d->connections[i]);
    curl_multi_cleanup(d->multi);
    forget_direct(d);
    bool is_lost = d->verdict == CHANGED || d->verdict == NOT_A_MODEL;
    kin_err not_saved;
    if (is_lost)
        kin_part_file_begin_anew(&d->part, &not_saved);
    else if (save(d, &not_saved) != 0 && rc == 0)
        rc = kin_err_set(err, "%s", not_saved.text);
    return rc;
}

// ---- the whole download

static int check_disk(const download *d, kin_err *err) {
    char folder[KIN_PART_PATH], a[32], b[32];
    uint64_t need = kin_byte_ranges_sum(&d->part.missing) + DISK_RESERVE;
    snprintf(folder, sizeof folder, "%.*s", (int)(name_of(d->o) - d->o->path), d->o->path);
    uint64_t free_bytes = kin_disk_free(folder[0] ? folder : ".");
    if (free_bytes == 0 || need <= free_bytes) return 0;
    return kin_err_set(err, "%s needs %s on the disk of %s, which has %s; make room, or choose another folder with KIN_MODELS",
                       name_of(d->o), kin_size_format(need, a, sizeof a), folder, kin_size_format(free_bytes, b, sizeof b));
}

static int hash_part(const download *d, char hex[2 * KIN_SHA256_BYTES + 1], kin_err *err) {
    kin_sha256_stream *s = NULL;
    uint8_t hash[KIN_SHA256_BYTES], *bytes = malloc(HASH_BYTES);
    int rc = bytes ? kin_sha256_open(&s, err) : kin_err_set(err, "out of memory");
    for (uint64_t at = 0; rc == 0 && at < d->o->size;) {
        ssize_t n = kin_io_read(d->part.fd, bytes, HASH_BYTES, at);
        if (n <= 0) rc = kin_err_set(err, "%s.part: %s", d->o->path, n < 0 ? strerror(errno) : "it is shorter now");
        if (rc == 0) rc = kin_sha256_add(s, bytes, (size_t)n, err);
        if (rc == 0 && is_stopped(d->o)) rc = kin_err_set(err, "stopped");
        at += rc == 0 ? (uint64_t)n : 0;
        report(d->o, KIN_DOWNLOAD_CHECKING, at, 0);
    }
    if (rc == 0) rc = kin_sha256_end(s, hash, err);
    if (rc == 0) *kin_hex_put(hex, hash, sizeof hash) = '\0';
    kin_sha256_close(s);
    free(bytes);
    return rc;
}

// Returns KIN_ABSENT if the content has another hash, and nothing of it is kept.
static int check_hash(download *d, kin_err *err) {
    char hex[2 * KIN_SHA256_BYTES + 1];
    kin_err not_removed;
    if (!d->o->sha256[0]) return 0;
    if (hash_part(d, hex, err) != 0) return KIN_FAIL;
    if (strcmp(hex, d->o->sha256) == 0) return 0;
    kin_part_file_begin_anew(&d->part, &not_removed);
    kin_err_set(err, "%s: the downloaded bytes have the SHA-256 %.16s..., but the registry says %.16s...; they were deleted",
                name_of(d->o), hex, d->o->sha256);
    return KIN_ABSENT;
}

// Fetches what is missing of an open file.
static int complete(download *d, kin_err *err) {
    const kin_download_options *o = d->o;
    bool was_begun = d->part.was_begun;
    for (int tries = 0;; tries++) {
        d->unassigned = d->part.missing;
        if (check_disk(d, err) != 0 || (d->unassigned.n > 0 && fetch(d, err) != 0)) return KIN_FAIL;
        int rc = check_hash(d, err);
        if (rc == 0) break;
        if (rc != KIN_ABSENT || !was_begun || tries > 0)
            return KIN_FAIL; // the bytes of an earlier attempt may have been the wrong ones
    }
    return o->finished && o->finished(o->user, err) != 0 ? KIN_FAIL : kin_part_file_finish(&d->part, err);
}

static void choose_ranges(download *d) {
    const kin_download_options *o = d->o;
    int n = o->accepts_ranges ? o->n_connections : 1;
    d->n_connections = n < 1 ? 1 : n < KIN_DOWNLOAD_MAX_CONNECTIONS ? n : KIN_DOWNLOAD_MAX_CONNECTIONS;
    d->range_bytes = o->size / (uint64_t)(8 * d->n_connections);
    if (d->range_bytes < MIN_RANGE) d->range_bytes = MIN_RANGE;
    if (d->range_bytes > MAX_RANGE) d->range_bytes = MAX_RANGE;
    if (!o->accepts_ranges) d->range_bytes = o->size;
}

// Another process is downloading the file: waits a moment and shows its progress.
static int wait_for_other(const kin_download_options *o, kin_err *err) {
    if (is_stopped(o)) return kin_err_set(err, "stopped");
    uint64_t missing = kin_part_file_missing(o->path);
    report(o, KIN_DOWNLOAD_WAITING, missing <= o->size ? o->size - missing : 0, 0);
    nanosleep(&(struct timespec){.tv_nsec = POLL_MS * 1000000L}, NULL);
    return 0;
}

static bool is_there(const kin_download_options *o) {
    return o->is_there && o->is_there(o->user);
}

static int download_file(download *d, kin_err *err) {
    const kin_download_options *o = d->o;
    kin_part_outcome outcome;
    while ((outcome = kin_part_file_open(&d->part, o->path, o->size, o->sha256, o->etag, err)) == KIN_PART_BUSY) {
        if (is_there(o)) return 0;
        if (wait_for_other(o, err) != 0) return KIN_FAIL;
    }
    if (outcome == KIN_PART_FAILED) return KIN_FAIL;
    bool is_done = is_there(o); // another process finished it since the caller looked
    int rc = is_done ? 0 : complete(d, err);
    if (is_done) kin_part_file_remove(o->path);
    kin_part_file_close(&d->part);
    return rc;
}

int kin_download(const kin_download_options *o, kin_err *err) {
    download *d = calloc(1, sizeof *d);
    if (!d) return kin_err_set(err, "out of memory");
    d->o = o;
    d->floor.window_ms = (uint64_t)o->patience_s * 1000;
    choose_ranges(d);
    int rc = download_file(d, err);
    free(d);
    return rc;
}
#endif
