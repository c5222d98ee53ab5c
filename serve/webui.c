#include "serve/webui.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/embed.h"
#include "base/hash.h"

#define HTML "text/html; charset=utf-8"
#define CSS "text/css; charset=utf-8"
#define JS "text/javascript; charset=utf-8"

// index.html must be the first.
#define FILES(X)                                                                                                                 \
    X(index, "index.html", HTML)                                                                                                 \
    X(style, "style.css", CSS)                                                                                                   \
    X(cluster_css, "cluster.css", CSS)                                                                                           \
    X(api, "api.js", JS)                                                                                                         \
    X(chat, "chat.js", JS)                                                                                                       \
    X(cluster, "cluster.js", JS)                                                                                                 \
    X(code, "code.js", JS)                                                                                                       \
    X(complete, "complete.js", JS)                                                                                               \
    X(composer, "composer.js", JS)                                                                                               \
    X(devices, "devices.js", JS)                                                                                                 \
    X(dom, "dom.js", JS)                                                                                                         \
    X(files, "files.js", JS)                                                                                                     \
    X(format, "format.js", JS)                                                                                                   \
    X(join, "join.js", JS)                                                                                                       \
    X(live, "live.js", JS)                                                                                                       \
    X(main, "main.js", JS)                                                                                                       \
    X(markdown, "markdown.js", JS)                                                                                               \
    X(math, "math.js", JS)                                                                                                       \
    X(math_reader, "math_reader.js", JS)                                                                                         \
    X(math_symbols, "math_symbols.js", JS)                                                                                       \
    X(math_tables, "math_tables.js", JS)                                                                                         \
    X(math_words, "math_words.js", JS)                                                                                           \
    X(message, "message.js", JS)                                                                                                 \
    X(plan, "plan.js", JS)                                                                                                       \
    X(pull, "pull.js", JS)                                                                                                       \
    X(ring, "ring.js", JS)                                                                                                       \
    X(ring_layout, "ring_layout.js", JS)                                                                                         \
    X(server, "server.js", JS)                                                                                                   \
    X(settings, "settings.js", JS)                                                                                               \
    X(sidebar, "sidebar.js", JS)                                                                                                 \
    X(storage, "storage.js", JS)                                                                                                 \
    X(store, "store.js", JS)                                                                                                     \
    X(theme, "theme.js", JS)                                                                                                     \
    X(tree, "tree.js", JS)                                                                                                       \
    X(welcome, "welcome.js", JS)

// clang-format off
#define EMBED(id, name, type) KIN_EMBED(kin_webui_##id, KIN_PAGE "/" name)
FILES(EMBED)
// clang-format on

#define ENTRY(id, name, type) KIN_WEBUI_FILE(id, name, type, false)
static const kin_webui_file files[] = {FILES(ENTRY)};

enum { N_FILES = sizeof files / sizeof *files, MAX_TAG = 24 };

#define FOLDER "/page/"

const kin_webui_file *kin_webui_at(int i) {
    return i >= 0 && i < N_FILES ? &files[i] : NULL;
}

const kin_webui_file *kin_webui_find_in(const kin_webui_file *table, size_t n, kin_str name) {
    for (size_t i = 0; i < n; i++)
        if (strlen(table[i].name) == name.len && memcmp(table[i].name, name.at, name.len) == 0) return &table[i];
    return NULL;
}

const kin_webui_file *kin_webui_find(kin_str name) {
    return kin_webui_find_in(files, N_FILES, name);
}

bool kin_webui_is_wanted(const kin_http_exchange *x) {
    static const char html[] = "text/html";
    kin_str accept = kin_http_header(x, "accept");
    return accept.at && memmem(accept.at, accept.len, html, sizeof html - 1);
}

// Everything may be loaded, run or requested only from this server.
#define POLICY                                                                                                                   \
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; "                        \
    "base-uri 'none'; frame-ancestors 'none'; form-action 'none'"

static void add_headers(kin_http_exchange *x, const char *policy, const char *tag) {
    kin_http_add_header(x, "Content-Security-Policy", policy);
    kin_http_add_header(x, "X-Content-Type-Options", "nosniff");
    kin_http_add_header(x, "Referrer-Policy", "no-referrer");
    kin_http_add_header(x, "Cache-Control", "no-cache"); // the client revalidates each time
    kin_http_add_header(x, "Vary", "Accept");
    kin_http_add_header(x, "ETag", tag);
}

void kin_webui_reply_with(kin_http_exchange *x, const char *policy, const kin_webui_file *f) {
    char tag[MAX_TAG];
    size_t n = (size_t)(f->end - f->begin);
    snprintf(tag, sizeof tag, "\"%016" PRIx64 "\"", kin_hash64(f->begin, n, 0));
    kin_str known = kin_http_header(x, "if-none-match");
    add_headers(x, policy, tag);
    if (f->is_gzip) kin_http_add_header(x, "Content-Encoding", "gzip");
    if (known.at && memmem(known.at, known.len, tag, strlen(tag)))
        kin_http_reply(x, 304, NULL, NULL, 0);
    else
        kin_http_reply(x, 200, f->type, f->begin, n);
}

// The page's links begin with "page/". At /kin, without a trailing slash, the browser would resolve them to /page/, so the prefix
// is inserted.
void kin_webui_reply(kin_http_exchange *x, const char *prefix) {
    static const char link[] = "=\"page/";
    const kin_webui_file *f = kin_webui_at(0);
    const char *at = (const char *)f->begin, *end = (const char *)f->end, *next;
    size_t n_prefix = prefix ? strlen(prefix) : 0;
    kin_text_buffer out = {0};
    while (n_prefix > 0 && prefix[n_prefix - 1] == '/') n_prefix--;
    while (n_prefix > 0 && (next = memmem(at, (size_t)(end - at), link, sizeof link - 1))) {
        kin_text_put(&out, at, (size_t)(next - at) + 2);
        kin_text_put(&out, prefix, n_prefix);
        kin_text_put(&out, "/", 1);
        at = next + 2;
    }
    kin_text_put(&out, at, (size_t)(end - at));
    const uint8_t *text = (const uint8_t *)out.at;
    if (out.failed)
        kin_http_reply_error(x, 500, "out of memory");
    else
        kin_webui_reply_with(x, POLICY, &(kin_webui_file){f->name, f->type, text, text + out.len, false});
    kin_text_fini(&out);
}

void kin_webui_reply_file(kin_http_exchange *x) {
    kin_str path = kin_http_path(x);
    const kin_webui_file *f = kin_webui_find((kin_str){path.at + sizeof FOLDER - 1, path.len - sizeof FOLDER + 1});
    if (f && f != kin_webui_at(0)) // index.html's links are relative to the folder above
        kin_webui_reply_with(x, POLICY, f);
    else
        kin_http_reply_error(x, 404, "File Not Found");
}
