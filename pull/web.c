#ifdef KIN_HAVE_CURL
#include "pull/web.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "base/clock.h"
#include "pull/web_impl.h"
#include "sys/io.h"

enum { MAX_REDIRECTS = 8, CONNECT_S = 20, STALLED_S = 30, DOCUMENT_S = 120, BUFFER_BYTES = 256 << 10 };

bool kin_web_is_there(void) {
    return true;
}

const char *kin_web_library(void) {
    return curl_version_info(CURLVERSION_NOW)->version;
}

// ---- the answer's header

// Returns the value of "NAME: VALUE\r\n" without white space around it; NULL if the line has another name.
static const char *value_of(const char *line, size_t n, const char *name, size_t *n_value) {
    size_t n_name = strlen(name);
    if (n <= n_name || strncasecmp(line, name, n_name) != 0 || line[n_name] != ':') return NULL;
    const char *at = line + n_name + 1, *end = line + n;
    while (at < end && (*at == ' ' || *at == '\t')) at++;
    while (end > at && (unsigned char)end[-1] <= ' ') end--;
    *n_value = (size_t)(end - at);
    return at;
}

static void copy_text(char *to, size_t size, const char *at, size_t n) {
    if (n >= size) n = 0;
    memcpy(to, at, n);
    to[n] = '\0';
}

// Without quotes; a weak ETag does not identify bytes and is dropped.
static void read_etag(char *to, size_t size, const char *at, size_t n) {
    bool is_quoted = n >= 2 && at[0] == '"' && at[n - 1] == '"';
    copy_text(to, size, is_quoted ? at + 1 : at, is_quoted ? n - 2 : at[0] == 'W' ? 0 : n);
}

// "bytes 0-99/1000"
static void read_range(kin_web_answer *a, const char *at, size_t n) {
    char text[100];
    copy_text(text, sizeof text, at, n);
    uint64_t end;
    a->has_range = sscanf(text, "bytes %" SCNu64 "-%" SCNu64 "/%" SCNu64, &a->begin, &end, &a->total) == 3;
    if (!a->has_range) a->total = 0;
}

// <https://...>; rel="next"
static void read_next(kin_web_answer *a, const char *at, size_t n) {
    char text[2000];
    copy_text(text, sizeof text, at, n);
    char *rel = strstr(text, "rel=\"next\""), *end = strchr(text, '>');
    if (rel && end && end < rel && text[0] == '<') copy_text(a->next, sizeof a->next, text + 1, (size_t)(end - text - 1));
}

static size_t on_header(char *line, size_t size, size_t n, void *user) {
    kin_web_answer *a = user;
    size_t len;
    const char *v;
    n *= size;
    if (n > 5 && strncmp(line, "HTTP/", 5) == 0) { // of the next answer, after a redirect
        char linked[sizeof a->linked_etag];
        memcpy(linked, a->linked_etag, sizeof linked);
        *a = (kin_web_answer){.retry_after_s = -1};
        memcpy(a->linked_etag, linked, sizeof linked);
    }
    if ((v = value_of(line, n, "etag", &len))) read_etag(a->etag, sizeof a->etag, v, len);
    if ((v = value_of(line, n, "x-linked-etag", &len))) read_etag(a->linked_etag, sizeof a->linked_etag, v, len);
    if ((v = value_of(line, n, "x-error-code", &len))) copy_text(a->error_code, sizeof a->error_code, v, len);
    if ((v = value_of(line, n, "content-type", &len))) copy_text(a->content_type, sizeof a->content_type, v, len);
    if ((v = value_of(line, n, "content-range", &len))) read_range(a, v, len);
    if ((v = value_of(line, n, "link", &len))) read_next(a, v, len);
    if ((v = value_of(line, n, "accept-ranges", &len))) a->accepts_ranges = len == 5 && strncasecmp(v, "bytes", 5) == 0;
    if ((v = value_of(line, n, "content-length", &len)) && a->total == 0) a->total = strtoull(v, NULL, 10);
    if ((v = value_of(line, n, "retry-after", &len))) // seconds, or a date, which libcurl would have to parse
        a->retry_after_s = *v >= '0' && *v <= '9' ? strtod(v, NULL) : 5;
    return n;
}

// ---- requests

static void init_curl(void) {
    curl_global_init(CURL_GLOBAL_DEFAULT);
}

static int on_progress(void *user, curl_off_t a, curl_off_t b, curl_off_t c, curl_off_t d) {
    const atomic_bool *stop = user;
    (void)a, (void)b, (void)c, (void)d;
    return stop && atomic_load(stop);
}

static void add_header(struct curl_slist **list, const char *name, const char *value) {
    char line[1200];
    snprintf(line, sizeof line, "%s: %s", name, value);
    struct curl_slist *longer = curl_slist_append(*list, line);
    if (longer) *list = longer;
}

