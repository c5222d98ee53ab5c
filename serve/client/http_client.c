#include "serve/client/http_client.h"

#include <errno.h>
#include <fcntl.h>
#include <llhttp.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "pure/text/text_buffer.h"
#include "serve/client/name_lookup.h"
#include "sys/tls.h"

enum {
    LOOK_MS = 100,     // interval for calling goes_on
    CONNECT_MS = 5000, // per address
    SILENT_S = 10,     // TCP keepalive: idle time before the first probe
    SIGN_S = 5,
    N_SIGNS = 3, // a lost machine is noticed after 25 seconds
    SILENT_MS = 30000,
    READ_BYTES = 16 << 10,
    MAX_HEAD = 64 << 10,
};

#ifndef MSG_NOSIGNAL
#define MSG_NOSIGNAL 0
#endif

struct kin_http_client {
    kin_http_client_options o;
    kin_http_url url;
    kin_tls_ctx *tls; // NULL: HTTP
};

typedef struct connection {
    kin_http_client *c;
    int fd;
    kin_tls *tls;
    llhttp_t parser;
    bool (*on_piece)(void *user, int status, kin_str piece);
    void *user;
    int status;
    size_t n_head;
    bool has_time; // no time limit for the answer
    bool has_head, is_whole, is_enough;
} connection;

// ---- addresses

int kin_http_url_parse(const char *text, kin_http_url *url, kin_err *err) {
    const char *at = text;
    *url = (kin_http_url){.port = 80};
    if (strncasecmp(at, "https://", 8) == 0) {
        url->is_tls = true;
        url->port = 443;
        at += 8;
    } else if (strncasecmp(at, "http://", 7) == 0) {
        at += 7;
    } else if (strstr(at, "://")) {
        return kin_err_set(err, "'%.100s': a URL must begin with http:// or https://", text);
    }
    bool is_v6 = *at == '[';
    at += is_v6;
    size_t n = strcspn(at, is_v6 ? "]" : ":/");
    if (n == 0 || n >= sizeof url->host || (is_v6 && at[n] != ']'))
        return kin_err_set(err, "'%.100s': the URL has no host", text);
    memcpy(url->host, at, n);
    at += n + is_v6;
    if (*at == ':') {
        char *end;
        unsigned long port = strtoul(at + 1, &end, 10);
        if (end == at + 1 || port == 0 || port > 65535)
            return kin_err_set(err, "'%.100s': the port must be from 1 to 65535", text);
        url->port = (uint16_t)port;
        at = end;
    }
    n = strlen(at);
    while (n > 0 && at[n - 1] == '/') n--;
    if (n >= 3 && memcmp(at + n - 3, "/v1", 3) == 0) n -= 3;
    if ((*at && *at != '/') || n >= sizeof url->path || strcspn(text, " \t\r\n\"<>") != strlen(text))
        return kin_err_set(err, "'%.100s' is not a server URL: must be http://HOST:PORT", text);
    memcpy(url->path, at, n);
    return 0;
}

// ---- a connection

static bool goes_on(const kin_http_client *c) {
    return !c->o.goes_on || c->o.goes_on(c->o.user);
}

// Waits until the socket is ready for `events`. Returns false if stopped, or later than `until` (0: no limit).
static bool wait_for(const connection *x, short events, kin_time until) {
    while (goes_on(x->c)) {
        struct pollfd p = {.fd = x->fd, .events = events};
        if (poll(&p, 1, LOOK_MS) > 0) return true;
        if (until && kin_clock_now() > until) return false;
    }
    return false;
}

static void set_options(int fd) {
    int one = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &one, sizeof one);
#ifdef TCP_KEEPIDLE
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &(int){SILENT_S}, sizeof(int));
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &(int){SIGN_S}, sizeof(int));
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &(int){N_SIGNS}, sizeof(int));
#endif
#ifdef TCP_USER_TIMEOUT
    setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &(int){1000 * (SILENT_S + N_SIGNS * SIGN_S)}, sizeof(int));
#endif
#ifdef SO_NOSIGPIPE
    setsockopt(fd, SOL_SOCKET, SO_NOSIGPIPE, &one, sizeof one);
#endif
}

// Returns 0, or an errno.
static int connect_one(connection *x, const struct addrinfo *to) {
    int why = 0;
    socklen_t n = sizeof why;
    x->fd = socket(to->ai_family, to->ai_socktype, to->ai_protocol);
    if (x->fd < 0) return errno;
    set_options(x->fd);
    fcntl(x->fd, F_SETFD, FD_CLOEXEC);
    fcntl(x->fd, F_SETFL, fcntl(x->fd, F_GETFL) | O_NONBLOCK);
    if (connect(x->fd, to->ai_addr, to->ai_addrlen) == 0) return 0;
    why = errno;
    if (why == EINPROGRESS) {
        why = ETIMEDOUT;
        if (wait_for(x, POLLOUT, kin_clock_now() + CONNECT_MS * UINT64_C(1000000)))
            getsockopt(x->fd, SOL_SOCKET, SO_ERROR, &why, &n);
    }
    if (why == 0) return 0;
    close(x->fd);
    x->fd = -1;
    return why;
}

