#include "serve/http/http_request.h"

#include <llhttp.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/hex.h"
#include "pure/text/text_buffer.h"
#include "serve/http/json_cost.h"

enum {
    MAX_TARGET = 8 << 10, // bytes of path and query
    WASTE_PER_BYTE = 16   // bytes of chunk framing allowed per byte of the body
};

struct kin_http_request {
    llhttp_t parser;
    const char *prefix;
    const kin_http_limits *limits;
    kin_http_memory *memory;
    size_t n_counted; // counted in memory->used
    size_t n_of_body; // of these, the body's
    kin_json_cost json;
    uint64_t n_received;
    kin_text_buffer head; // the target NUL, then for each field its name NUL, its value NUL
    kin_text_buffer path; // decoded NUL, then for each query parameter its name NUL, its value NUL
    kin_text_buffer body;
    size_t fields_at, query_at; // in head, path
    bool has_head, is_whole, keeps_alive;
    kin_http_refusal refusal; // status 0: none
};

// ---- storing bytes

static int refuse(kin_http_request *r, int status, const char *message) {
    r->refusal = (kin_http_refusal){status, message};
    return HPE_USER;
}

static int no_memory(kin_http_request *r) {
    return refuse(r, 503, "The server is out of memory. Try again later.");
}

// Part of the memory is for small requests: they are not refused while a large one is computed, or freed after its answer.
static int count(kin_http_request *r, size_t n) {
    size_t reserve = r->memory->max / 32, own = r->n_counted + n;
    size_t most = own <= reserve / 4 ? r->memory->max : r->memory->max - reserve;
    if (own > most) return refuse(r, 413, "The request body has too many JSON values for this server's memory.");
    if (r->memory->used > most || n > most - r->memory->used) return no_memory(r);
    r->memory->used += n;
    r->n_counted += n;
    return 0;
}

static int keep(kin_http_request *r, kin_text_buffer *in, const char *bytes, size_t n) {
    if (count(r, n) != 0) return HPE_USER;
    kin_text_put(in, bytes, n);
    return in->failed ? no_memory(r) : 0;
}

static int keep_field(kin_http_request *r, const char *bytes, size_t n) {
    if (r->has_head) return 0; // a trailer
    if (n > r->limits->max_header - r->head.len) return refuse(r, 431, "The request header is too large.");
    return keep(r, &r->head, bytes, n);
}

static int on_url(llhttp_t *parser, const char *at, size_t n) {
    kin_http_request *r = parser->data;
    if (n > MAX_TARGET - r->head.len) return refuse(r, 414, "The request path is too long.");
    return keep_field(r, at, n);
}

static int on_field(llhttp_t *parser, const char *at, size_t n) {
    return keep_field(parser->data, at, n);
}

static int on_field_end(llhttp_t *parser) {
    return keep_field(parser->data, "", 1);
}

static int on_url_end(llhttp_t *parser) {
    kin_http_request *r = parser->data;
    int rc = keep_field(r, "", 1);
    r->fields_at = r->head.len;
    return rc;
}

// Removes white space after a value, which does not belong to it.
static int on_value_end(llhttp_t *parser) {
    kin_http_request *r = parser->data;
    if (r->has_head) return 0;
    kin_text_buffer *head = &r->head;
    while (head->len > 0 && (head->at[head->len - 1] == ' ' || head->at[head->len - 1] == '\t')) head->len--;
    return keep_field(r, "", 1);
}

static int on_body(llhttp_t *parser, const char *at, size_t n) {
    kin_http_request *r = parser->data;
    if (n > r->limits->max_body - r->body.len) return refuse(r, 413, "The request body is too large.");
    size_t before = r->n_counted, n_json = r->json.bytes;
    kin_json_cost_feed(&r->json, at, n);
    if (count(r, r->json.bytes - n_json) != 0 || keep(r, &r->body, at, n) != 0) return HPE_USER;
    r->n_of_body += r->n_counted - before;
    return 0;
}

// ---- the complete header

// Returns the first value of `name` among the pairs from `at` on; *n: the number of matches.
static kin_str find(const kin_text_buffer *pairs, size_t at, const char *name, int (*compare)(const char *, const char *),
                    int *n) {
    kin_str found = {NULL, 0};
    *n = 0;
    while (at < pairs->len) {
        const char *key = pairs->at + at, *value = key + strlen(key) + 1;
        size_t len = strlen(value);
        if (compare(key, name) == 0 && (*n)++ == 0) found = (kin_str){value, len};
        at = (size_t)(value + len + 1 - pairs->at);
    }
    return found;
}

