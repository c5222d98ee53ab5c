#include "pipeline/sequence.h"

#include <stdlib.h>
#include <string.h>

struct kin_sequence {
    int32_t id;
    int32_t *tokens; // [cap], n of them
    int n, cap;
    const kin_head *head; // whose caches hold it, in the ring of that number (kin_head_ring_number)
    uint64_t ring;
};

int kin_sequence_open(kin_sequence **out, int32_t id, kin_err *err) {
    kin_sequence *s = *out = calloc(1, sizeof *s);
    if (!s) return kin_err_set(err, "out of memory");
    s->id = id;
    return 0;
}

void kin_sequence_close(kin_sequence *s, kin_head *head) {
    if (!s) return;
    if (head) kin_sequence_truncate(s, head, 0);
    free(s->tokens);
    free(s);
}

static int append(kin_sequence *s, const int32_t *tokens, int n, kin_err *err) {
    if (s->n + n > s->cap) {
        int cap = s->n + n > 2 * s->cap ? s->n + n : 2 * s->cap;
        int32_t *larger = realloc(s->tokens, (size_t)cap * sizeof *larger);
        if (!larger) return kin_err_set(err, "out of memory");
        s->tokens = larger;
        s->cap = cap;
    }
    memcpy(s->tokens + s->n, tokens, (size_t)n * sizeof *tokens);
    s->n += n;
    return 0;
}

static bool is_cached(const kin_sequence *s, const kin_head *head) {
    return s->head == head && s->ring == kin_head_ring_number(head);
}

static int compute_missing(kin_sequence *s, kin_head *head, kin_err *err) {
    if (is_cached(s, head)) return 0;
    if (s->n > 0 && kin_head_eval(head, s->id, 0, s->tokens, s->n, NULL, 0, err) != 0) return KIN_FAIL;
    s->head = head;
    s->ring = kin_head_ring_number(head);
    return 0;
}

int kin_sequence_extend(kin_sequence *s, kin_head *head, const int32_t *tokens, int n, float *logits, int n_logits,
                        kin_err *err) {
    int n_before = s->n;
    if (compute_missing(s, head, err) != 0 || append(s, tokens, n, err) != 0) return KIN_FAIL;
    if (kin_head_eval(head, s->id, n_before, tokens, n, logits, n_logits, err) == 0) return 0;
    s->n = n_before;
    return KIN_FAIL;
}

void kin_sequence_truncate(kin_sequence *s, kin_head *head, int n) {
    if (n >= s->n) return;
    if (is_cached(s, head)) kin_head_truncate(head, s->id, n);
    s->n = n;
}

int kin_sequence_n_tokens(const kin_sequence *s) {
    return s->n;
}
