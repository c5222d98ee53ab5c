#include <ctype.h>
#include <llhttp.h>
#include <string.h>
#include <time.h>

#include "serve/apis/openai/openai_json.h"
#include "serve/http/http_exchange_impl.h"

void kin_http_exchange_reset(kin_http_exchange *x) {
    kin_http_request_free(x->request);
    kin_text_fini(&x->header);
    x->request = NULL;
    x->answer = KIN_HTTP_UNANSWERED;
    x->closes = x->is_chunked = false;
    x->data = NULL;
}

// ---- the request

kin_str kin_http_method(const kin_http_exchange *x) {
    return kin_http_request_is_head(x->request) ? (kin_str){"GET", 3} : kin_http_request_method(x->request);
}

kin_str kin_http_path(const kin_http_exchange *x) {
    return kin_http_request_path(x->request);
}

kin_str kin_http_query(const kin_http_exchange *x, const char *name) {
    return kin_http_request_query(x->request, name);
}

kin_str kin_http_header(const kin_http_exchange *x, const char *name) {
    return kin_http_request_header(x->request, name);
}

kin_str kin_http_body(const kin_http_exchange *x) {
    return kin_http_request_body(x->request);
}

char *kin_http_detach_body(kin_http_exchange *x, size_t *n, kin_http_hold *hold) {
    return kin_http_request_detach_body(x->request, n, hold);
}

void kin_http_give_body(kin_http_exchange *x, char *body, size_t n, kin_http_hold *hold) {
    kin_http_request_give_body(x->request, body, n, hold);
}

void kin_http_release(kin_http_hold *hold) {
    kin_http_memory *m = hold->memory;
    if (!m) return;
    m->used -= hold->bytes;
    *hold = (kin_http_hold){0};
    if (--m->n_holds == 0 && m->released) m->released(m->user);
}

void kin_http_set_data(kin_http_exchange *x, void *data) {
    x->data = data;
}

void *kin_http_data(const kin_http_exchange *x) {
    return x->data;
}

// ---- the header of the response

static void put(kin_text_buffer *out, const char *text) {
    kin_text_put(out, text, strlen(text));
}

// Replaces control characters: a line break in the value would begin another field.
static void put_field(kin_text_buffer *out, const char *name, const char *value) {
    put(out, name);
    put(out, ": ");
    size_t at = out->len;
    put(out, value);
    for (; !out->failed && at < out->len; at++)
        if ((unsigned char)out->at[at] < ' ') out->at[at] = ' ';
    put(out, "\r\n");
}

// "NOT_FOUND" as "Not Found".
static void put_reason(kin_text_buffer *out, int status) {
    const char *name = llhttp_status_name((llhttp_status_t)status);
    for (size_t i = 0; name[i]; i++) {
        bool is_first = i == 0 || name[i - 1] == '_';
        char c = name[i] == '_' ? ' ' : (char)(is_first || status == 200 ? name[i] : tolower((unsigned char)name[i]));
        kin_text_put(out, &c, 1);
    }
    put(out, "\r\n");
}

// In English, whatever the locale.
static void put_date(kin_text_buffer *out) {
    static const char *days[] = {"Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"};
    static const char *months[] = {"Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"};
    time_t now = time(NULL);
    struct tm t;
    if (!gmtime_r(&now, &t)) return;
    kin_text_print(out, "Date: %s, %02d %s %d %02d:%02d:%02d GMT\r\n", days[t.tm_wday], t.tm_mday, months[t.tm_mon],
                   t.tm_year + 1900, t.tm_hour, t.tm_min, t.tm_sec);
}

static bool has_body(int status) {
    return status >= 200 && status != 204 && status != 304;
}

// n: bytes of the body; NULL: not known.
static void put_head(kin_http_exchange *x, kin_text_buffer *out, int status, const char *type, const size_t *n) {
    bool is_1_0 = kin_http_request_is_1_0(x->request);
    kin_text_print(out, "HTTP/1.1 %d ", status);
    put_reason(out, status);
    put_date(out);
    if (type) put_field(out, "Content-Type", type);
    if (n && has_body(status)) kin_text_print(out, "Content-Length: %zu\r\n", *n);
    if (x->is_chunked) put(out, "Transfer-Encoding: chunked\r\n");
    if (x->closes)
        put(out, "Connection: close\r\n");
    else if (is_1_0)
        put(out, "Connection: keep-alive\r\n");
    put_field(out, "x-request-id", x->id);
    if (x->header.len > 0) kin_text_put(out, x->header.at, x->header.len);
    put(out, "\r\n");
}

