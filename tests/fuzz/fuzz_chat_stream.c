// Feeds any bytes in pieces as a server's answer. Text and reasoning are the same however the bytes are cut, and counts and times
// are in range; otherwise the stream is refused with an error sentence. The first byte chooses the size of the pieces.
#include <stdint.h>
#include <string.h>

#include "serve/client/chat_stream.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

static int feed(kin_chat_stream *s, const char *bytes, size_t n, size_t step) {
    kin_err err = {""};
    int rc = 0;
    for (size_t at = 0; at < n && rc == 0; at += step)
        rc = kin_chat_stream_feed(s, bytes + at, n - at < step ? n - at : step, &err);
    kin_assert(rc == 0 || err.text[0]);
    kin_assert(s->n_done >= 0 && s->n_prompt >= 0 && s->n_cached >= 0 && s->n_generated >= 0);
    kin_assert(s->prompt_ms >= 0 && s->generated_ms >= 0);
    return rc;
}

static void check_same(const kin_text_buffer *a, const kin_text_buffer *b) {
    kin_assert(a->len == b->len && (a->len == 0 || memcmp(a->at, b->at, a->len) == 0));
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size) {
    kin_chat_stream whole = {0}, cut = {0};
    kin_err err;
    if (size < 1) return 0;
    const char *text = (const char *)bytes + 1;
    int rc = feed(&whole, text, size - 1, size);
    kin_assert(feed(&cut, text, size - 1, 1 + bytes[0] % 16) == rc);
    check_same(&whole.text, &cut.text);
    check_same(&whole.reasoning, &cut.reasoning);
    if (kin_chat_stream_error(text, size - 1, &err)) kin_assert(err.text[0]);
    kin_chat_stream_fini(&whole);
    kin_chat_stream_fini(&cut);
    return 0;
}
