// kin eval: prints a model's results for verification: logits and greedy ids of given tokens, token ids of texts, perplexity.
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "app/app.h"
#include "app/model_source.h"
#include "app/option_tables.h"
#include "cluster/compute_loop.h"
#include "sys/whole_file.h"

typedef struct eval_options {
    kin_session_options session;
    const char *tokens, *logits, *tokenize, *ppl;
    int greedy;
    int32_t *ids; // token ids // [n_ids]
    int n_ids;
} eval_options;

enum { N_EVAL_OPTIONS = 6, MAX_TEXT = 1 << 30 };

typedef struct tables {
    kin_option own[N_EVAL_OPTIONS];
    kin_session_tables session;
} tables;

static void fill_eval_tables(eval_options *o, tables *t) {
    o->session = kin_session_options_defaults();
    o->session.console = &kin_app_console;
    const kin_option own[N_EVAL_OPTIONS] = {
        {KIN_OPTION_STRING, "tokens", 0, &o->tokens, "IDS", "token ids to evaluate, separated by spaces", 0, 0},
        {KIN_OPTION_INT, "greedy", 0, &o->greedy, "N", "then generate N tokens greedily and print them", 0, 1 << 20},
        {KIN_OPTION_STRING, "logits", 0, &o->logits, "FILE", "write logits: float32, one row per token", 0, 0},
        {KIN_OPTION_STRING, "tokenize", 0, &o->tokenize, "FILE",
         "print the token ids of each text in FILE (separated by __ggml_vocab_test__ lines; -: stdin)", 0, 0},
        {KIN_OPTION_STRING, "ppl", 0, &o->ppl, "FILE", "compute the perplexity of a text (-: stdin)", 0, 0},
        {0},
    };
    memcpy(t->own, own, sizeof own);
    kin_session_option_tables(&o->session, &t->session);
}

// ---- logits and greedy ids

static int parse_ids(const char *text, int32_t **ids, int *n, kin_err *err) {
    *ids = malloc((strlen(text) / 2 + 1) * sizeof **ids);
    if (!*ids) return kin_err_set(err, "out of memory");
    for (*n = 0;;) {
        char *end;
        long id = strtol(text, &end, 10);
        if (end == text) break;
        if (id < INT32_MIN || id > INT32_MAX) return kin_err_set(err, "--tokens: %ld is not a token id", id);
        (*ids)[(*n)++] = (int32_t)id;
        text = end;
    }
    text += strspn(text, " \n");
    if (*text) return kin_err_set(err, "--tokens: '%s' is not a token id", text);
    return *n ? 0 : kin_err_set(err, "--tokens: no token ids");
}

static int32_t likeliest(const float *logits, int n_vocab) {
    int32_t best = 0;
    for (int i = 1; i < n_vocab; i++) {
        if (logits[i] > logits[best]) best = i;
    }
    return best;
}

// Token ids to evaluate, and the results.
typedef struct evaluation {
    int n_vocab, n_greedy, n_made, n_seen;                        // n_seen: tokens whose logits have arrived
    FILE *logits;                                                 // NULL: not wanted
    void (*row)(struct evaluation *e, int pos, const float *row); // called for each token, in order; NULL: not wanted
    bool failed;
    kin_err why;
    // for perplexity
    const int32_t *ids; // [n_ids]
    int n_ids, n_scored;
    double sum;
} evaluation;

static void handle_row(evaluation *e, const float *row) {
    if (e->row) e->row(e, e->n_seen, row);
    e->n_seen++;
    if (!e->logits || e->failed || fwrite(row, sizeof *row, (size_t)e->n_vocab, e->logits) == (size_t)e->n_vocab) return;
    e->failed = true;
    kin_err_set(&e->why, "cannot write the logits");
}

// Rows are repeated after the loss of a ring.
static void handle_prompt_logits(void *user, int pos, const float *rows, int n) {
    evaluation *e = user;
    for (int i = e->n_seen - pos; i < n; i++) handle_row(e, rows + (size_t)i * (size_t)e->n_vocab);
}

static int32_t next_greedy(void *user, float *logits) {
    evaluation *e = user;
    if (e->n_made > 0) handle_row(e, logits);
    if (e->n_made == e->n_greedy || e->failed) return KIN_GENERATION_NO_TOKEN;
    int32_t id = likeliest(logits, e->n_vocab);
    printf("%s%d", e->n_made++ ? " " : "", id);
    return id;
}

