#include "fetch/chunk_server.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "fetch/manifest_transfer.h"
#include "fetch/page_fetch.h"
#include "pure/proto/message.h"

enum { REQUESTS_MAX = 64, DATA_HEAD = 8, LACK_BYTES = 4, QUEUE_BYTES = 2 << 20 };

typedef enum request_kind {
    WANTS_HASHES, // chunks [at, ...) are still to be sent
    WANTS_BYTES,  // bytes [at, end) of the chunk
    WANTS_PAGE,   // the same for a page of the KV cache
    GETS_LACK,
} request_kind;

typedef struct request {
    request_kind kind;
    uint32_t i_chunk, at, end;
    kin_page_name page;
} request;

// A link and its pending requests.
typedef struct client {
    kin_chunk_server *server;
    kin_link *link; // NULL: closed, but a read is still running
    request requests[REQUESTS_MAX];
    int first, n;

    uv_work_t work;
    bool is_reading;         // the thread pool uses the fields below
    kin_chunk_store *chunks; // NULL: the data is of a page
    kin_page_name page;
    uint32_t i_chunk, offset;
    uint32_t n_bytes; // of the read; afterwards 0: nothing to send
    uint8_t *bytes;   // [KIN_FRAME_DATA_BYTES]
    int rc;
    kin_err err;
} client;

struct kin_chunk_server {
    uv_loop_t *loop;
    kin_chunk_server_options o;
    kin_chunk_store *chunks; // NULL: none
    char *pages_dir;         // NULL: pages are not served
    client **clients;        // [n_links], NULL: free slot
    int turn;                // client whose turn it is to read
    int n_reading;
    bool is_closed;
    kin_chunk_server_stats stats;
};

kin_chunk_server_options kin_chunk_server_options_default(void) {
    return (kin_chunk_server_options){.n_links = 32, .n_requests = 16, .n_reads = 2};
}

// ---- clients

static void free_client(client *c) {
    free(c->bytes);
    free(c);
}

static void free_share(kin_chunk_server *s) {
    free(s->pages_dir);
    free(s->clients);
    free(s);
}

static void forget_client(client *c) {
    kin_chunk_server *s = c->server;
    for (int i = 0; i < s->o.n_links; i++) {
        if (s->clients[i] == c) s->clients[i] = NULL;
    }
    s->stats.n_links--;
    c->link = NULL;
    if (!c->is_reading) free_client(c);
}

static void end_client(client *c, const char *fmt, ...) KIN_PRINTF(2, 3);
static void end_client(client *c, const char *fmt, ...) {
    char reason[sizeof((kin_err *)0)->text];
    va_list args;
    va_start(args, fmt);
    vsnprintf(reason, sizeof reason, fmt, args);
    va_end(args);
    kin_log(KIN_LOG_WARN, "link %s: %s", kin_link_name(c->link), reason);
    kin_link_close(c->link, reason);
    forget_client(c);
}

static request *front(client *c) {
    return &c->requests[c->first];
}

static void pop(client *c) {
    c->first = (c->first + 1) % REQUESTS_MAX;
    c->n--;
}

// ---- answers. Each returns whether it was sent; if not, `drained` or `closed` follows

static bool send_parts(client *c, kin_frame_type type, int n_parts, const kin_frame_part *parts) {
    kin_link_sent sent = kin_link_send(c->link, type, 0, n_parts, parts);
    return sent == KIN_LINK_SENT || sent == KIN_LINK_QUEUED;
}

static bool send_lack(client *c) {
    uint8_t bytes[LACK_BYTES];
    kin_proto_lack m = {.i_chunk = front(c)->i_chunk};
    kin_frame_part part = {bytes, kin_proto_encode_lack(bytes, sizeof bytes, &m)};
    if (!send_parts(c, KIN_FRAME_LACK, 1, &part)) return false;
    pop(c);
    return true;
}

