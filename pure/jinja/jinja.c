#include "pure/jinja/jinja.h"

#include <stdlib.h>
#include <string.h>

#include "pure/jinja/state.h"
#include "pure/text/utf8.h"

// A node takes 128 bytes, and a template has about one node per character at most.
static const size_t max_heap_bytes = 256 << 20;

struct kin_jinja {
    kin_values *heap;
    kin_node *root;
};

static bool is_utf8(const char *at, size_t len) {
    for (size_t i = 0; i < len;) {
        int n = kin_utf8_len(at + i, len - i);
        if (n <= 0) return false;
        i += (size_t)n;
    }
    return true;
}

int kin_jinja_new(kin_jinja **out, const char *source, size_t len, kin_err *err) {
    *out = NULL;
    if (len > KIN_JINJA_MAX_SOURCE)
        return kin_err_set(err, "the template has %zu bytes, but the limit is %d", len, KIN_JINJA_MAX_SOURCE);
    if (!is_utf8(source, len)) return kin_err_set(err, "the template is not UTF-8");
    kin_jinja *jinja = calloc(1, sizeof *jinja);
    if (jinja) jinja->heap = kin_values_new(max_heap_bytes);
    if (!jinja || !jinja->heap) {
        free(jinja);
        return kin_err_set(err, "out of memory");
    }
    if (kin_jinja_parse(&jinja->root, jinja->heap, source, len, err) != 0) {
        kin_jinja_free(jinja);
        return KIN_FAIL;
    }
    *out = jinja;
    return 0;
}

void kin_jinja_free(kin_jinja *jinja) {
    if (!jinja) return;
    kin_values_free(jinja->heap);
    free(jinja);
}

// ---- the prompt

// Returns the end of the run of one origin that begins at `from` within a piece.
static size_t run_end(const kin_string *piece, size_t from) {
    size_t i = from + 1;
    if (!piece->origins) return piece->len;
    while (i < piece->len && piece->origins[i] == piece->origins[from]) i++;
    return i;
}

// Appends a run to an array with room for it, or only counts if `runs` is NULL. Returns the new number of runs.
static size_t add_run(kin_jinja_run *runs, size_t n, kin_jinja_run run, kin_origin *last) {
    if (n > 0 && *last == run.origin) {
        if (runs) runs[n - 1].end = run.end;
        return n;
    }
    *last = run.origin;
    if (runs) runs[n] = run;
    return n + 1;
}

static size_t list_runs(const kin_pieces *pieces, kin_jinja_run *runs) {
    size_t n = 0, begin = 0;
    kin_origin last = KIN_ORIGIN_INPUT;
    for (size_t i = 0; i < pieces->n; i++) {
        const kin_string *piece = &pieces->at[i];
        for (size_t from = 0, to; from < piece->len; from = to) {
            to = run_end(piece, from);
            n = add_run(runs, n, (kin_jinja_run){begin + from, begin + to, kin_string_origin_at(piece, from)}, &last);
        }
        begin += piece->len;
    }
    return n;
}

static bool write_text(kin_values *values, const kin_pieces *pieces, kin_jinja_text *out) {
    char *at = kin_values_alloc(values, pieces->len + 1);
    kin_jinja_run *runs = kin_values_alloc(values, list_runs(pieces, NULL) * sizeof *runs);
    if (!at || !runs) return false;
    *out = (kin_jinja_text){.at = at, .len = pieces->len, .runs = runs, .n_runs = list_runs(pieces, runs)};
    for (size_t i = 0; i < pieces->n; i++) {
        memcpy(at, pieces->at[i].at, pieces->at[i].len);
        at += pieces->at[i].len;
    }
    return true;
}

int kin_jinja_render(const kin_jinja *jinja, kin_values *values, const kin_value *variables, int64_t now_s, kin_jinja_text *out,
                     kin_err *err) {
    kin_err unused;
    kin_scope scope = {0};
    kin_pieces pieces = {.values = values};
    kin_state state = {.values = values, .now_s = now_s, .scope = &scope, .out = &pieces, .err = err ? err : &unused};
    *out = (kin_jinja_text){.at = ""};
    if (kin_values_check(values, err) != 0) return KIN_FAIL;
    kin_assert(variables->kind == KIN_KIND_DICT);
    state.variables = variables->pairs;
    if (kin_run(&state, jinja->root) && write_text(values, &pieces, out)) return 0;
    if (state.failed) return KIN_FAIL;
    kin_err_set(err, "line %u: %s", state.line, kin_values_error(values));
    return KIN_FAIL;
}