static void ended(void *user, kin_generation_end how, const kin_err *why) {
    evaluation *e = user;
    if (how != KIN_GENERATION_FAILED) return;
    e->failed = true;
    e->why = *why;
}

static int evaluate(kin_compute_loop *loop, evaluation *e, const int32_t *ids, int n, kin_err *err) {
    const kin_generation_options o = {.prompt = ids,
                                      .n_prompt = n,
                                      .no_cache = true,
                                      .next = next_greedy,
                                      .prompt_logits = handle_prompt_logits,
                                      .ended = ended,
                                      .user = e};
    kin_generation *text;
    if (kin_scheduler_submit(kin_compute_loop_scheduler(loop), &o, &text, err) != 0) return KIN_FAIL;
    int rc = kin_compute_loop_finish(loop, err);
    if (rc == 0 && e->failed) {
        *err = e->why;
        rc = KIN_FAIL;
    }
    return rc;
}

static int open_loop(kin_session *s, const eval_options *o, int n_tokens, kin_compute_loop **loop, kin_err *err) {
    if (kin_session_open(s, &o->session, n_tokens, err) != 0) return KIN_FAIL;
    if (kin_compute_loop_open(loop, s, 1, false, err) != 0) return KIN_FAIL;
    return kin_compute_loop_enter(*loop, err);
}

static void close_loop(kin_compute_loop *loop) {
    if (loop) kin_compute_loop_leave(loop);
    kin_compute_loop_close(loop);
}

static int eval_tokens(kin_session *s, const eval_options *o, kin_err *err) {
    kin_compute_loop *loop = NULL;
    evaluation e = {.n_vocab = s->model.hp.n_vocab, .n_greedy = o->greedy};
    int n = o->n_ids + o->greedy, rc = KIN_FAIL;
    if (open_loop(s, o, n, &loop, err) != 0) goto done;
    if (n > s->n_ctx) {
        kin_err_set(err, "%d tokens do not fit into the context of %d", n, s->n_ctx);
        goto done;
    }
    if (o->logits && !(e.logits = fopen(o->logits, "wb"))) {
        kin_err_set(err, "%s: %s", o->logits, strerror(errno));
        goto done;
    }
    rc = evaluate(loop, &e, o->ids, o->n_ids, err);
    if (o->greedy) printf("\n");

done:
    if (e.logits && fclose(e.logits) != 0 && rc == 0) rc = kin_err_set(err, "%s: %s", o->logits, strerror(errno));
    close_loop(loop);
    return rc;
}

// ---- token ids of texts

static const char separator[] = "\n__ggml_vocab_test__\n";

static int print_ids(const kin_session *s, const char *text, size_t len, kin_err *err) {
    int64_t n = kin_tokenizer_encode(s->tokenizer, text, len, 0, NULL, 0, err);
    int32_t *ids = n >= 0 ? malloc(((size_t)n + 1) * sizeof *ids) : NULL;
    if (n >= 0 && !ids) return kin_err_set(err, "out of memory");
    if (n < 0 || kin_tokenizer_encode(s->tokenizer, text, len, 0, ids, (size_t)n, err) < 0) return KIN_FAIL;
    for (int64_t i = 0; i < n; i++) printf("%s%d", i ? " " : "", ids[i]);
    printf("\n");
    free(ids);
    return 0;
}

static int eval_tokenize(const kin_session *s, const eval_options *o, kin_err *err) {
    uint8_t *text;
    size_t n;
    int rc = 0;
    if (!s->tokenizer) return kin_err_set(err, "%s: %s", s->model_name, s->vocab_err.text);
    if (kin_whole_input_read(o->tokenize, MAX_TEXT, &text, &n, err) != 0) return KIN_FAIL;
    const char *at = (const char *)text, *end = at + n;
    while (rc == 0 && at < end) {
        const char *cut = memmem(at, (size_t)(end - at), separator, sizeof separator - 1);
        rc = print_ids(s, at, (size_t)((cut ? cut : end) - at), err);
        at = cut ? cut + sizeof separator - 1 : end;
    }
    free(text);
    return rc;
}

// ---- perplexity

enum { PPL_CTX = 512 };

// Returns -ln of the probability of `id` under one row of logits.
static double surprise(const float *row, int n_vocab, int32_t id) {
    double max = row[0], sum = 0;
    for (int i = 1; i < n_vocab; i++) max = row[i] > max ? row[i] : max;
    for (int i = 0; i < n_vocab; i++) sum += exp(row[i] - max);
    return log(sum) + max - row[id];
}