void kin_http_add_header(kin_http_exchange *x, const char *name, const char *value) {
    kin_assert(x->answer == KIN_HTTP_UNANSWERED);
    put_field(&x->header, name, value);
}

// ---- the response

static void send(kin_http_exchange *x, kin_text_buffer *out) {
    x->send(x, out);
    kin_text_fini(out);
}

static void end(kin_http_exchange *x) {
    x->answer = KIN_HTTP_ANSWERED;
    x->ended(x);
}

void kin_http_reply(kin_http_exchange *x, int status, const char *type, const void *body, size_t n) {
    kin_text_buffer out = {0};
    kin_assert(x->answer == KIN_HTTP_UNANSWERED);
    put_head(x, &out, status, type, &n);
    if (n > 0 && has_body(status) && !kin_http_request_is_head(x->request)) kin_text_put(&out, body, n);
    send(x, &out);
    end(x);
}

void kin_http_reply_error(kin_http_exchange *x, int status, const char *message) {
    kin_api_error error;
    kin_text_buffer body = {0};
    kin_api_error_set(&error, status, NULL, "%s", message);
    if (x->refusal)
        x->refusal(kin_http_path(x), &error, &body);
    else
        kin_openai_put_error(&error, &body);
    kin_http_reply(x, status, "application/json; charset=utf-8", body.at ? body.at : "", body.len);
    kin_text_fini(&body);
}

void kin_http_begin(kin_http_exchange *x, int status, const char *type) {
    kin_text_buffer out = {0};
    kin_assert(x->answer == KIN_HTTP_UNANSWERED && has_body(status));
    x->answer = KIN_HTTP_STREAMING;
    x->is_chunked = !kin_http_request_is_1_0(x->request);
    if (!x->is_chunked) x->closes = true; // the end of the connection marks the end of the body
    put_head(x, &out, status, type, NULL);
    send(x, &out);
}

bool kin_http_has_begun(const kin_http_exchange *x) {
    return x->answer == KIN_HTTP_STREAMING;
}

void kin_http_write(kin_http_exchange *x, const void *bytes, size_t n) {
    kin_text_buffer out = {0};
    kin_assert(x->answer == KIN_HTTP_STREAMING);
    if (n == 0 || kin_http_request_is_head(x->request)) return;
    if (x->is_chunked) kin_text_print(&out, "%zx\r\n", n);
    kin_text_put(&out, bytes, n);
    if (x->is_chunked) put(&out, "\r\n");
    send(x, &out);
}

void kin_http_end(kin_http_exchange *x) {
    kin_text_buffer out = {0};
    kin_assert(x->answer == KIN_HTTP_STREAMING);
    if (x->is_chunked && !kin_http_request_is_head(x->request)) put(&out, "0\r\n\r\n");
    if (out.len > 0) send(x, &out);
    end(x);
}

size_t kin_http_unsent(const kin_http_exchange *x) {
    return x->unsent(x);
}

// ---- tunnels

void kin_http_upgrade(kin_http_exchange *x, const char *protocol, const kin_http_tunnel *tunnel) {
    kin_text_buffer out = {0};
    kin_assert(x->answer == KIN_HTTP_UNANSWERED);
    x->answer = KIN_HTTP_ANSWERED;
    x->tunnel = *tunnel;
    put(&out, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\n");
    put_field(&out, "Upgrade", protocol);
    if (x->header.len > 0) kin_text_put(&out, x->header.at, x->header.len);
    put(&out, "\r\n");
    send(x, &out);
    x->upgraded(x);
}

void kin_http_tunnel_send(kin_http_exchange *x, const void *bytes, size_t n) {
    kin_text_buffer out = {.at = (char *)bytes, .len = n, .cap = n}; // borrowed
    if (n > 0) x->send(x, &out);
}

size_t kin_http_tunnel_pending(const kin_http_exchange *x) {
    return x->pending(x);
}

void kin_http_tunnel_close(kin_http_exchange *x) {
    x->close(x);
}