// Returns false for an invalid escape, or one that stands for NUL.
static bool put_decoded(kin_text_buffer *to, kin_str from, bool is_query) {
    for (size_t i = 0; i < from.len; i++) {
        uint8_t c = (uint8_t)from.at[i];
        if (c == '%') {
            if (from.len - i < 3 || kin_hex_get(&c, from.at + i + 1, 1) != 0 || c == 0) return false;
            i += 2;
        } else if (c == '+' && is_query) {
            c = ' ';
        }
        kin_text_put(to, (const char *)&c, 1);
    }
    kin_text_put(to, "", 1);
    return true;
}

// Cuts the part before the first `c`, and the `c`, off the front of *rest.
static kin_str cut(kin_str *rest, char c) {
    const char *end = rest->len > 0 ? memchr(rest->at, c, rest->len) : NULL;
    kin_str front = {rest->at, end ? (size_t)(end - rest->at) : rest->len};
    size_t n = front.len + (end != NULL);
    *rest = (kin_str){rest->at + n, rest->len - n};
    return front;
}

static bool put_query(kin_http_request *r, kin_str query) {
    while (query.len > 0) {
        kin_str value = cut(&query, '&'), name = cut(&value, '=');
        if (name.len > 0 && !(put_decoded(&r->path, name, true) && put_decoded(&r->path, value, true))) return false;
    }
    return true;
}

// Proxies get "http://host/path" for "/path".
static kin_str without_origin(kin_str target) {
    if (target.len < 7 || strncasecmp(target.at, "http", 4) != 0) return target;
    const char *origin = memmem(target.at, target.len, "://", 3);
    if (!origin) return target;
    size_t n = (size_t)(origin + 3 - target.at);
    const char *path = memchr(target.at + n, '/', target.len - n);
    return path ? (kin_str){path, target.len - (size_t)(path - target.at)} : (kin_str){"/", 1};
}

static int decode_target(kin_http_request *r) {
    kin_str target = without_origin((kin_str){r->head.at, strlen(r->head.at)});
    kin_str query = cut(&target, '#'), path = cut(&query, '?');
    size_t n = r->prefix ? strlen(r->prefix) : 0;
    if (n > 0 && (path.len < n || memcmp(path.at, r->prefix, n) != 0 || (path.len > n && path.at[n] != '/')))
        return refuse(r, 404, "Not found. The server was started with --api-prefix.");
    path = n > 0 && path.len == n ? (kin_str){"/", 1} : (kin_str){path.at + n, path.len - n};
    if (path.len == 0 || (path.at[0] != '/' && !(path.len == 1 && path.at[0] == '*')))
        return refuse(r, 400, "The request path must begin with a slash.");
    bool is_right = put_decoded(&r->path, path, false);
    r->query_at = r->path.len;
    if (!is_right || !put_query(r, query)) return refuse(r, 400, "The request path has an invalid escape.");
    return r->path.failed ? no_memory(r) : 0;
}

static bool is_word(kin_str value, const char *word) {
    return value.len == strlen(word) && strncasecmp(value.at, word, value.len) == 0;
}

static int check_head(kin_http_request *r) {
    int n_host, n;
    const llhttp_t *p = &r->parser;
    find(&r->head, r->fields_at, "host", strcasecmp, &n_host);
    if (p->http_major != 1 || p->http_minor > 1) return refuse(r, 505, "This server supports HTTP/1.1 and HTTP/1.0 only.");
    if (p->method == HTTP_CONNECT) return refuse(r, 405, "This server is not a proxy.");
    if (n_host > 1 || (n_host == 0 && p->http_minor == 1)) return refuse(r, 400, "The request must have one Host header.");
    if (decode_target(r) != 0) return -1; // first, because the refusals below have the form of the path's API
    kin_str encoding = find(&r->head, r->fields_at, "transfer-encoding", strcasecmp, &n);
    if (n > 1 || (encoding.at && !is_word(encoding, "chunked")))
        return refuse(r, 501, "The only supported transfer encoding is chunked.");
    encoding = find(&r->head, r->fields_at, "content-encoding", strcasecmp, &n);
    if (n > 1 || (encoding.at && !is_word(encoding, "identity")))
        return refuse(r, 415, "Compressed bodies are not supported. Send the request without Content-Encoding.");
    if ((p->flags & F_CONTENT_LENGTH) && p->content_length > r->limits->max_body)
        return refuse(r, 413, "The request body is too large.");
    return 0;
}

static int on_head(llhttp_t *parser) {
    kin_http_request *r = parser->data;
    if (check_head(r) != 0) return -1;
    r->has_head = true;
    return HPE_PAUSED;
}

static int on_whole(llhttp_t *parser) {
    kin_http_request *r = parser->data;
    r->is_whole = true;
    r->keeps_alive = llhttp_should_keep_alive(parser);
    return HPE_PAUSED;
}

// ---- bytes in

static const llhttp_settings_t settings = {
    .on_url = on_url,
    .on_url_complete = on_url_end,
    .on_header_field = on_field,
    .on_header_field_complete = on_field_end,
    .on_header_value = on_field,
    .on_header_value_complete = on_value_end,
    .on_headers_complete = on_head,
    .on_body = on_body,
    .on_message_complete = on_whole,
};

