#include "serve/json_out.h"

#include <string.h>

#include "pure/text/utf8.h"

json_t *kin_json_text(kin_str text) {
    json_t *json = json_stringn(text.len ? text.at : "", text.len);
    if (json) return json;
    kin_text_buffer mended = {0};
    for (size_t i = 0; i < text.len;) {
        int n = kin_utf8_len(text.at + i, text.len - i);
        if (n > 0) kin_text_put(&mended, text.at + i, (size_t)n);
        if (n <= 0) kin_text_put(&mended, "\xef\xbf\xbd", 3);
        i += n > 0 ? (size_t)n : 1;
    }
    if (!mended.failed) json = json_stringn(mended.at, mended.len);
    kin_text_fini(&mended);
    return json;
}

json_t *kin_json_string(const char *text) {
    return kin_json_text((kin_str){text, text ? strlen(text) : 0});
}

static int put(const char *at, size_t n, void *out) {
    kin_text_put(out, at, n);
    return 0;
}

void kin_json_put(json_t *json, kin_text_buffer *out) {
    size_t flags = JSON_COMPACT | JSON_ENCODE_ANY | JSON_REAL_PRECISION(15);
    if (!json || json_dump_callback(json, put, out, flags) != 0) out->failed = true;
    json_decref(json);
}

void kin_json_put_event(const char *name, json_t *data, kin_text_buffer *out) {
    if (name) kin_text_print(out, "event: %s\n", name);
    kin_text_put(out, "data: ", 6);
    kin_json_put(data, out);
    kin_text_put(out, "\n\n", 2);
}
