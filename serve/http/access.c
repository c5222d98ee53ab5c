#include "serve/http/access.h"

#include <openssl/crypto.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "net/address.h"
#include "serve/http/key_file.h"
#include "sys/sha256.h"

enum {
    MAX_KEYS = 1024,
    MAX_NAME = 254 // of a host, with the NUL
};

typedef struct key_hash {
    uint8_t bytes[KIN_SHA256_BYTES];
} key_hash;

typedef enum host_rule {
    ANY_HOST,
    OWN_HOSTS,  // names of this machine
    HOME_HOSTS, // and names that exist only in this network
} host_rule;

struct kin_access {
    host_rule hosts;
    char *allow_hosts; // NULL: none
    kin_cors cors;
    char *origins;  // for KIN_CORS_LIST
    key_hash *keys; // [n_keys]; n_keys 0: no key is needed
    int n_keys;
};

static bool is_any_case(kin_str s, const char *word) {
    return s.len == strlen(word) && strncasecmp(s.at, word, s.len) == 0;
}

// Cuts off the next word between `separators`; returns false at the end.
static bool next_word(const char **list, const char *separators, kin_str *word) {
    *list += strspn(*list, separators);
    *word = (kin_str){*list, strcspn(*list, separators)};
    *list += word->len;
    return word->len > 0;
}

// ---- keys

static int add_key(kin_access *a, kin_str key, const char *from, kin_err *err) {
    if (a->n_keys == MAX_KEYS) return kin_err_set(err, "%s: more than %d API keys", from, MAX_KEYS);
    return kin_sha256(key.at, key.len, a->keys[a->n_keys++].bytes, err);
}

static int has_any(const kin_access *a, int n_before, const char *from, kin_err *err) {
    return a->n_keys > n_before ? 0 : kin_err_set(err, "%s: contains no API key", from);
}

static int add_keys(kin_access *a, const char *list, const char *from, kin_err *err) {
    kin_str key;
    int n_before = a->n_keys;
    while (next_word(&list, ",", &key)) {
        if (add_key(a, key, from, err) != 0) return KIN_FAIL;
    }
    return has_any(a, n_before, from, err);
}

static int read_keys(kin_access *a, const char *path, kin_err *err) {
    kin_str key;
    char *text;
    int rc = kin_key_file_read(&text, path, err), n_before = a->n_keys;
    for (const char *at = text; rc == 0 && kin_key_file_next(&at, &key);) rc = add_key(a, key, path, err);
    kin_key_file_free(text);
    return rc == 0 ? has_any(a, n_before, path, err) : KIN_FAIL;
}

static bool is_key(const kin_access *a, kin_str given) {
    uint8_t hash[KIN_SHA256_BYTES];
    int n_equal = 0;
    if (!given.at || kin_sha256(given.at, given.len, hash, NULL) != 0) return false;
    for (int i = 0; i < a->n_keys; i++) n_equal += CRYPTO_memcmp(hash, a->keys[i].bytes, sizeof hash) == 0;
    return n_equal > 0;
}

bool kin_access_has_key(const kin_access *a, kin_str authorization, kin_str x_api_key) {
    static const char scheme[] = "Bearer ";
    size_t n = sizeof scheme - 1;
    kin_str bearer = {NULL, 0};
    if (authorization.len > n && strncasecmp(authorization.at, scheme, n) == 0)
        bearer = (kin_str){authorization.at + n, authorization.len - n};
    return a->n_keys == 0 || is_key(a, bearer) || is_key(a, x_api_key);
}

bool kin_access_is_public(kin_str path) {
    static const char page[] = "/page/"; // the page asks for the key
    static const char tab[] = "/join/";  // the page asks for the code
    return kin_str_eq(path, "/") || kin_str_eq(path, "/join") ||
           (path.len > sizeof tab - 1 && memcmp(path.at, tab, sizeof tab - 1) == 0) || kin_str_eq(path, "/health") ||
           kin_str_eq(path, "/v1/health") || (path.len > sizeof page - 1 && memcmp(path.at, page, sizeof page - 1) == 0);
}

// ---- hosts and origins

// True for nothing, or a colon and digits.
static bool is_port(kin_str text) {
    for (size_t i = 1; i < text.len; i++)
        if (text.at[i] < '0' || text.at[i] > '9') return false;
    return text.len == 0 || text.at[0] == ':';
}

// Extracts the host from "localhost:8080", "127.0.0.1", "[::1]:80": without port and brackets. "" for any other form.
static void name_of(kin_str host, char name[MAX_NAME]) {
    bool in_brackets = host.len > 0 && host.at[0] == '[';
    const char *end = memchr(host.at, in_brackets ? ']' : ':', host.len), *all = host.at + host.len;
    const char *port = end ? end + in_brackets : all;
    size_t from = in_brackets, n = (end ? (size_t)(end - host.at) : host.len) - from;
    if ((in_brackets && !end) || !is_port((kin_str){port, (size_t)(all - port)})) n = 0;
    if (n >= MAX_NAME) n = MAX_NAME - 1;
    memcpy(name, host.at + from, n);
    if (n > 1 && name[n - 1] == '.') n--; // drops the dot that ends a fully qualified name
    name[n] = '\0';
}

