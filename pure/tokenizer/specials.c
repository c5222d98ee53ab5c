#include "pure/tokenizer/specials.h"

#include <stdlib.h>
#include <string.h>

#include "pure/tokenizer/vocab_impl.h"

typedef struct special {
    kin_str text;
    int32_t id;
    bool always; // user-defined
} special;

struct kin_specials {
    const kin_vocab *vocab;
    special *by_text; // [n] sorted: a trie, searched by narrowing a range
    uint32_t *order;  // [n] indexes into by_text, longest token first, then the smaller id
    uint32_t n;
    bool begins[256]; // some token begins with this byte
};

typedef struct search {
    const kin_specials *specials;
    const char *text;
    size_t len;
    const kin_text_range *trusted; // [n_trusted]
    size_t n_trusted;
    bool *used; // [len]
    kin_special_hit *hits;
    size_t n, cap;
} search;

static int out_of_memory(kin_err *err) {
    return kin_err_set(err, "special tokens: out of memory");
}

static int compare_text(const void *a, const void *b) {
    const special *x = a, *y = b;
    size_t n = x->text.len < y->text.len ? x->text.len : y->text.len;
    int c = memcmp(x->text.at, y->text.at, n);
    return c != 0 ? c : (x->text.len > y->text.len) - (x->text.len < y->text.len);
}

static int compare_priority(const void *a, const void *b) {
    const special *x = a, *y = b;
    if (x->text.len != y->text.len) return x->text.len < y->text.len ? 1 : -1;
    return (x->id > y->id) - (x->id < y->id);
}

static bool is_special(kin_token_type type) {
    return type == KIN_TOKEN_CONTROL || type == KIN_TOKEN_USER_DEFINED || type == KIN_TOKEN_UNKNOWN;
}

// Fills by_text, and `order` from a copy sorted by priority.
static void sort_specials(kin_specials *specials, special *by_priority) {
    for (int32_t id = 0; id < specials->vocab->n_tokens; id++) {
        kin_token_type type = kin_vocab_type(specials->vocab, id);
        if (!is_special(type)) continue;
        special s = {kin_vocab_text(specials->vocab, id), id, type == KIN_TOKEN_USER_DEFINED};
        specials->begins[(uint8_t)s.text.at[0]] = true;
        by_priority[specials->n] = specials->by_text[specials->n] = s;
        specials->n++;
    }
    qsort(specials->by_text, specials->n, sizeof *specials->by_text, compare_text);
    qsort(by_priority, specials->n, sizeof *by_priority, compare_priority);
    for (uint32_t i = 0; i < specials->n; i++) {
        const special *s = bsearch(&by_priority[i], specials->by_text, specials->n, sizeof *specials->by_text, compare_text);
        specials->order[i] = (uint32_t)(s - specials->by_text);
    }
}

int kin_specials_new(kin_specials **out, const kin_vocab *vocab, kin_err *err) {
    *out = NULL;
    size_t n = 0;
    for (int32_t id = 0; id < vocab->n_tokens; id++) n += is_special(kin_vocab_type(vocab, id));

    kin_specials *specials = calloc(1, sizeof *specials);
    special *by_priority = calloc(n + 1, sizeof *by_priority);
    if (!specials || !by_priority) goto fail;
    specials->vocab = vocab;
    specials->by_text = calloc(n + 1, sizeof *specials->by_text);
    specials->order = calloc(n + 1, sizeof *specials->order);
    if (!specials->by_text || !specials->order) goto fail;
    sort_specials(specials, by_priority);
    free(by_priority);
    *out = specials;
    return 0;

fail:
    free(by_priority);
    kin_specials_free(specials);
    return out_of_memory(err);
}

void kin_specials_free(kin_specials *specials) {
    if (!specials) return;
    free(specials->order);
    free(specials->by_text);
    free(specials);
}

