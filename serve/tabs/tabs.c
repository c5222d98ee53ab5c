#include "serve/tabs/tabs.h"

#include <errno.h>
#include <fcntl.h>
#include <openssl/crypto.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "base/hex.h"
#include "model/ranges.h"
#include "serve/http/websocket.h"
#include "serve/refuse.h"
#include "serve/tabs/tab.h"
#include "sys/io.h"

enum { TOKEN_BYTES = 16, MAX_TABS = KIN_TABS_MAX + KIN_TABS_MAX_ASKING };

struct kin_tabs {
    kin_tab_shared shared;
    uv_loop_t *loop;
    char code[KIN_CODE_TEXT];
    char token[2 * TOKEN_BYTES + 1];
    kin_tab *all[MAX_TABS];
    int n;
    size_t n_reading;  // bytes of chunks being read in the pool
    kin_time wrong_at; // time of the last wrong code; 0: none
    uv_async_t wake;
    pthread_mutex_t mutex; // guards is_stopped
    bool is_stopped;
    bool is_closed; // the loop has released `wake`
};

// ---- open and close

static void step_all(kin_tabs *t) {
    for (int i = t->n - 1; i >= 0; i--) {
        if (kin_tab_step(t->all[i])) continue;
        kin_tab_free(t->all[i]);
        t->all[i] = t->all[--t->n];
    }
}

static void on_wake(uv_async_t *wake) {
    step_all(wake->data);
}

static void wake(void *user) {
    kin_tabs *t = user;
    pthread_mutex_lock(&t->mutex);
    if (!t->is_stopped) uv_async_send(&t->wake);
    pthread_mutex_unlock(&t->mutex);
}

static int count_asking(const kin_tabs *t) {
    int n = 0;
    for (int i = 0; i < t->n; i++) n += !kin_tab_is_admitted(t->all[i]);
    return n;
}

static kin_tab_code check_code(void *user, const char *typed) {
    kin_tabs *t = user;
    char code[KIN_CODE_TEXT];
    kin_time now = kin_clock_now();
    if (t->wrong_at && kin_clock_ms(t->wrong_at, now) < KIN_TABS_TRY_MS) return KIN_TAB_LATER;
    bool is_right = kin_code_parse(code, typed, NULL) == 0 && CRYPTO_memcmp(code, t->code, sizeof code) == 0;
    kin_code_wipe(code, sizeof code);
    t->wrong_at = is_right ? 0 : now;
    if (!is_right) return KIN_TAB_WRONG;
    return t->n - count_asking(t) < KIN_TABS_MAX ? KIN_TAB_RIGHT : KIN_TAB_MANY; // several may have asked at once
}

int kin_tabs_open(kin_tabs **out, uv_loop_t *loop, const kin_session *session, kin_err *err) {
    uint8_t token[TOKEN_BYTES];
    kin_tabs *t = *out = calloc(1, sizeof *t);
    if (!t) return kin_err_set(err, "out of memory");
    t->shared = (kin_tab_shared){.session = session, .token = t->token, .check = check_code, .wake = wake, .user = t};
    t->loop = loop;
    int rc = kin_identity_code(t->code, &session->fleet.o.net, err);
    if (rc == 0) rc = kin_key_from_code(&t->shared.key, t->code, err);
    if (rc == 0 && uv_random(NULL, NULL, token, sizeof token, 0, NULL) != 0) rc = kin_err_set(err, "cannot get random numbers");
    if (rc == 0 && uv_async_init(loop, &t->wake, on_wake) != 0) rc = kin_err_set(err, "cannot register with the event loop");
    if (rc != 0) {
        free(t);
        *out = NULL;
        return KIN_FAIL;
    }
    *kin_hex_put(t->token, token, sizeof token) = '\0';
    t->wake.data = t;
    pthread_mutex_init(&t->mutex, NULL);
    return 0;
}

static void on_closed(uv_handle_t *handle) {
    ((kin_tabs *)handle->data)->is_closed = true;
}