static bool ends_with(const char *name, const char *end) {
    size_t n = strlen(name), n_end = strlen(end);
    return n > n_end && strcasecmp(name + n - n_end, end) == 0;
}

static bool is_this_machine(const char *name) {
    return strcasecmp(name, "localhost") == 0 || ends_with(name, ".localhost") || kin_address_is_loopback(name);
}

// True for IP addresses, "desk", "desk.local": public DNS delegates none of these names, so none belongs to a stranger.
static bool is_of_home(const char *name) {
    static const char *const ends[] = {".local", ".lan", ".home", ".internal", ".home.arpa", ".localdomain"};
    kin_address numbers;
    if (kin_address_parse(&numbers, name, 0)) return true;
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++)
        if (ends_with(name, ends[i])) return true;
    return name[0] && !strchr(name, '.');
}

static bool is_allowed(const kin_access *a, const char *name) {
    char other[MAX_NAME];
    const char *allowed = a->allow_hosts ? a->allow_hosts : "";
    kin_str word;
    while (next_word(&allowed, ", ", &word)) {
        name_of(word, other); // it may have a port
        if (is_any_case(word, name) || strcasecmp(other, name) == 0) return true;
    }
    return false;
}

bool kin_access_allows_host(const kin_access *a, kin_str host) {
    char name[MAX_NAME];
    if (a->hosts == ANY_HOST || !host.at) return true;
    name_of(host, name);
    return is_this_machine(name) || (a->hosts == HOME_HOSTS && is_of_home(name)) || is_allowed(a, name);
}

// Origins in the list match literally; "localhost" stands for this machine at any port.
static bool is_listed(const kin_access *a, kin_str origin, const char *name) {
    const char *list = a->origins;
    kin_str word;
    while (next_word(&list, ", ", &word)) {
        if (word.len > 0 && word.at[word.len - 1] == '/') word.len--;
        if (word.len == origin.len && strncasecmp(word.at, origin.at, word.len) == 0) return true;
        if (is_any_case(word, "localhost") && is_this_machine(name)) return true;
    }
    return false;
}

bool kin_access_allows_origin(const kin_access *a, kin_str origin) {
    char name[MAX_NAME];
    const char *host = origin.at ? memmem(origin.at, origin.len, "://", 3) : NULL;
    if (!origin.at || a->cors == KIN_CORS_NONE) return false;
    if (a->cors == KIN_CORS_ALL) return true;
    if (!host) return false;
    name_of((kin_str){host + 3, origin.len - (size_t)(host + 3 - origin.at)}, name);
    return a->cors == KIN_CORS_LIST ? is_listed(a, origin, name) : is_this_machine(name);
}

// ---- foreign pages

// True for the origin of a page, like "http://desk:80". Extensions and programs with an embedded browser have other schemes,
// which no page can have.
static bool is_of_a_page(kin_str origin, char name[MAX_NAME]) {
    static const char *const schemes[] = {"http://", "https://"};
    name[0] = '\0';
    if (kin_str_eq(origin, "null")) return true; // for example a sandboxed frame
    for (size_t i = 0; i < sizeof schemes / sizeof *schemes; i++) {
        size_t n = strlen(schemes[i]);
        if (origin.len < n || memcmp(origin.at, schemes[i], n) != 0) continue;
        name_of((kin_str){origin.at + n, origin.len - n}, name);
        return true;
    }
    return false;
}

// Pages of the requested host, at any port, and of hosts in allow_hosts are not foreign.
static bool is_elsewhere(const kin_access *a, kin_str origin, kin_str host) {
    char name[MAX_NAME], own[MAX_NAME] = "";
    if (!origin.at || !is_of_a_page(origin, name)) return false;
    if (host.at) name_of(host, own);
    return !name[0] || (strcasecmp(name, own) != 0 && !is_allowed(a, name));
}

static bool is_own_site(kin_str site) {
    return kin_str_eq(site, "same-origin") || kin_str_eq(site, "none"); // none: not from a page, for example a typed address
}

static bool comes_from_elsewhere(const kin_access *a, const kin_http_exchange *x) {
    kin_str origin = kin_http_header(x, "origin"), site = kin_http_header(x, "sec-fetch-site");
    if (a->cors == KIN_CORS_ALL || kin_access_allows_origin(a, origin) || is_own_site(site)) return false;
    return kin_str_eq(site, "cross-site") || is_elsewhere(a, origin, kin_http_header(x, "host"));
}

static bool is_link(const kin_http_exchange *x) {
    kin_str mode = kin_http_header(x, "sec-fetch-mode"), dest = kin_http_header(x, "sec-fetch-dest");
    return kin_str_eq(kin_http_method(x), "GET") && kin_str_eq(mode, "navigate") && kin_str_eq(dest, "document");
}

