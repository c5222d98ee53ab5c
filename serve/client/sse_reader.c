#include "serve/client/sse_reader.h"

#include <string.h>

typedef int event_fn(void *user, kin_str data, kin_err *err);

static int dispatch(kin_sse_reader *r, event_fn *handle, void *user, kin_err *err) {
    int rc = r->has_data ? handle(user, kin_text_str(&r->data), err) : 0;
    r->data.len = 0;
    r->has_data = false;
    return rc;
}

// True if the line is that field; *value: without the optional leading space.
static bool is_field(kin_str line, const char *name, kin_str *value) {
    size_t n = strlen(name);
    if (line.len < n || memcmp(line.at, name, n) != 0 || (line.len > n && line.at[n] != ':')) return false;
    size_t skip = line.len > n ? n + 1 : n;
    if (skip < line.len && line.at[skip] == ' ') skip++;
    *value = (kin_str){line.at + skip, line.len - skip};
    return true;
}

static int handle_line(kin_sse_reader *r, event_fn *handle, void *user, kin_err *err) {
    static const char mark[] = "\xef\xbb\xbf"; // the UTF-8 byte order mark before the first line
    kin_str line = kin_text_str(&r->line), value;
    if (!r->has_begun && line.len >= 3 && memcmp(line.at, mark, 3) == 0) line = (kin_str){line.at + 3, line.len - 3};
    r->has_begun = true;
    if (line.len == 0) return dispatch(r, handle, user, err);
    if (is_field(line, "data", &value)) {
        if (r->has_data) kin_text_put(&r->data, "\n", 1);
        kin_text_put(&r->data, value.at, value.len);
        r->has_data = true;
    }
    return r->data.failed || r->data.len > KIN_SSE_MAX ? kin_err_set(err, "an event is larger than %d MiB", KIN_SSE_MAX >> 20)
                                                       : 0;
}

int kin_sse_reader_feed(kin_sse_reader *r, const char *bytes, size_t n, event_fn *handle, void *user, kin_err *err) {
    for (size_t i = 0; i < n;) {
        size_t len = 0;
        if (bytes[i] == '\n' && r->after_cr) { // the second byte of CR LF
            r->after_cr = false;
            i++;
            continue;
        }
        while (i + len < n && bytes[i + len] != '\n' && bytes[i + len] != '\r') len++;
        r->after_cr = false;
        kin_text_put(&r->line, bytes + i, len);
        if (r->line.failed || r->line.len > KIN_SSE_MAX)
            return kin_err_set(err, "a line is larger than %d MiB", KIN_SSE_MAX >> 20);
        i += len;
        if (i == n) break;
        r->after_cr = bytes[i++] == '\r';
        int rc = handle_line(r, handle, user, err);
        r->line.len = 0;
        if (rc != 0) return KIN_FAIL;
    }
    return 0;
}

void kin_sse_reader_fini(kin_sse_reader *r) {
    kin_text_fini(&r->line);
    kin_text_fini(&r->data);
}