static bool send_piece(client *c) {
    uint8_t head[DATA_HEAD];
    request *r = front(c);
    kin_proto_data m = {.i_chunk = r->i_chunk, .offset = r->at, .n_bytes = c->n_bytes};
    kin_frame_part parts[] = {{head, kin_proto_encode_data_head(head, sizeof head, &m)}, {c->bytes, c->n_bytes}};
    if (!send_parts(c, KIN_FRAME_DATA, 2, parts)) return false;
    c->server->stats.bytes += c->n_bytes;
    r->at += c->n_bytes;
    c->n_bytes = 0;
    if (r->at < r->end) return true;
    c->server->stats.n_chunks++;
    pop(c);
    return true;
}

static bool send_hashes(client *c) {
    const kin_manifest *m = kin_store_manifest(kin_chunk_store_store(c->server->chunks));
    request *r = front(c);
    kin_proto_hashes message;
    kin_manifest_transfer_give(&message, m, r->at);
    size_t n = kin_proto_size_hashes(&message);
    uint8_t *bytes = malloc(n);
    if (!bytes) { // answers as if the chunk were absent; the client asks again
        *r = (request){.kind = GETS_LACK, .i_chunk = KIN_PROTO_NO_CHUNK};
        return true;
    }
    kin_proto_encode_hashes(bytes, n, &message);
    bool is_sent = send_parts(c, KIN_FRAME_HASHES, 1, &(kin_frame_part){bytes, n});
    free(bytes);
    if (!is_sent) return false;
    r->at += message.n_hashes;
    if (r->at == m->n_chunks) pop(c);
    return true;
}

static bool has_chunk(const kin_chunk_server *s, uint32_t i_chunk) {
    return s->chunks && kin_store_has(kin_chunk_store_store(s->chunks), i_chunk) &&
           !kin_chunk_store_withholds(s->chunks, i_chunk);
}

// Sends what needs no disk read. Returns true if the next request does.
static bool advance(client *c) {
    while (c->link && !c->is_reading && c->n > 0) {
        request *r = front(c);
        if (r->kind == GETS_LACK) {
            if (!send_lack(c)) return false;
        } else if (r->kind == WANTS_HASHES) {
            if (!send_hashes(c)) return false;
        } else if (c->n_bytes > 0) {
            if (!send_piece(c)) return false;
        } else if (r->kind == WANTS_PAGE || has_chunk(c->server, r->i_chunk)) {
            return true;
        } else {
            r->kind = GETS_LACK;
        }
    }
    return false;
}

// ---- reading

static void read_next(kin_chunk_server *s);

static void read_piece(uv_work_t *work) {
    client *c = work->data;
    c->rc = c->chunks ? kin_store_read(kin_chunk_store_store(c->chunks), c->i_chunk, c->offset, c->bytes, c->n_bytes, &c->err)
                      : kin_kv_file_read_piece(c->server->pages_dir, &c->page, c->offset, c->bytes, c->n_bytes, &c->err);
}

static void on_piece(uv_work_t *work, int status) {
    (void)status; // work is never cancelled here
    client *c = work->data;
    kin_chunk_server *s = c->server;
    if (c->chunks) kin_chunk_store_release(c->chunks);
    c->chunks = NULL;
    c->is_reading = false;
    s->n_reading--;
    if (s->is_closed) {
        free_client(c);
        if (s->n_reading == 0) free_share(s);
        return;
    }
    if (!c->link) {
        free_client(c);
    } else {
        if (c->rc == KIN_FAIL) kin_log(KIN_LOG_WARN, "cannot share it: %s", c->err.text);
        if (c->rc != 0) front(c)->kind = GETS_LACK;
        if (front(c)->kind != WANTS_BYTES && front(c)->kind != WANTS_PAGE) c->n_bytes = 0;
        advance(c);
    }
    read_next(s);
}

static void begin_reading(client *c) {
    const request *r = front(c);
    uint32_t n = r->end - r->at;
    c->chunks = r->kind == WANTS_PAGE ? NULL : kin_chunk_store_hold(c->server->chunks);
    c->page = r->page;
    c->i_chunk = r->i_chunk;
    c->offset = r->at;
    c->n_bytes = n < KIN_FRAME_DATA_BYTES ? n : KIN_FRAME_DATA_BYTES;
    c->is_reading = true;
    c->server->n_reading++;
    uv_queue_work(c->server->loop, &c->work, read_piece, on_piece);
}

