#include "testkit/head_eval.h"

#include <stdlib.h>

// A sequence that is being fed.
typedef struct feed {
    int32_t seq, pos;
    const int32_t *tokens;
    int n, n_chunk;
    float *logits;
    int n_logits;
    int sent, done;               // tokens
    int32_t *seqs, *places, *out; // [n_chunk] of the current chunk
} feed;

static int min_int(int a, int b) {
    return a < b ? a : b;
}

static int send_chunk(kin_head *h, feed *f, kin_err *err) {
    int n = min_int(f->n_chunk, f->n - f->sent);
    bool all = f->n_logits == f->n, last = f->n_logits && f->sent + n == f->n;
    for (int i = 0; i < n; i++) {
        f->seqs[i] = f->seq;
        f->places[i] = f->pos + f->sent + i;
        f->out[i] = all ? i : n - 1;
    }
    kin_head_step step = {.n = n,
                          .tokens = f->tokens + f->sent,
                          .seq = f->seqs,
                          .pos = f->places,
                          .out = f->out,
                          .n_out = all ? n : last,
                          .logits = f->logits,
                          .n_prompt = f->n == 1 ? 0 : n,
                          .more = f->sent + n < f->n};
    if (all && f->logits) step.logits += (size_t)f->sent * (size_t)kin_head_n_vocab(h);
    uint64_t number;
    f->sent += n;
    return kin_head_send(h, &step, &number, err);
}

static int feed_all(kin_head *h, feed *f, kin_err *err) {
    while (f->done < f->n) {
        while (f->sent < f->n && kin_head_has_room(h)) {
            if (send_chunk(h, f, err) != 0) return KIN_FAIL;
        }
        uint64_t number;
        if (kin_head_receive(h, NULL, &number, err) != 0) return KIN_FAIL;
        if (number > 0) f->done += min_int(f->n_chunk, f->n - f->done);
    }
    return 0;
}

int kin_head_eval(kin_head *h, int32_t seq, int32_t pos, const int32_t *tokens, int n, float *logits, int n_logits,
                  kin_err *err) {
    kin_assert(n > 0 && (n_logits == 0 || n_logits == 1 || n_logits == n));
    feed f = {.seq = seq,
              .pos = pos,
              .tokens = tokens,
              .n = n,
              .n_chunk = kin_head_n_chunk(h, n),
              .logits = logits,
              .n_logits = n_logits};
    size_t bytes = (size_t)f.n_chunk * sizeof *f.out;
    f.seqs = malloc(bytes);
    f.places = malloc(bytes);
    f.out = malloc(bytes);
    int rc = f.seqs && f.places && f.out ? feed_all(h, &f, err) : kin_err_set(err, "out of memory");
    if (rc != 0) kin_head_truncate(h, seq, pos);
    free(f.seqs);
    free(f.places);
    free(f.out);
    return rc;
}
