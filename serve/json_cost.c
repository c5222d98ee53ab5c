#include "serve/json_cost.h"

enum {
    // Bytes, with the allocator's own. A growing table is there twice for a moment.
    VALUE = 64,   // a number of 24, and its place in a table
    STRING = 48,  // beside the value and its bytes
    ARRAY = 192,  // its table has eight places
    OBJECT = 320, // its table has eight buckets
    MEMBER = 192, // name, hash, links and buckets, beside the value
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