// Starts one read per client, in turn.
static void read_next(kin_chunk_server *s) {
    for (int i = 0; i < s->o.n_links && s->n_reading < s->o.n_reads; i++) {
        client *c = s->clients[s->turn];
        s->turn = (s->turn + 1) % s->o.n_links;
        if (c && advance(c)) begin_reading(c);
    }
}

// ---- requests

// Returns NULL if there are too many; the link is then closed.
static request *new_request(client *c) {
    if (c->n == c->server->o.n_requests) {
        end_client(c, "the peer has more than %d requests in flight", c->server->o.n_requests);
        return NULL;
    }
    return &c->requests[(c->first + c->n++) % REQUESTS_MAX];
}

static bool is_ours(const kin_chunk_server *s, const kin_proto_hash *model) {
    return s->chunks &&
           memcmp(kin_store_manifest(kin_chunk_store_store(s->chunks))->hash, model->bytes, sizeof model->bytes) == 0;
}

static void handle_hashes_wanted(client *c, const kin_proto_hashes_wanted *m) {
    request *r = new_request(c);
    if (!r) return;
    *r = (request){.kind = WANTS_HASHES, .i_chunk = KIN_PROTO_NO_CHUNK};
    if (!is_ours(c->server, &m->model)) r->kind = GETS_LACK;
    read_next(c->server);
}

// For pages, the chunk number in messages is chosen by the requester.
static void handle_get_page(client *c, const kin_proto_get *m, const kin_page_name *name) {
    request *r = new_request(c);
    if (!r) return;
    *r = (request){WANTS_PAGE, m->i_chunk, m->offset, m->offset + m->length, *name};
    if (!c->server->pages_dir) r->kind = GETS_LACK;
    read_next(c->server);
}

static void handle_get(client *c, const kin_proto_get *m) {
    kin_chunk_server *s = c->server;
    uint32_t i = m->i_chunk;
    kin_page_name page;
    if (kin_page_fetch_name(&m->model, &page)) {
        handle_get_page(c, m, &page);
        return;
    }
    if (s->chunks && !is_ours(s, &m->model)) {
        end_client(c, "the peer requested a chunk of another model");
        return;
    }
    const kin_manifest *manifest = s->chunks ? kin_store_manifest(kin_chunk_store_store(s->chunks)) : NULL;
    if (manifest && i >= manifest->n_chunks) {
        end_client(c, "the peer requested chunk %" PRIu32 ", but the number of chunks is %" PRIu32, i, manifest->n_chunks);
        return;
    }
    if (manifest && kin_chunk_store_withholds(s->chunks, i)) {
        end_client(c, "the peer requested chunk %" PRIu32 ", which holds only embedding and output layer; those stay on the head",
                   i);
        return;
    }
    uint32_t n = manifest ? kin_manifest_chunk(manifest, i).bytes : 0;
    if (manifest && (m->offset > n || m->length > n - m->offset)) {
        end_client(c, "%" PRIu32 " bytes at offset %" PRIu32 " of chunk %" PRIu32 " were requested, but its size is %" PRIu32,
                   m->length, m->offset, i, n);
        return;
    }
    request *r = new_request(c);
    if (!r) return;
    *r = (request){.kind = WANTS_BYTES, .i_chunk = i, .at = m->offset, .end = m->offset + m->length};
    if (!manifest) *r = (request){.kind = GETS_LACK, .i_chunk = KIN_PROTO_NO_CHUNK};
    read_next(s);
}