kin_http_request *kin_http_request_new(const char *prefix, const kin_http_limits *limits, kin_http_memory *memory) {
    kin_http_request *r = calloc(1, sizeof *r);
    if (!r) return NULL;
    llhttp_init(&r->parser, HTTP_REQUEST, &settings);
    r->parser.data = r;
    r->prefix = prefix;
    r->limits = limits;
    r->memory = memory;
    return r;
}

void kin_http_request_free(kin_http_request *r) {
    if (!r) return;
    r->memory->used -= r->n_counted;
    kin_text_fini(&r->head);
    kin_text_fini(&r->path);
    kin_text_fini(&r->body);
    free(r);
}

static int refuse_malformed(kin_http_request *r, llhttp_errno_t error) {
    switch (error) {
    case HPE_PAUSED_H2_UPGRADE: return refuse(r, 505, "This server supports HTTP/1.1 and HTTP/1.0 only.");
    case HPE_INVALID_METHOD:
        return refuse(r, 400, "This is not an HTTP request. The server expects plain HTTP on this port, not HTTPS.");
    default: return refuse(r, 400, "The request is malformed.");
    }
}

// Limits bytes that the callbacks do not see: white space, chunk framing, trailers.
static int check_waste(kin_http_request *r) {
    uint64_t waste = r->n_received - r->body.len;
    if (!r->has_head && r->n_received > r->limits->max_header) return refuse(r, 431, "The request header is too large.");
    if (r->has_head && waste > 2 * r->limits->max_header + (uint64_t)WASTE_PER_BYTE * r->body.len)
        return refuse(r, 400, "The chunks of the request are too small.");
    return 0;
}

kin_http_progress kin_http_request_feed(kin_http_request *r, const char *bytes, size_t n, size_t *n_consumed) {
    llhttp_errno_t error = llhttp_execute(&r->parser, bytes, n);
    bool is_paused = error == HPE_PAUSED;
    *n_consumed = is_paused ? (size_t)(llhttp_get_error_pos(&r->parser) - bytes) : n;
    r->n_received += *n_consumed;
    if (is_paused) {
        llhttp_resume(&r->parser);
        return r->is_whole ? KIN_HTTP_WHOLE : KIN_HTTP_HEAD;
    }
    if (error != HPE_OK && r->refusal.status == 0) refuse_malformed(r, error);
    return r->refusal.status != 0 || check_waste(r) != 0 ? KIN_HTTP_REFUSED : KIN_HTTP_MORE;
}

// ---- inspection

kin_http_refusal kin_http_request_refusal(const kin_http_request *r) {
    return r->refusal;
}

uint64_t kin_http_request_n_received(const kin_http_request *r) {
    return r->n_received;
}

kin_str kin_http_request_method(const kin_http_request *r) {
    const char *name = llhttp_method_name(r->parser.method);
    return (kin_str){name, strlen(name)};
}

kin_str kin_http_request_path(const kin_http_request *r) {
    return r->path.at ? (kin_str){r->path.at, strlen(r->path.at)} : (kin_str){"", 0};
}

kin_str kin_http_request_query(const kin_http_request *r, const char *name) {
    int n;
    return find(&r->path, r->query_at, name, strcmp, &n);
}

kin_str kin_http_request_header(const kin_http_request *r, const char *name) {
    int n;
    return find(&r->head, r->fields_at, name, strcasecmp, &n);
}

bool kin_http_request_is_head(const kin_http_request *r) {
    return r->parser.method == HTTP_HEAD;
}

bool kin_http_request_is_1_0(const kin_http_request *r) {
    return r->parser.http_minor == 0;
}

bool kin_http_request_expects_continue(const kin_http_request *r) {
    return r->parser.http_minor == 1 && is_word(kin_http_request_header(r, "expect"), "100-continue");
}

bool kin_http_request_keeps_alive(const kin_http_request *r) {
    return r->keeps_alive;
}

kin_str kin_http_request_body(const kin_http_request *r) {
    return (kin_str){r->body.at, r->body.len};
}

char *kin_http_request_detach_body(kin_http_request *r, size_t *n, kin_http_hold *hold) {
    char *body = r->body.at;
    *n = r->body.len;
    *hold = (kin_http_hold){r->memory, r->n_of_body};
    r->memory->n_holds++;
    r->n_counted -= r->n_of_body;
    r->n_of_body = 0;
    r->body = (kin_text_buffer){0};
    return body;
}

void kin_http_request_give_body(kin_http_request *r, char *body, size_t n, kin_http_hold *hold) {
    r->body = (kin_text_buffer){.at = body, .len = n, .cap = n};
    r->n_of_body = hold->bytes;
    r->n_counted += hold->bytes;
    r->memory->n_holds--;
    *hold = (kin_http_hold){0};
}