static int lost(const kin_http_client *c, const char *why, kin_err *err) {
    return kin_err_set(err, "the server at %s:%u: %s", c->url.host, (unsigned)c->url.port, why);
}

static int connect_any(connection *x, kin_err *err) {
    const kin_http_client *c = x->c;
    struct addrinfo *list = NULL;
    int why = 0;
    if (kin_name_lookup(c->url.host, c->url.port, c->o.goes_on, c->o.user, &list, err) != 0) return KIN_FAIL;
    for (const struct addrinfo *a = list; a && x->fd < 0 && goes_on(c); a = a->ai_next) why = connect_one(x, a);
    freeaddrinfo(list);
    return x->fd >= 0 ? 0 : lost(c, strerror(why ? why : ECANCELED), err);
}

static int send_all(connection *x, const void *bytes, size_t n, kin_err *err) {
    const char *at = bytes;
    while (n > 0) {
        ssize_t sent = send(x->fd, at, n, MSG_NOSIGNAL);
        if (sent > 0) {
            at += sent;
            n -= (size_t)sent;
        } else if (sent < 0 && errno != EAGAIN && errno != EINTR) {
            return lost(x->c, strerror(errno), err);
        } else if (!wait_for(x, POLLOUT, 0)) {
            return kin_err_set(err, "stopped");
        }
    }
    return 0;
}

static int send_tls(connection *x, kin_err *err) {
    size_t n;
    const uint8_t *bytes = kin_tls_output(x->tls, &n);
    int rc = send_all(x, bytes, n, err);
    kin_tls_output_done(x->tls);
    return rc;
}

// Returns the number of bytes received, at least one; 0: end of stream; KIN_FAIL: stopped or lost.
static ssize_t receive(connection *x, char *bytes, size_t n, kin_err *err) {
    const kin_http_client *c = x->c;
    kin_time until = x->has_time ? 0 : kin_clock_now() + (uint64_t)c->o.silent_ms * UINT64_C(1000000);
    for (;;) {
        ssize_t got = recv(x->fd, bytes, n, 0);
        if (got >= 0) return got;
        if (errno != EAGAIN && errno != EINTR) return lost(c, strerror(errno), err);
        if (wait_for(x, POLLIN, until)) continue;
        return goes_on(c) ? lost(c, "it accepted the connection but does not answer", err) : kin_err_set(err, "stopped");
    }
}

// ---- the request

static int send_request(connection *x, const char *path, kin_str body, kin_err *err) {
    const kin_http_client *c = x->c;
    kin_text_buffer all = {0};
    bool is_v6 = strchr(c->url.host, ':') != NULL;
    kin_text_put(&all, body.at ? "POST " : "GET ", body.at ? 5 : 4);
    kin_text_put(&all, c->url.path, strlen(c->url.path));
    kin_text_put(&all, path, strlen(path));
    kin_text_print(&all, " HTTP/1.1\r\nHost: ");
    kin_text_put(&all, is_v6 ? "[" : "", is_v6);
    kin_text_put(&all, c->url.host, strlen(c->url.host));
    kin_text_put(&all, is_v6 ? "]" : "", is_v6);
    kin_text_print(&all, ":%u\r\nUser-Agent: kin/%s\r\nConnection: close\r\n", (unsigned)c->url.port, KIN_VERSION);
    if (c->o.api_key) {
        kin_text_print(&all, "Authorization: Bearer ");
        kin_text_put(&all, c->o.api_key, strlen(c->o.api_key));
        kin_text_print(&all, "\r\n");
    }
    if (body.at) kin_text_print(&all, "Content-Type: application/json\r\nContent-Length: %zu\r\n", body.len);
    kin_text_print(&all, "\r\n");
    kin_text_put(&all, body.at ? body.at : "", body.len);
    int rc = all.failed ? kin_err_set(err, "out of memory") : 0;
    if (rc == 0 && !x->tls) rc = send_all(x, all.at, all.len, err);
    if (rc == 0 && x->tls) rc = kin_tls_write(x->tls, all.at, all.len, err) == 0 ? send_tls(x, err) : KIN_FAIL;
    kin_text_fini(&all);
    return rc;
}

// ---- the answer

static int on_head(llhttp_t *parser) {
    connection *x = parser->data;
    x->has_head = parser->status_code >= 200; // 100 Continue comes before it
    x->status = x->has_head ? parser->status_code : 0;
    return 0;
}

static int on_body(llhttp_t *parser, const char *at, size_t n) {
    connection *x = parser->data;
    x->is_enough = !x->on_piece(x->user, x->status, (kin_str){at, n});
    return x->is_enough ? HPE_USER : 0;
}

static int on_whole(llhttp_t *parser) {
    connection *x = parser->data;
    x->is_whole = x->has_head;
    return x->is_whole ? HPE_PAUSED : 0;
}