void kin_tabs_stop(kin_tabs *t) {
    if (!t || t->is_stopped) return;
    for (int i = 0; i < t->n; i++) kin_tab_end(t->all[i], "the head was stopped");
    pthread_mutex_lock(&t->mutex);
    t->is_stopped = true;
    pthread_mutex_unlock(&t->mutex);
    uv_close((uv_handle_t *)&t->wake, on_closed);
}

bool kin_tabs_have_ended(const kin_tabs *t) {
    return t->is_closed && t->n == 0 && t->n_reading == 0;
}

void kin_tabs_close(kin_tabs *t) {
    if (!t) return;
    while (t->n > 0) kin_tab_free(t->all[--t->n]);
    pthread_mutex_destroy(&t->mutex);
    kin_key_wipe(&t->shared.key);
    kin_code_wipe(t->code, sizeof t->code);
    free(t);
}

void kin_tabs_tick(kin_tabs *t, kin_time now) {
    for (int i = 0; i < t->n; i++) kin_tab_tick(t->all[i], now);
    step_all(t);
}

// ---- WebSockets

static bool has_word(kin_str list, const char *word) {
    size_t n = strlen(word);
    for (size_t i = 0; list.at && i + n <= list.len; i++)
        if (strncasecmp(list.at + i, word, n) == 0) return true;
    return false;
}

// Pages of another site have a different Origin, which scripts cannot change.
static bool is_own_page(const kin_http_exchange *x) {
    kin_str origin = kin_http_header(x, "origin"), host = kin_http_header(x, "host");
    const char *at = origin.at ? memmem(origin.at, origin.len, "://", 3) : NULL;
    if (!at || !host.at) return false;
    size_t n = origin.len - (size_t)(at + 3 - origin.at);
    return n == host.len && strncasecmp(at + 3, host.at, n) == 0;
}

void kin_tabs_connect(kin_tabs *t, kin_http_exchange *x) {
    char accept[KIN_WEBSOCKET_ACCEPT];
    kin_err err;
    kin_str version = kin_http_header(x, "sec-websocket-version");
    int n_asking = count_asking(t);
    if (!has_word(kin_http_header(x, "upgrade"), "websocket") ||
        !kin_websocket_accept(accept, kin_http_header(x, "sec-websocket-key"))) {
        kin_http_reply_error(x, 400, "this path is for the WebSocket of the page /join");
    } else if (!version.at || version.len != 2 || memcmp(version.at, "13", 2) != 0) {
        kin_http_add_header(x, "Sec-WebSocket-Version", "13");
        kin_http_reply_error(x, 426, "only WebSocket version 13 is supported");
    } else if (t->is_stopped) {
        kin_http_add_header(x, "Retry-After", "5");
        kin_http_reply_error(x, 503, "the ring is not ready");
    } else if (!is_own_page(x)) {
        kin_http_reply_error(x, 403, "only the server's own page may join: open /join on this server");
    } else if (n_asking >= KIN_TABS_MAX_ASKING || t->n - n_asking >= KIN_TABS_MAX) {
        kin_http_add_header(x, "Retry-After", "5");
        kin_http_reply_error(x, 503, "too many tabs have joined");
    } else {
        kin_http_add_header(x, "Sec-WebSocket-Accept", accept);
        if (kin_tab_open(&t->all[t->n], &t->shared, x, &err) == 0)
            t->n++;
        else
            kin_http_reply_error(x, 500, err.text);
    }
}

// ---- chunks

typedef struct chunk_read {
    kin_exchange_data data;
    kin_tabs *tabs;
    kin_http_exchange *x; // NULL: the client is gone
    uv_work_t work;
    const char *path;
    kin_chunk chunk;
    uint8_t *bytes; // [chunk.bytes]
    kin_err err;
    int rc;
} chunk_read;