static void on_client_frame(void *user, kin_link *link, const kin_frame *frame, const uint8_t *payload) {
    client *c = user;
    kin_err err;
    kin_proto_hashes_wanted wanted;
    kin_proto_get get;
    (void)link;
    if (frame->type == KIN_FRAME_GET) {
        if (kin_proto_decode_get(payload, frame->length, &get, &err) == 0)
            handle_get(c, &get);
        else
            end_client(c, "%s", err.text);
    } else if (frame->type == KIN_FRAME_HASHES_WANTED) {
        if (kin_proto_decode_hashes_wanted(payload, frame->length, &wanted, &err) == 0)
            handle_hashes_wanted(c, &wanted);
        else
            end_client(c, "%s", err.text);
    } else {
        end_client(c, "the peer sent %s, but this link accepts only requests for chunks", kin_frame_name(frame->type));
    }
}

static void on_drained(void *user, kin_link *link) {
    (void)link;
    read_next(((client *)user)->server);
}

static void on_client_closed(void *user, kin_link *link, const char *reason) {
    (void)link, (void)reason; // the link has logged it
    client *c = user;
    kin_chunk_server *s = c->server;
    forget_client(c);
    read_next(s);
}

// ---- open, close, owners

int kin_chunk_server_open(kin_chunk_server **out, uv_loop_t *loop, const kin_chunk_server_options *options, kin_err *err) {
    kin_chunk_server *s = *out = calloc(1, sizeof *s);
    if (!s) return kin_err_set(err, "out of memory");
    s->loop = loop;
    s->o = options ? *options : kin_chunk_server_options_default();
    kin_assert(s->o.n_links > 0 && s->o.n_reads > 0 && s->o.n_requests > 0 && s->o.n_requests <= REQUESTS_MAX);
    s->clients = calloc((size_t)s->o.n_links, sizeof *s->clients);
    if (s->clients) return 0;
    free(s);
    *out = NULL;
    return kin_err_set(err, "out of memory");
}

void kin_chunk_server_close(kin_chunk_server *s) {
    if (!s) return;
    for (int i = 0; i < s->o.n_links; i++) {
        client *c = s->clients[i];
        if (!c) continue;
        kin_link_close(c->link, "this device has stopped sharing models");
        forget_client(c);
    }
    kin_chunk_server_set_store(s, NULL);
    s->is_closed = true;
    if (s->n_reading == 0) free_share(s);
}

void kin_chunk_server_set_store(kin_chunk_server *s, kin_chunk_store *chunks) {
    if (chunks == s->chunks) return;
    if (chunks) kin_chunk_store_hold(chunks);
    kin_chunk_store_release(s->chunks);
    s->chunks = chunks;
    for (int i = 0; i < s->o.n_links; i++) { // pending requests refer to the former store
        client *c = s->clients[i];
        for (int k = 0; c && k < c->n; k++) {
            request *r = &c->requests[(c->first + k) % REQUESTS_MAX];
            if (r->kind != WANTS_PAGE) r->kind = GETS_LACK;
        }
        if (c && !c->is_reading) c->n_bytes = 0;
    }
    read_next(s);
}

int kin_chunk_server_give_pages(kin_chunk_server *s, const char *dir, kin_err *err) {
    kin_assert(!s->pages_dir);
    s->pages_dir = strdup(dir);
    return s->pages_dir ? 0 : kin_err_set(err, "out of memory");
}

void kin_chunk_server_accept(kin_chunk_server *s, kin_link *link) {
    static const kin_link_callbacks callbacks = {.frame = on_client_frame, .drained = on_drained, .closed = on_client_closed};
    int i = 0;
    while (i < s->o.n_links && s->clients[i]) i++;
    client *c = i < s->o.n_links ? calloc(1, sizeof *c) : NULL;
    if (c) c->bytes = malloc(KIN_FRAME_DATA_BYTES);
    if (!c || !c->bytes) {
        free(c);
        kin_link_close(link, "busy: too many devices are fetching the model");
        return;
    }
    c->server = s;
    c->link = link;
    c->work.data = c;
    s->clients[i] = c;
    s->stats.n_links++;
    kin_link_accept(link, &callbacks, c);
    kin_link_set_frame_max(link, KIN_LINK_FRAME_MAX_FIRST);
    kin_link_set_queue_max(link, QUEUE_BYTES);
}

kin_chunk_server_stats kin_chunk_server_stats_now(const kin_chunk_server *s) {
    return s->stats;
}