static void score_row(evaluation *e, int pos, const float *row) {
    if (pos < e->n_ids / 2 || pos + 1 >= e->n_ids) return;
    e->sum += surprise(row, e->n_vocab, e->ids[pos + 1]);
    e->n_scored++;
}

// Scores like llama.cpp: the text is cut into pieces of one context each; in each piece the second half is scored, given the
// first.
static int score(kin_session *s, kin_compute_loop *loop, int32_t *ids, int n, kin_err *err) {
    int n_ctx = s->n_ctx < n ? s->n_ctx : n, rc = 0;
    int32_t bos = kin_vocab_add_bos(s->vocab) ? kin_vocab_bos(s->vocab) : KIN_TOKEN_NONE;
    evaluation e = {.n_vocab = s->model.hp.n_vocab, .row = score_row, .n_ids = n_ctx};
    for (int begin = 0; begin + n_ctx <= n && rc == 0; begin += n_ctx) {
        int32_t first = ids[begin];
        if (bos != KIN_TOKEN_NONE) ids[begin] = bos;
        e.ids = ids + begin;
        e.n_seen = 0;
        rc = evaluate(loop, &e, e.ids, n_ctx, err);
        ids[begin] = first;
        kin_app_progress(NULL, "scoring", (uint64_t)(begin + n_ctx), (uint64_t)n);
    }
    kin_app_progress_clear();
    if (rc == 0 && e.n_scored == 0) rc = kin_err_set(err, "the text is too short: %d tokens", n);
    if (rc == 0)
        printf("perplexity %.4f over %d tokens (%.4f nats each)\n", exp(e.sum / e.n_scored), e.n_scored, e.sum / e.n_scored);
    return rc;
}

static int eval_ppl(kin_session *s, const eval_options *o, kin_err *err) {
    kin_compute_loop *loop = NULL;
    uint8_t *text;
    size_t len;
    int32_t *ids = NULL;
    int n = 0, rc = KIN_FAIL;
    if (kin_whole_input_read(o->ppl, MAX_TEXT, &text, &len, err) != 0) return KIN_FAIL;
    if (kin_session_encode(s, (const char *)text, len, false, &ids, &n, err) == 0 && open_loop(s, o, PPL_CTX, &loop, err) == 0)
        rc = score(s, loop, ids, n, err);
    close_loop(loop);
    free(ids);
    free(text);
    return rc;
}

// Checks the combination of options.
static int check(eval_options *o, kin_err *err) {
    if (!o->tokens + !o->tokenize + !o->ppl != 2)
        return kin_err_set(err, "expected exactly one of --tokens, --tokenize and --ppl");
    if (!o->tokens && (o->greedy || o->logits))
        return kin_err_set(err, "--%s has no effect without --tokens", o->greedy ? "greedy" : "logits");
    return o->tokens ? parse_ids(o->tokens, &o->ids, &o->n_ids, err) : 0;
}

static int command_eval(int argc, char **argv) {
    eval_options o = {0};
    tables t;
    kin_err err;
    kin_session s = {0};
    const char *model = NULL;
    fill_eval_tables(&o, &t);
    if (kin_options_parse((kin_option_tables){t.own, t.session.own, t.session.fleet}, argc, argv, &model, &err) != 0 ||
        kin_session_end_parsing(&o.session, model, &err) != 0)
        return kin_app_usage("eval", &err);
    if (check(&o, &err) != 0) {
        free(o.ids);
        return kin_app_usage("eval", &err);
    }
    int rc = kin_model_source_resolve(&o.session, &err);
    if (rc == 0) rc = (o.tokenize ? kin_session_open_vocab : kin_session_open_model)(&s, &o.session, &err);
    if (rc == 0) rc = o.tokens ? eval_tokens(&s, &o, &err) : o.tokenize ? eval_tokenize(&s, &o, &err) : eval_ppl(&s, &o, &err);
    kin_session_close(&s);
    free(o.ids);
    return rc == 0 ? KIN_EXIT_OK : kin_app_fail(&err);
}

static void with_eval_options(void (*use)(kin_option_tables tables, void *user), void *user) {
    eval_options o = {0};
    tables t;
    fill_eval_tables(&o, &t);
    use((kin_option_tables){t.own, t.session.own, t.session.fleet}, user);
}

const kin_command kin_command_eval = {
    .name = "eval",
    .args = "[MODEL] (--tokens IDS [--greedy N] [--logits FILE] | --tokenize FILE | --ppl FILE)",
    .summary = "evaluate a model: logits, greedy tokens, token ids, perplexity",
    .run = command_eval,
    .options = with_eval_options,
};