// Returns the first of by_text[low..high) whose byte at `depth` is at least c (up to 256). All must be longer than depth.
static uint32_t lower_bound(const special *by_text, uint32_t low, uint32_t high, size_t depth, int c) {
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if ((uint8_t)by_text[middle].text.at[depth] < c)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

// Marks every token that occurs at the start of text [len].
static void mark_at(const kin_specials *specials, const char *text, size_t len, bool *occurs) {
    uint32_t low = 0, high = specials->n;
    for (size_t depth = 0; depth < len && low < high; depth++) {
        int c = (uint8_t)text[depth];
        low = lower_bound(specials->by_text, low, high, depth, c);
        high = lower_bound(specials->by_text, low, high, depth, c + 1);
        if (low < high && specials->by_text[low].text.len == depth + 1) occurs[low++] = true;
    }
}

static int put_hit(search *search, kin_special_hit hit, kin_err *err) {
    if (search->n == search->cap) {
        size_t cap = search->cap * 2 + 16;
        kin_special_hit *hits = realloc(search->hits, cap * sizeof *hits);
        if (!hits) return out_of_memory(err);
        search->hits = hits;
        search->cap = cap;
    }
    search->hits[search->n++] = hit;
    return 0;
}

static bool is_white(char c) { // isspace of the C locale
    return c == ' ' || (c >= '\t' && c <= '\r');
}

static bool is_trusted(const search *search, size_t begin, size_t end) {
    size_t low = 0, high = search->n_trusted; // searches the first range that ends at `end` or later
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (search->trusted[middle].end < end)
            low = middle + 1;
        else
            high = middle;
    }
    return low < search->n_trusted && search->trusted[low].begin <= begin;
}

// Takes all free occurrences of one token. Everything taken so far is at least as long, so testing both ends is sufficient.
static int mark_all(search *search, const special *special, kin_err *err) {
    const bool *owns_space = search->specials->vocab->owns_space;
    size_t len = special->text.len;
    for (size_t at = 0; search->len - at >= len;) {
        const char *found = memmem(search->text + at, search->len - at, special->text.at, len);
        if (!found) return 0;
        size_t begin = (size_t)(found - search->text), end = begin + len;
        if (search->used[begin] || search->used[end - 1] || !(special->always || is_trusted(search, begin, end))) {
            at = begin + 1;
            continue;
        }
        while (owns_space && owns_space[special->id] && end < search->len && !search->used[end] && is_white(search->text[end]))
            end++;
        memset(search->used + begin, true, end - begin);
        if (put_hit(search, (kin_special_hit){begin, end, special->id}, err) < 0) return KIN_FAIL;
        at = end;
    }
    return 0;
}

static int compare_begin(const void *a, const void *b) {
    const kin_special_hit *x = a, *y = b;
    return (x->begin > y->begin) - (x->begin < y->begin);
}

int kin_specials_search(const kin_specials *specials, const char *text, size_t len, const kin_text_range *trusted,
                        size_t n_trusted, kin_special_hit **hits, size_t *n_hits, kin_err *err) {
    *hits = NULL;
    *n_hits = 0;
    search search = {.specials = specials, .text = text, .len = len, .trusted = trusted, .n_trusted = n_trusted};
    bool *occurs = calloc(specials->n + 1, sizeof *occurs);
    if (!occurs) return out_of_memory(err);
    for (size_t at = 0; at < len; at++) {
        if (specials->begins[(uint8_t)text[at]]) mark_at(specials, text + at, len - at, occurs);
    }

    int rc = 0;
    for (uint32_t i = 0; i < specials->n && rc == 0; i++) {
        const special *special = &specials->by_text[specials->order[i]];
        if (!occurs[specials->order[i]] || !(special->always || n_trusted > 0)) continue;
        if (!search.used && !(search.used = calloc(len, sizeof *search.used)))
            rc = out_of_memory(err);
        else
            rc = mark_all(&search, special, err);
    }
    free(occurs);
    free(search.used);
    if (rc < 0) {
        free(search.hits);
        return KIN_FAIL;
    }
    if (search.n > 0) qsort(search.hits, search.n, sizeof *search.hits, compare_begin);
    *hits = search.hits;
    *n_hits = search.n;
    return 0;
}
