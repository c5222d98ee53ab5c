#include "serve/http/json_cost.h"

enum {
    // Bytes, including the allocator's overhead. While a table grows, it exists twice.
    VALUE = 64,   // a number of 24 bytes, and its entry in a table
    STRING = 48,  // besides the value and its bytes
    ARRAY = 192,  // its table has eight entries
    OBJECT = 320, // its table has eight buckets
    MEMBER = 192, // name, hash, links and buckets, besides the value
    COPIES = 2,   // of a string's bytes: its own, and one in messages that are changed for a template
    SCRATCH = 3,  // times the longest string: the buffer in which the parser unescapes it, while it grows
};

static void count_string(kin_json_cost *c, char byte) {
    if (c->is_escaped || byte != '"') {
        c->is_escaped = !c->is_escaped && byte == '\\';
        c->bytes += COPIES;
        if (++c->len > c->longest) {
            c->longest = c->len;
            c->bytes += SCRATCH;
        }
        return;
    }
    c->in_string = false;
    c->len = 0;
}

void kin_json_cost_feed(kin_json_cost *c, const char *bytes, size_t n) {
    for (size_t i = 0; i < n; i++) {
        if (c->in_string) {
            count_string(c, bytes[i]);
            continue;
        }
        switch (bytes[i]) {
        case '"':
            c->in_string = true;
            c->bytes += STRING;
            break;
        case ',': c->bytes += VALUE; break;
        case '[': c->bytes += ARRAY; break;
        case '{': c->bytes += OBJECT; break;
        case ':': c->bytes += MEMBER; break;
        default: break;
        }
    }
}
