#include "serve/page.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/embed.h"
#include "base/hash.h"

#define HTML "text/html; charset=utf-8"
#define CSS "text/css; charset=utf-8"
#define JS "text/javascript; charset=utf-8"

// index.html is the first one.
#define FILES(X)                                                                                                                 \
    X(index, "index.html", HTML)                                                                                                 \
    X(style, "style.css", CSS)                                                                                                   \
    X(cluster_css, "cluster.css", CSS)                                                                                           \
    X(api, "api.js", JS)                                                                                                         \
    X(chat, "chat.js", JS)                                                                                                       \
    X(cluster, "cluster.js", JS)                                                                                                 \
    X(complete, "complete.js", JS)                                                                                               \
    X(devices, "devices.js", JS)                                                                                                 \
    X(dom, "dom.js", JS)                                                                                                         \
    X(format, "format.js", JS)                                                                                                   \
    X(join, "join.js", JS)                                                                                                       \
    X(live, "live.js", JS)                                                                                                       \
    X(main, "main.js", JS)                                                                                                       \
    X(markdown, "markdown.js", JS)                                                                                               \
    X(message, "message.js", JS)                                                                                                 \
    X(plan, "plan.js", JS)                                                                                                       \
    X(ring, "ring.js", JS)                                                                                                       \
    X(server, "server.js", JS)                                                                                                   \
    X(settings, "settings.js", JS)                                                                                               \
    X(sidebar, "sidebar.js", JS)                                                                                                 \
    X(store, "store.js", JS)                                                                                                     \
    X(theme, "theme.js", JS)                                                                                                     \
    X(tree, "tree.js", JS)

// clang-format off
#define EMBED(id, name, type) KIN_EMBED(kin_page_##id, KIN_PAGE "/" name)
FILES(EMBED)
// clang-format on

#define N_FILES_OF(id, name, type) +1
enum { N_FILES = 0 FILES(N_FILES_OF), MAX_TAG = 24 };

#define FOLDER "/page/"

const kin_page_file *kin_page_at(int i) {
    static kin_page_file files[N_FILES];
    if (!files[0].name) {
        int n = 0;
#define FILL(id, name_, type_)                                                                                                   \
    files[n++] =                                                                                                                 \
        (kin_page_file){name_, type_, kin_page_##id##_begin, (size_t)(kin_page_##id##_end - kin_page_##id##_begin), false};
        FILES(FILL)
    }
    return i >= 0 && i < N_FILES ? &files[i] : NULL;
}

const kin_page_file *kin_page_find(kin_str name) {
    for (int i = 0; i < N_FILES; i++) {
        const kin_page_file *f = kin_page_at(i);
        if (strlen(f->name) == name.len && memcmp(f->name, name.at, name.len) == 0) return f;
    }
    return NULL;
}

bool kin_page_is_wanted(const kin_http_exchange *x) {
    static const char html[] = "text/html";
    kin_str accept = kin_http_header(x, "accept");
    return accept.at && memmem(accept.at, accept.len, html, sizeof html - 1);
}

// Nothing but what this server has may be loaded, run or asked.
#define POLICY                                                                                                                   \
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; "                        \
    "base-uri 'none'; frame-ancestors 'none'; form-action 'none'"

static void add_headers(kin_http_exchange *x, const char *policy, const char *tag) {
    kin_http_add_header(x, "Content-Security-Policy", policy);
    kin_http_add_header(x, "X-Content-Type-Options", "nosniff");
    kin_http_add_header(x, "Referrer-Policy", "no-referrer");
    kin_http_add_header(x, "Cache-Control", "no-cache"); // it is asked each time whether it has changed
    kin_http_add_header(x, "Vary", "Accept");
    kin_http_add_header(x, "ETag", tag);
}

void kin_page_reply_with(kin_http_exchange *x, const char *policy, const kin_page_file *f) {
    char tag[MAX_TAG];
    snprintf(tag, sizeof tag, "\"%016" PRIx64 "\"", kin_hash64(f->bytes, f->n, 0));
    kin_str known = kin_http_header(x, "if-none-match");
    add_headers(x, policy, tag);
    if (f->is_gzip) kin_http_add_header(x, "Content-Encoding", "gzip");
    if (known.at && memmem(known.at, known.len, tag, strlen(tag)))
        kin_http_reply(x, 304, NULL, NULL, 0);
    else
        kin_http_reply(x, 200, f->type, f->bytes, f->n);
}

// Its links begin with "page/". At /kin, without a slash at its end, the browser would look for them at /page/.
void kin_page_reply(kin_http_exchange *x, const char *prefix) {
    static const char link[] = "=\"page/";
    const kin_page_file *f = kin_page_at(0);
    const char *at = (const char *)f->bytes, *end = at + f->n, *next;
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
    if (out.failed)
        kin_http_reply_error(x, 500, "out of memory");
    else
        kin_page_reply_with(x, POLICY, &(kin_page_file){f->name, f->type, (const uint8_t *)out.at, out.len, false});
    kin_text_fini(&out);
}

void kin_page_reply_file(kin_http_exchange *x) {
    kin_str path = kin_http_path(x);
    const kin_page_file *f = kin_page_find((kin_str){path.at + sizeof FOLDER - 1, path.len - sizeof FOLDER + 1});
    if (f)
        kin_page_reply_with(x, POLICY, f);
    else
        kin_http_reply_error(x, 404, "File Not Found");
}