// Paths at which systems store their certificate authorities.
static const char *const authority_files[] = {"/etc/ssl/certs/ca-certificates.crt", // Debian, Arch, Alpine
                                              "/etc/pki/tls/certs/ca-bundle.crt",   // Fedora
                                              "/etc/ssl/ca-bundle.pem",             // openSUSE
                                              "/etc/ssl/cert.pem",                  // macOS, BSD
                                              "/data/data/com.termux/files/usr/etc/tls/cert.pem"};

static bool is_readable(const char *path) {
    return path && path[0] && access(path, R_OK) == 0;
}

// True if libcurl finds authorities where the system on which it was built keeps them.
static bool has_default_authorities(void) {
    const curl_version_info_data *built = curl_version_info(CURLVERSION_NOW);
    return is_readable(built->cainfo) || is_readable(built->capath);
}

// Returns the file of certificate authorities for libcurl; NULL: its default. A program that runs on another system than the one
// on which it was built looks where that keeps them.
static const char *find_authorities(void) {
    const char *named = getenv("SSL_CERT_FILE");
    if (named && named[0]) return named;
    for (size_t i = 0; i < sizeof authority_files / sizeof *authority_files && !has_default_authorities(); i++)
        if (is_readable(authority_files[i])) return authority_files[i];
    return NULL;
}

CURL *kin_web_request_new(const kin_web_request *r, kin_web_answer *answer, struct curl_slist **headers) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, init_curl);
    CURL *c = curl_easy_init();
    *headers = NULL;
    if (!c) return NULL;
    const char *authorities = find_authorities();
    bool is_secure = strncasecmp(r->url, "https:", 6) == 0;
    if (authorities) curl_easy_setopt(c, CURLOPT_CAINFO, authorities);
    if (r->accept) add_header(headers, "Accept", r->accept);
    if (r->token) { // libcurl sends it to no other host after a redirect
        curl_easy_setopt(c, CURLOPT_HTTPAUTH, CURLAUTH_BEARER);
        curl_easy_setopt(c, CURLOPT_XOAUTH2_BEARER, r->token);
    } else {
        curl_easy_setopt(c, CURLOPT_NETRC, (long)CURL_NETRC_OPTIONAL);
    }
    curl_easy_setopt(c, CURLOPT_URL, r->url);
    curl_easy_setopt(c, CURLOPT_HTTPHEADER, *headers);
    curl_easy_setopt(c, CURLOPT_USERAGENT, "kin/" KIN_VERSION);
    curl_easy_setopt(c, CURLOPT_PROTOCOLS_STR, is_secure ? "https" : "http,https");
    curl_easy_setopt(c, CURLOPT_REDIR_PROTOCOLS_STR, is_secure ? "https" : "http,https");
    curl_easy_setopt(c, CURLOPT_FOLLOWLOCATION, 1L);
    curl_easy_setopt(c, CURLOPT_MAXREDIRS, (long)MAX_REDIRECTS);
    curl_easy_setopt(c, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1); // a connection of its own for each range
    curl_easy_setopt(c, CURLOPT_NOSIGNAL, 1L);
    kin_io_block_sigpipe(); // threads inherit it: libcurl's thread for a name may write to a socket that is closed meanwhile
    curl_easy_setopt(c, CURLOPT_BUFFERSIZE, (long)BUFFER_BYTES);
    curl_easy_setopt(c, CURLOPT_CONNECTTIMEOUT, (long)CONNECT_S);
    curl_easy_setopt(c, CURLOPT_LOW_SPEED_LIMIT, 1L);
    curl_easy_setopt(c, CURLOPT_LOW_SPEED_TIME, (long)STALLED_S);
    curl_easy_setopt(c, CURLOPT_HEADERFUNCTION, on_header);
    curl_easy_setopt(c, CURLOPT_HEADERDATA, answer);
    curl_easy_setopt(c, CURLOPT_NOPROGRESS, 0L);
    curl_easy_setopt(c, CURLOPT_XFERINFOFUNCTION, on_progress);
    curl_easy_setopt(c, CURLOPT_XFERINFODATA, (void *)(uintptr_t)r->stop);
    *answer = (kin_web_answer){.retry_after_s = -1};
    return c;
}

// ---- failures

bool kin_web_may_recover(CURLcode code, int status) {
    switch (code) {
    case CURLE_OK: return status == 408 || status == 429 || status >= 500;
    case CURLE_COULDNT_RESOLVE_HOST:
    case CURLE_COULDNT_CONNECT:
    case CURLE_PARTIAL_FILE:
    case CURLE_OPERATION_TIMEDOUT:
    case CURLE_GOT_NOTHING:
    case CURLE_SEND_ERROR:
    case CURLE_RECV_ERROR:
    case CURLE_SSL_CONNECT_ERROR:
    case CURLE_HTTP2:
    case CURLE_HTTP2_STREAM: return true;
    default: return false;
    }
}

