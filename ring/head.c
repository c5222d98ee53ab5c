#include "ring/head.h"

#include <stdlib.h>

#include "model/embed.h"

struct kin_head {
    const kin_model *model;
    kin_shard *shard;
    int n_batch;
    kin_progress progress;
    void *progress_user;

    float *x;           // f32 [n_batch, n_embd] hidden states on their way
    int32_t *pos, *seq; // [n_batch]
    int32_t last;       // the row wanted when only the last is
};

int kin_head_open(kin_head **out, const kin_model *model, kin_shard *shard, int n_batch, kin_err *err) {
    *out = NULL;
    kin_head *h = calloc(1, sizeof *h);
    if (!h) return kin_err_set(err, "out of memory");
    h->model = model;
    h->shard = shard;
    h->n_batch = n_batch;
    h->x = malloc((size_t)n_batch * (size_t)model->hp.n_embd * sizeof *h->x);
    h->pos = malloc((size_t)n_batch * sizeof *h->pos);
    h->seq = malloc((size_t)n_batch * sizeof *h->seq);
    if (!h->x || !h->pos || !h->seq) {
        kin_head_close(h);
        return kin_err_set(err, "out of memory");
    }
    *out = h;
    return 0;
}

void kin_head_close(kin_head *h) {
    if (!h) return;
    free(h->x);
    free(h->pos);
    free(h->seq);
    free(h);
}

void kin_head_on_progress(kin_head *h, kin_progress progress, void *user) {
    h->progress = progress;
    h->progress_user = user;
}

// One chunk of at most n_batch tokens. n_logits as in kin_head_eval, for this chunk.
static int eval_chunk(kin_head *h, int32_t seq, int32_t pos, const int32_t *tokens, int n, float *logits, int n_logits,
                      kin_err *err) {
    if (kin_embed(h->model, tokens, n, h->x, err) != 0) return KIN_FAIL;
    for (int i = 0; i < n; i++) {
        h->pos[i] = pos + i;
        h->seq[i] = seq;
    }
    // A chunk whose logits nobody wants still has to end somewhere: its last row.
    h->last = n - 1;
    bool all = n_logits == n;
    kin_batch batch = {
        .n_tokens = n, .pos = h->pos, .seq = h->seq, .out = all ? NULL : &h->last, .n_out = 1, .no_output = n_logits == 0};
    int step = kin_shard_begin(h->shard, &batch, err);
    if (step < 0) return KIN_FAIL;
    int rc = kin_shard_run(h->shard, step, 0, h->x, h->x, err);
    kin_shard_end(h->shard, step, rc == 0);
    if (rc != 0) return KIN_FAIL;
    return n_logits ? kin_shard_output(h->shard, n_logits, h->x, logits, err) : 0;
}

int kin_head_eval(kin_head *h, int32_t seq, int32_t pos, const int32_t *tokens, int n, float *logits, int n_logits,
                  kin_err *err) {
    kin_assert(n > 0 && (n_logits == 0 || n_logits == 1 || n_logits == n));
    for (int done = 0; done < n;) {
        int chunk = n - done < h->n_batch ? n - done : h->n_batch;
        bool last = done + chunk == n;
        int wanted = n_logits == n ? chunk : n_logits && last ? 1 : 0;
        if (eval_chunk(h, seq, pos + done, tokens + done, chunk, logits, wanted, err) != 0) return KIN_FAIL;
        if (n_logits == n) logits += (size_t)chunk * (size_t)h->model->hp.n_vocab;
        done += chunk;
        if (h->progress) h->progress(h->progress_user, "reading the prompt", (uint64_t)done, (uint64_t)n);
    }
    return 0;
}

void kin_head_remove(kin_head *h, int32_t seq, int32_t begin, int32_t end) {
    kin_shard_remove(h->shard, seq, begin, end);
}

void kin_head_clear(kin_head *h) {
    kin_shard_clear(h->shard);
}