static const llhttp_settings_t settings = {.on_headers_complete = on_head, .on_body = on_body, .on_message_complete = on_whole};

static int parse(connection *x, const char *bytes, size_t n, kin_err *err) {
    if (!x->has_head && (x->n_head += n) > MAX_HEAD) return lost(x->c, "its response header is too long", err);
    llhttp_errno_t rc = llhttp_execute(&x->parser, bytes, n);
    if (rc == HPE_OK || x->is_whole || x->is_enough) return 0;
    return lost(x->c, "its answer is not HTTP/1.1; check whether the URL needs https:// or http://", err);
}

// Parses the decrypted bytes of what was fed.
static int parse_plain(connection *x, kin_err *err) {
    char plain[READ_BYTES];
    size_t n_read;
    do {
        if (kin_tls_read(x->tls, plain, sizeof plain, &n_read, err) != 0) return KIN_FAIL;
        if (n_read > 0 && !x->is_whole && !x->is_enough && parse(x, plain, n_read, err) != 0) return KIN_FAIL;
    } while (n_read > 0);
    return 0;
}

static int handle_bytes(connection *x, const char *bytes, size_t n, kin_err *err) {
    if (!x->tls) return parse(x, bytes, n, err);
    if (kin_tls_feed(x->tls, bytes, n, err) != 0 || parse_plain(x, err) != 0) return KIN_FAIL;
    return send_tls(x, err); // for example a key update
}

static int open_tls(connection *x, kin_err *err) {
    char bytes[READ_BYTES];
    if (!x->c->tls) return 0;
    if (kin_tls_open(&x->tls, x->c->tls, true, err) != 0 || send_tls(x, err) != 0) return KIN_FAIL;
    while (kin_tls_state_now(x->tls) == KIN_TLS_HANDSHAKING) {
        ssize_t n = receive(x, bytes, sizeof bytes, err);
        if (n < 0) return KIN_FAIL;
        if (n == 0) return lost(x->c, "it closed the connection during the TLS handshake", err);
        kin_err why, dropped;
        if (kin_tls_feed(x->tls, bytes, (size_t)n, &why) != 0) {
            send_tls(x, &dropped); // the alert
            return lost(x->c, why.text, err);
        }
        if (parse_plain(x, err) != 0 || send_tls(x, err) != 0) return KIN_FAIL;
    }
    return 0;
}

static int read_answer(connection *x, kin_err *err) {
    char bytes[READ_BYTES];
    while (!x->is_whole && !x->is_enough) {
        ssize_t n = receive(x, bytes, sizeof bytes, err);
        if (n < 0) return KIN_FAIL;
        if (n == 0) llhttp_finish(&x->parser); // ends an answer without a length
        if (n == 0 && x->is_whole) return 0;
        if (n == 0) return lost(x->c, "it closed the connection before its answer was complete", err);
        if (handle_bytes(x, bytes, (size_t)n, err) != 0) return KIN_FAIL;
    }
    return 0;
}

kin_http_client_end kin_http_client_ask(kin_http_client *c, const char *path, kin_str body,
                                        bool (*on_piece)(void *user, int status, kin_str piece), void *user, int *status,
                                        kin_err *err) {
    connection x = {.c = c, .fd = -1, .on_piece = on_piece, .user = user};
    llhttp_init(&x.parser, HTTP_RESPONSE, &settings);
    x.parser.data = &x;
    int rc = connect_any(&x, err);
    if (rc == 0) rc = open_tls(&x, err);
    if (rc == 0) rc = send_request(&x, path, body, err);
    x.has_time = body.at != NULL;
    if (rc == 0) rc = read_answer(&x, err);
    kin_tls_close(x.tls);
    if (x.fd >= 0) close(x.fd);
    *status = x.status;
    if (x.is_enough || !goes_on(c)) return KIN_HTTP_CLIENT_STOPPED;
    return rc == 0 ? KIN_HTTP_CLIENT_DONE : KIN_HTTP_CLIENT_FAILED;
}

// ---- the client

int kin_http_client_open(kin_http_client **out, const kin_http_client_options *o, kin_err *err) {
    *out = NULL;
    kin_http_client *c = calloc(1, sizeof *c);
    if (!c) return kin_err_set(err, "out of memory");
    c->o = *o;
    if (c->o.silent_ms == 0) c->o.silent_ms = SILENT_MS;
    bool has_odd_key = o->api_key && strcspn(o->api_key, "\r\n") != strlen(o->api_key);
    int rc = has_odd_key ? kin_err_set(err, "an API key must be one line") : kin_http_url_parse(o->url, &c->url, err);
    if (rc == 0 && c->url.is_tls) rc = kin_tls_ctx_open_client(&c->tls, c->url.host, o->ca_file, err);
    if (rc == 0) {
        *out = c;
        return 0;
    }
    kin_http_client_close(c);
    return KIN_FAIL;
}

void kin_http_client_close(kin_http_client *c) {
    if (!c) return;
    kin_tls_ctx_close(c->tls);
    free(c);
}
