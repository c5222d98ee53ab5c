#include "pure/sampling/constraint.h"

#include <stdlib.h>
#include <string.h>

struct kin_constraint {
    kin_matcher *matcher;
    const kin_token_trie *trie;
    kin_place place, ahead; // of the text; scratch
    uint64_t *set;
    char marker[KIN_CONSTRAINT_MAX_MARKER];
    // [i] length of the longest proper suffix of the first i + 1 bytes of the marker that is a prefix of it.
    size_t shorter[KIN_CONSTRAINT_MAX_MARKER];
    // n_found: length of the longest prefix of the marker that the text ends with. n_found == n_marker: the grammar applies.
    size_t n_marker, n_found;
};

// ---- the marker (Knuth, Morris and Pratt)

static size_t next_found(const kin_constraint *c, size_t n_found, char byte) {
    while (n_found > 0 && c->marker[n_found] != byte) n_found = c->shorter[n_found - 1];
    return c->marker[n_found] == byte ? n_found + 1 : n_found;
}

static void prepare_marker(kin_constraint *c, kin_str marker) {
    c->n_marker = marker.len;
    if (marker.len > 0) memcpy(c->marker, marker.at, marker.len);
    for (size_t i = 1; i < c->n_marker; i++) c->shorter[i] = next_found(c, c->shorter[i - 1], c->marker[i]);
}

// Reads text until the marker is complete; returns the number of bytes read.
static size_t find_marker(const kin_constraint *c, kin_str text, size_t *n_found) {
    size_t at = 0;
    while (at < text.len && *n_found < c->n_marker) *n_found = next_found(c, *n_found, text.at[at++]);
    return at;
}

// ---- open and close

int kin_constraint_new(kin_constraint **out, kin_matcher *matcher, kin_str marker, kin_err *err) {
    *out = NULL;
    if (marker.len > KIN_CONSTRAINT_MAX_MARKER) return kin_err_set(err, "grammar: the marker is longer than 256 bytes");
    kin_constraint *c = calloc(1, sizeof *c);
    if (!c) return kin_err_set(err, "grammar: out of memory");
    c->matcher = matcher;
    c->trie = kin_matcher_trie(matcher);
    c->set = calloc(c->trie->n_words, sizeof *c->set);
    prepare_marker(c, marker);
    if (!c->set || kin_constraint_reset(c, err) != 0) {
        kin_constraint_free(c);
        return kin_err_set(err, "grammar: out of memory");
    }
    *out = c;
    return 0;
}

void kin_constraint_free(kin_constraint *c) {
    if (!c) return;
    kin_place_fini(&c->ahead);
    kin_place_fini(&c->place);
    free(c->set);
    free(c);
}

int kin_constraint_reset(kin_constraint *c, kin_err *err) {
    c->n_found = 0;
    return kin_matcher_begin(c->matcher, &c->place) == 0 ? 0 : kin_err_set(err, "grammar: out of memory");
}

// ---- tokens

// Before the marker is complete: returns true if this token completes it; *rest: its bytes after the marker, which the grammar
// reads.
static bool completes_marker(const kin_constraint *c, int32_t id, kin_str *rest) {
    kin_str text = kin_token_trie_text(c->trie, id);
    size_t n_found = c->n_found, n_read = find_marker(c, text, &n_found);
    *rest = (kin_str){text.at + n_read, text.len - n_read};
    return n_found == c->n_marker;
}

bool kin_constraint_allows(kin_constraint *c, int32_t id) {
    kin_str rest;
    bool allowed;
    if (c->n_found == c->n_marker) return kin_matcher_allows(c->matcher, &c->place, id);
    if (!completes_marker(c, id, &rest) || rest.len == 0) return true;
    if (kin_place_copy(&c->ahead, &c->place) != 0) return false;
    return kin_matcher_accept_bytes(c->matcher, &c->ahead, rest.at, rest.len, &allowed) == 0 && allowed;
}

const uint64_t *kin_constraint_mask(kin_constraint *c) {
    if (c->n_found == c->n_marker) {
        kin_matcher_mask(c->matcher, &c->place, c->set);
        return c->set;
    }
    memset(c->set, 0, c->trie->n_words * sizeof *c->set);
    for (int32_t id = 0; id < c->trie->n_tokens; id++) {
        if (kin_constraint_allows(c, id)) kin_token_set_add(c->set, id);
    }
    return c->set;
}

int kin_constraint_accept(kin_constraint *c, int32_t id, kin_err *err) {
    kin_str rest = {NULL, 0};
    bool allowed = true;
    int rc = 0;
    if (c->n_found == c->n_marker) {
        rc = kin_matcher_accept(c->matcher, &c->place, id, &allowed);
    } else if (completes_marker(c, id, &rest)) {
        rc = kin_matcher_accept_bytes(c->matcher, &c->place, rest.at, rest.len, &allowed);
        if (allowed) c->n_found = c->n_marker;
    } else {
        find_marker(c, kin_token_trie_text(c->trie, id), &c->n_found);
    }
    if (rc != 0) return kin_err_set(err, "grammar: out of memory");
    return allowed ? 0 : kin_err_set(err, "grammar: token %d is not allowed at this position", id);
}

bool kin_constraint_is_complete(const kin_constraint *c) {
    return c->n_found == c->n_marker && !kin_place_may_go_on(&c->place);
}