double kin_web_wait_s(const kin_web_answer *answer, int n_failed) {
    double wait_s = 0.25 * (double)(1 << (n_failed - 1)); // 0.25, 0.5, 1, 2, ...
    return answer->retry_after_s > wait_s ? answer->retry_after_s : wait_s;
}

// Returns the host of a URL with its port, but without a password. *n: its length.
static const char *host_of(const char *url, size_t *n) {
    const char *host = strstr(url, "://");
    host = host ? host + 3 : url;
    *n = strcspn(host, "/?#");
    for (const char *at; (at = memchr(host, '@', *n)) != NULL; host = at + 1) *n -= (size_t)(at + 1 - host);
    return host;
}

int kin_web_failed(const char *url, CURLcode code, const char *detail, kin_err *err) {
    size_t n;
    const char *host = host_of(url, &n);
    bool is_unverified = code == CURLE_PEER_FAILED_VERIFICATION || code == CURLE_SSL_CACERT_BADFILE;
    if (is_unverified && !find_authorities() && !has_default_authorities())
        return kin_err_set(
            err,
            "%.*s: this system has no list of certificate authorities: install the package ca-certificates, or set "
            "SSL_CERT_FILE to a list (https://curl.se/ca/cacert.pem)",
            (int)n, host);
    if (code == CURLE_COULDNT_RESOLVE_HOST)
        return kin_err_set(err, "cannot resolve the name %.*s: is this machine connected to the internet?", (int)n, host);
    return kin_err_set(err, "%.*s: %s", (int)n, host, detail && detail[0] ? detail : curl_easy_strerror(code));
}

int kin_web_refused(const char *what, const kin_web_answer *a, kin_err *err) {
    switch (a->status) {
    case 401:
    case 403:
        if (strcmp(a->error_code, "GatedRepo") == 0)
            return kin_err_set(
                err, "%s is gated: accept its terms on its page in a browser, then set HF_TOKEN to a token of your account",
                what);
        return kin_err_set(
            err, "%s: the server refuses access (%d): it does not exist, or needs an account; for Hugging Face set HF_TOKEN",
            what, a->status);
    case 404: return kin_err_set(err, "%s does not exist", what);
    case 429:
        if (a->retry_after_s > 0)
            return kin_err_set(err, "%s: the server accepts no more requests for now; try again in %.0f s", what,
                               a->retry_after_s);
        return kin_err_set(err, "%s: the server accepts no more requests for now; try again later", what);
    default: return kin_err_set(err, "%s: the server answered with status %d", what, a->status);
    }
}

// Sleeps, but not longer than until the user stops the program.
static bool wait_for(double wait_s, const atomic_bool *stop) {
    kin_time begun = kin_clock_now();
    CURLM *multi = curl_multi_init(); // its poll is a sleep
    while (multi && kin_clock_ms(begun, kin_clock_now()) < 1000 * wait_s && !(stop && atomic_load(stop)))
        curl_multi_poll(multi, NULL, 0, 50, NULL);
    curl_multi_cleanup(multi);
    return !(stop && atomic_load(stop));
}

// ---- documents

typedef struct document {
    char *at; // [len + 1]
    size_t len, cap, max;
    bool is_too_large, is_too_slow;
} document;

static size_t on_body(char *from, size_t size, size_t n, void *user) {
    document *d = user;
    n *= size;
    if (n > d->max - d->len) {
        d->is_too_large = true;
        return 0;
    }
    if (d->len + n + 1 > d->cap) {
        size_t cap = 2 * (d->len + n + 1);
        char *larger = realloc(d->at, cap);
        if (!larger) return 0;
        d->at = larger;
        d->cap = cap;
    }
    memcpy(d->at + d->len, from, n);
    d->len += n;
    d->at[d->len] = '\0';
    return n;
}