static void read_chunk(uv_work_t *work) {
    chunk_read *r = work->data;
    int fd = open(r->path, O_RDONLY | O_CLOEXEC);
    size_t n = 0;
    ssize_t got = 1;
    while (fd >= 0 && n < r->chunk.bytes && got > 0) {
        got = pread(fd, r->bytes + n, r->chunk.bytes - n, (off_t)(r->chunk.offset + n));
        if (got > 0) n += (size_t)got;
    }
    r->rc = n == r->chunk.bytes
                ? 0
                : kin_err_set(&r->err, "%s: %s", r->path, fd < 0 || got < 0 ? strerror(errno) : "the file was truncated");
    if (fd >= 0) close(fd);
}

static void chunk_is_read(uv_work_t *work, int status) {
    chunk_read *r = work->data;
    r->tabs->n_reading -= r->chunk.bytes;
    if (r->x && status == 0 && r->rc == 0) {
        kin_http_add_header(r->x, "Cache-Control", "no-store"); // the page stores it itself
        kin_http_add_header(r->x, "Cross-Origin-Resource-Policy", "same-origin");
        kin_http_reply(r->x, 200, "application/octet-stream", r->bytes, r->chunk.bytes);
    } else if (r->x) {
        kin_http_reply_error(r->x, 500, status == 0 ? r->err.text : "the server is shutting down");
    }
    free(r->bytes);
    free(r);
}

static void reader_is_gone(void *self) {
    ((chunk_read *)self)->x = NULL;
}

// Finds a chunk that a tab may need: chunks that contain only the embedding or the output layer are not given out.
static bool find_chunk(const kin_session *s, const uint8_t hash[KIN_SHA256_BYTES], uint32_t *i) {
    const kin_manifest *m = &s->fleet.manifest;
    kin_err err;
    bool *is_private = calloc(m->n_chunks, sizeof *is_private);
    bool found = false;
    if (is_private && kin_ranges_private(s->model.gguf, m, is_private, &err) == 0) {
        for (*i = 0; *i < m->n_chunks && !found; *i += !found) {
            found = !is_private[*i] && memcmp(m->hashes[*i], hash, KIN_SHA256_BYTES) == 0;
        }
    }
    free(is_private);
    return found;
}

static bool knows_token(const kin_tabs *t, const kin_http_exchange *x) {
    kin_str token = kin_http_header(x, "x-kin-tab");
    return token.at && token.len == sizeof t->token - 1 && CRYPTO_memcmp(token.at, t->token, token.len) == 0;
}

void kin_tabs_reply_chunk(kin_tabs *t, kin_http_exchange *x) {
    uint8_t hash[KIN_SHA256_BYTES];
    uint32_t i;
    const kin_manifest *m = &t->shared.session->fleet.manifest;
    kin_str path = kin_http_path(x);
    bool is_hash = path.len >= 2 * sizeof hash && kin_hex_get(hash, path.at + path.len - 2 * sizeof hash, sizeof hash) == 0;
    if (t->is_stopped || !knows_token(t, x)) {
        kin_http_reply_error(x, 403, "only tabs that have joined can fetch parts of the model");
        return;
    }
    if (!is_hash || !find_chunk(t->shared.session, hash, &i)) {
        kin_http_reply_error(x, 404, "the model has no such chunk for other devices");
        return;
    }
    kin_chunk chunk = kin_manifest_chunk(m, i);
    if (kin_http_unsent(x) + t->n_reading + chunk.bytes > KIN_TABS_MAX_UNSENT) {
        kin_http_add_header(x, "Retry-After", "1");
        kin_http_reply_error(x, 503, "too many parts of the model are being fetched");
        return;
    }
    chunk_read *r = calloc(1, sizeof *r);
    if (r)
        *r = (chunk_read){.tabs = t,
                          .x = x,
                          .chunk = chunk,
                          .path = t->shared.session->fleet.paths[chunk.i_file],
                          .bytes = malloc(chunk.bytes)};
    if (!r || !r->bytes) {
        free(r);
        kin_http_reply_error(x, 500, "out of memory");
        return;
    }
    r->data = (kin_exchange_data){reader_is_gone, r};
    r->work.data = r;
    kin_http_set_data(x, &r->data);
    t->n_reading += chunk.bytes;
    uv_queue_work(t->loop, &r->work, read_chunk, chunk_is_read);
}