static bool is_of_a_browser(const kin_http_exchange *x) {
    static const char begin[] = "Mozilla/"; // all browsers send it, and pages cannot change it without a preflight request
    kin_str agent = kin_http_header(x, "user-agent");
    return agent.len >= sizeof begin - 1 && memcmp(agent.at, begin, sizeof begin - 1) == 0;
}

bool kin_access_may_load(const kin_access *a, const kin_http_exchange *x) {
    kin_str site = kin_http_header(x, "sec-fetch-site");
    if (a->n_keys > 0 || a->cors == KIN_CORS_ALL || kin_access_allows_origin(a, kin_http_header(x, "origin"))) return true;
    return site.at ? is_own_site(site) : !kin_str_eq(kin_http_method(x), "GET") || !is_of_a_browser(x);
}

// ---- open and close

// Keys already protect the server: a foreign page has none. So beyond this machine Host is checked only without keys.
static host_rule host_rule_of(const char *host, int n_keys) {
    kin_address numbers;
    if (is_this_machine(host)) return OWN_HOSTS;
    return n_keys == 0 && kin_address_parse(&numbers, host, 0) ? HOME_HOSTS : ANY_HOST;
}

int kin_access_open(kin_access **out, const kin_access_options *o, kin_err *err) {
    kin_access *a = *out = calloc(1, sizeof *a);
    if (!a) return kin_err_set(err, "out of memory");
    a->cors = o->cors;
    a->keys = calloc(MAX_KEYS, sizeof *a->keys);
    if (o->allow_hosts) a->allow_hosts = strdup(o->allow_hosts);
    if (o->cors == KIN_CORS_LIST) a->origins = strdup(o->cors_origins);
    bool has_memory = a->keys && (a->allow_hosts || !o->allow_hosts) && (a->origins || o->cors != KIN_CORS_LIST);
    int rc = has_memory ? 0 : kin_err_set(err, "out of memory");
    if (rc == 0 && o->api_keys) rc = add_keys(a, o->api_keys, "the list of API keys", err);
    if (rc == 0 && o->api_key_file) rc = read_keys(a, o->api_key_file, err);
    if (rc == 0) {
        a->hosts = host_rule_of(o->host, a->n_keys);
        return 0;
    }
    kin_access_close(a);
    *out = NULL;
    return KIN_FAIL;
}

void kin_access_close(kin_access *a) {
    if (!a) return;
    free(a->keys);
    free(a->allow_hosts);
    free(a->origins);
    free(a);
}

// ---- exchanges

bool kin_access_admit(const kin_access *a, kin_http_exchange *x) {
    kin_str origin = kin_http_header(x, "origin");
    if (kin_access_allows_origin(a, origin)) {
        kin_http_add_header(x, "Access-Control-Allow-Origin", origin.at); // a NUL follows
        kin_http_add_header(x, "Access-Control-Allow-Credentials", "true");
        kin_http_add_header(x, "Access-Control-Expose-Headers", "X-Kin-Relaxed");
        kin_http_add_header(x, "Vary", "Origin");
    } else if (a->n_keys == 0 && !kin_str_eq(kin_http_method(x), "OPTIONS") && comes_from_elsewhere(a, x) && !is_link(x)) {
        // The page could not read the answer, but could cause the computation.
        kin_http_reply_error(
            x, 403,
            "Web pages of this origin may not use this server. To allow all origins, start it with --cors-origins '*'. For "
            "the server's own page behind a proxy, forward the Host header, or start the server with "
            "--allow-hosts NAME.");
        return false;
    }
    if (!kin_access_allows_host(a, kin_http_header(x, "host"))) {
        kin_http_reply_error(x, 403,
                             "This server does not accept the name in the Host header, as a protection against DNS rebinding. "
                             "To allow that name, start it with --allow-hosts NAME.");
        return false;
    }
    if (kin_str_eq(kin_http_method(x), "OPTIONS") || kin_access_is_public(kin_http_path(x)) ||
        kin_access_has_key(a, kin_http_header(x, "authorization"), kin_http_header(x, "x-api-key")))
        return true;
    kin_http_add_header(x, "WWW-Authenticate", "Bearer");
    kin_http_reply_error(x, 401,
                         "Invalid API Key: send one of the server's keys as Authorization: Bearer KEY, or as X-Api-Key: KEY.");
    return false;
}

bool kin_access_preflight(kin_http_exchange *x) {
    if (!kin_str_eq(kin_http_method(x), "OPTIONS")) return false;
    kin_http_add_header(x, "Access-Control-Allow-Methods", "GET, POST, DELETE, OPTIONS");
    kin_str wanted = kin_http_header(x, "access-control-request-headers"); // "*" would not include Authorization
    kin_http_add_header(x, "Access-Control-Allow-Headers", wanted.at ? wanted.at : "*");
    if (kin_str_eq(kin_http_header(x, "access-control-request-private-network"), "true"))
        kin_http_add_header(x, "Access-Control-Allow-Private-Network", "true");
    kin_http_add_header(x, "Access-Control-Max-Age", "600");
    kin_http_reply(x, 200, "text/html", NULL, 0);
    return true;
}