// Performs a request once. Returns libcurl's code; a failure's sentence is in err.
static CURLcode perform(const kin_web_request *r, kin_web_answer *answer, document *d, const char *range, kin_err *err) {
    char detail[CURL_ERROR_SIZE] = "";
    struct curl_slist *headers;
    CURL *c = kin_web_request_new(r, answer, &headers);
    if (!c) {
        kin_err_set(err, "out of memory");
        return CURLE_OUT_OF_MEMORY;
    }
    long status = 0;
    curl_easy_setopt(c, CURLOPT_ERRORBUFFER, detail);
    curl_easy_setopt(c, CURLOPT_WRITEFUNCTION, on_body);
    curl_easy_setopt(c, CURLOPT_WRITEDATA, d);
    if (range) {
        curl_easy_setopt(c, CURLOPT_RANGE, range);
    } else {
        curl_easy_setopt(c, CURLOPT_MAXFILESIZE_LARGE, (curl_off_t)d->max);
    }
    curl_easy_setopt(c, CURLOPT_TIMEOUT, (long)DOCUMENT_S);
    CURLcode code = curl_easy_perform(c);
    curl_easy_getinfo(c, CURLINFO_RESPONSE_CODE, &status);
    answer->status = (int)status;
    if (code == CURLE_FILESIZE_EXCEEDED) d->is_too_large = true;
    double took_s = 0;
    curl_easy_getinfo(c, CURLINFO_TOTAL_TIME, &took_s);
    d->is_too_slow = code == CURLE_OPERATION_TIMEDOUT && took_s >= DOCUMENT_S - 1;
    if (code != CURLE_OK) kin_web_failed(r->url, code, detail, err);
    curl_easy_cleanup(c);
    curl_slist_free_all(headers);
    return code;
}

typedef struct shown_host {
    char text[256];
} shown_host;

// Only the host is shown of a URL, because the rest may hold a password.
static shown_host show_host(const char *url) {
    shown_host shown;
    size_t n;
    const char *host = host_of(url, &n);
    snprintf(shown.text, sizeof shown.text, "%.*s", (int)n, host);
    return shown;
}

// Without a network no name is resolved, and the user shall know that at once.
static int max_tries(CURLcode code) {
    return code == CURLE_COULDNT_RESOLVE_HOST ? 2 : KIN_WEB_MAX_TRIES;
}

// Performs it again while that may help. max: of the body; more ends it, which is no failure for a probe.
static int perform_patiently(const kin_web_request *r, kin_web_answer *answer, document *d, const char *range, kin_err *err) {
    for (int n_failed = 1;; n_failed++) {
        d->len = 0;
        CURLcode code = perform(r, answer, d, range, err);
        if (d->is_too_large)
            return range ? 0
                         : kin_err_set(err, "%s sent more than %zu bytes for a list of files", show_host(r->url).text, d->max);
        if (r->stop && atomic_load(r->stop)) return kin_err_set(err, "stopped");
        double wait_s = kin_web_wait_s(answer, n_failed);
        bool goes_on = kin_web_may_recover(code, answer->status) && !d->is_too_slow && n_failed < max_tries(code) &&
                       wait_s <= KIN_WEB_MAX_WAIT_S;
        if (!goes_on) return code == CURLE_OK ? 0 : KIN_FAIL;
        if (!wait_for(wait_s, r->stop)) return kin_err_set(err, "stopped");
    }
}

int kin_web_get(const kin_web_request *request, kin_web_answer *answer, char **body, size_t *len, kin_err *err) {
    document d = {.max = request->max};
    int rc = perform_patiently(request, answer, &d, NULL, err);
    if (rc == 0 && answer->status != 200) rc = kin_web_refused(show_host(request->url).text, answer, err);
    if (rc == 0 && !d.at) rc = kin_err_set(err, "%s sent an empty answer", show_host(request->url).text);
    if (rc == 0 && strncmp(answer->content_type, "text/html", 9) == 0)
        rc =
            kin_err_set(err, "%s sent a web page in place of a list of files: perhaps this network asks for a login in a browser",
                        show_host(request->url).text);
    if (rc != 0) {
        free(d.at);
        d = (document){0};
    }
    *body = d.at;
    *len = d.len;
    return rc;
}

int kin_web_probe(const kin_web_request *request, kin_web_answer *answer, kin_err *err) {
    document d = {.max = 64};
    int rc = perform_patiently(request, answer, &d, "0-3", err);
    free(d.at);
    if (rc == 0 && answer->status != 200 && answer->status != 206) rc = kin_web_refused(request->url, answer, err);
    return rc;
}

int kin_web_head(const kin_web_request *request, uint64_t n, char **head, size_t *len, kin_err *err) {
    kin_web_answer answer;
    document d = {.max = (size_t)n};
    char range[64];
    snprintf(range, sizeof range, "0-%" PRIu64, n - 1);
    int rc = perform_patiently(request, &answer, &d, range, err);
    if (rc == 0 && answer.status != 200 && answer.status != 206) rc = kin_web_refused(show_host(request->url).text, &answer, err);
    if (rc == 0 && !d.at) rc = kin_err_set(err, "%s sent an empty answer", show_host(request->url).text);
    if (rc != 0) free(d.at);
    *head = rc == 0 ? d.at : NULL;
    *len = rc == 0 ? d.len : 0;
    return rc;
}
#endif
