// kin run: generates text from a model. Tokens go to stdout as they are generated, messages to stderr.
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "app/app.h"
#include "app/join_page.h"
#include "app/measure/constrained.h"
#include "app/model_source.h"
#include "app/option_tables.h"
#include "app/terminal/ring_view.h"
#include "base/units.h"
#include "cluster/compute_loop.h"
#include "cluster/session.h"
#include "pure/sampling/sampler.h"
#include "pure/tokenizer/detok.h"
#include "sys/memory.h"
#include "sys/whole_file.h"

typedef struct run_options {
    kin_session_options session;
    const char *prompt, *file;
    int n_predict;
    kin_sampler_options sampler;
    uint64_t seed;
    const char *logit_bias;
    const char *grammar, *json_schema;
    const char *trace;
    int browsers_port; // -1: browsers cannot join
    kin_https_options https;
    bool ignore_eos, special, no_echo, lines, stats;
} run_options;

enum {
    N_RUN_OPTIONS = 26 + KIN_DRAFT_N_OPTIONS + KIN_KV_DISK_N_OPTIONS,
    MAX_BIAS = 64,
    MAX_UNASKED = 4096,
    MAX_PROMPT = 1 << 30
};

typedef struct tables {
    kin_option own[N_RUN_OPTIONS];
    kin_session_tables session;
} tables;

static void fill_run_tables(run_options *o, tables *t) {
    o->session = kin_session_options_defaults();
    o->session.console = &kin_app_console;
    o->sampler = kin_sampler_options_defaults();
    o->n_predict = 512;
    o->browsers_port = -1;
    const kin_option own[N_RUN_OPTIONS] = {
        {KIN_OPTION_STRING, "prompt", 'p', &o->prompt, "TEXT", "prompt", 0, 0},
        {KIN_OPTION_STRING, "file", 'f', &o->file, "FILE", "read the prompt from a file or pipe (-: stdin)", 0, 0},
        {KIN_OPTION_INT, "n", 'n', &o->n_predict, "N",
         "number of tokens to generate (default: 512; 0: until end of text, at most 4096 or --ctx)", 0, 1 << 27},
        {KIN_OPTION_U64, "seed", 0, &o->seed, "N", "random seed (default: random)", 0, 0},
        {KIN_OPTION_FLOAT, "temp", 0, &o->sampler.temperature, "T", "temperature (default: 0.8; 0: greedy)", 0, 100},
        {KIN_OPTION_INT, "top-k", 0, &o->sampler.top_k, "N", "sample from the N most likely tokens (default: 40; 0: all)", 0,
         1 << 24},
        {KIN_OPTION_FLOAT, "top-p", 0, &o->sampler.top_p, "P",
         "sample from the most likely tokens with total probability P (default: 0.95; 1: off)", 1e-6, 1},
        {KIN_OPTION_FLOAT, "min-p", 0, &o->sampler.min_p, "P",
         "drop tokens less likely than P times the most likely one (default: 0.05; 0: off)", 0, 1},
        {KIN_OPTION_FLOAT, "repeat-penalty", 0, &o->sampler.penalty_repeat, "X", "repetition penalty (default: 1, off)", 0.01,
         100},
        {KIN_OPTION_FLOAT, "frequency-penalty", 0, &o->sampler.penalty_frequency, "X", "frequency penalty (default: 0, off)",
         -100, 100},
        {KIN_OPTION_FLOAT, "presence-penalty", 0, &o->sampler.penalty_presence, "X", "presence penalty (default: 0, off)", -100,
         100},
        {KIN_OPTION_INT, "penalty-last-n", 0, &o->sampler.penalty_last_n, "N",
         "number of recent tokens that are penalized (default: 64)", 0, KIN_SAMPLER_MAX_LAST_N},
        {KIN_OPTION_STRING, "logit-bias", 0, &o->logit_bias, "ID=X,...", "add X to the logit of token ID", 0, 0},
        {KIN_OPTION_STRING, "grammar", 0, &o->grammar, "FILE", "constrain the output with this GBNF grammar", 0, 0},
        {KIN_OPTION_STRING, "json-schema", 0, &o->json_schema, "FILE",
         "constrain the output to JSON of this schema (a file, or the schema itself)", 0, 0},
        {KIN_OPTION_FLAG, "ignore-eos", 0, &o->ignore_eos, NULL, "ignore end-of-sequence tokens and continue generating", 0, 0},
        {KIN_OPTION_FLAG, "special", 0, &o->special, NULL, "parse and print special tokens such as <|im_end|>", 0, 0},
        {KIN_OPTION_FLAG, "no-echo", 0, &o->no_echo, NULL, "do not print the prompt", 0, 0},
        {KIN_OPTION_STRING, "trace", 0, &o->trace, "FILE",
         "write a CSV line per token: ms, memory budget, resident bytes, tokens", 0, 0},
        kin_session_timeline_option(&o->session),
        {KIN_OPTION_INT, "browsers", 0, &o->browsers_port, "PORT",
         "with --cluster: let browsers join at https://THIS-MACHINE:PORT/join (0: any free port)", 0, 65535},
        {KIN_OPTION_STRING, "ssl-cert-file", 0, &o->https.cert_file, "FILE",
         "certificate of the join page (PEM; default: self-signed)", 0, 0},
        {KIN_OPTION_STRING, "ssl-key-file", 0, &o->https.key_file, "FILE", "private key of the certificate", 0, 0},
        {KIN_OPTION_FLAG, "lines", 0, &o->lines, NULL, "read one prompt per line from stdin", 0, 0},
        {KIN_OPTION_FLAG, "stats", 0, &o->stats, NULL, "print speed and memory use at the end", 0, 0},
        {0},
    };
    memcpy(t->own, own, sizeof own);
    kin_option *shared = t->own + N_RUN_OPTIONS - 1 - KIN_KV_DISK_N_OPTIONS - KIN_DRAFT_N_OPTIONS;
    kin_draft_option_table(&o->session, shared);
    kin_kv_disk_option_table(&o->session.kv_disk_size, &o->session.no_kv_disk, shared + KIN_DRAFT_N_OPTIONS);
    t->own[N_RUN_OPTIONS - 1] = (kin_option){0};
    kin_session_option_tables(&o->session, &t->session);
}

// Parses "12=-inf,7=1.5" into bias [MAX_BIAS].
static int parse_bias(const char *option, kin_logit_bias *bias, size_t *n, kin_err *err) {
    const char *text = option;
    for (*n = 0; text && *text; ++*n) {
        char *end;
        if (*n == MAX_BIAS) return kin_err_set(err, "--logit-bias: at most %d tokens", MAX_BIAS);
        long long id = strtoll(text, &end, 10); // strtoll clamps a number that is too large
        if (end == text || *end != '=') return kin_err_set(err, "--logit-bias %s: must be ID=X,ID=X,...", option);
        if (id < 0 || id > INT32_MAX) return kin_err_set(err, "--logit-bias %s: %lld is not a token id", option, id);
        bias[*n].id = (int32_t)id;
        text = end + 1;
        bias[*n].bias = strtof(text, &end);
        if (end == text || (*end && *end != ',') || isnan(bias[*n].bias))
            return kin_err_set(err, "--logit-bias %s: must be ID=X,ID=X,...", option);
        text = *end ? end + 1 : end;
    }
    return 0;
}

typedef struct timing {
    kin_time begun, first, ended; // time of the request, of the first token, of the end
    int n_prompt, n_generated;
} timing;

typedef struct generation {
    const run_options *o;
    kin_session *s;
    kin_compute_loop *loop;
    kin_sampler *sampler;
    kin_constrained constrained;
    kin_detok *detok;
    kin_drafter *drafter;     // NULL: none
    kin_join_page *join_page; // NULL: none
    kin_draft_counts drafts;
    FILE *trace; // NULL: none
    int n_max;
    timing t;
    // For the present request.
    bool failed;
    kin_err why;
} generation;

// Writes memory figures for each token, for plots.
static int write_trace(const generation *g, kin_err *err) {
    if (!g->trace) return 0;
    kin_shard_stats st = kin_shard_get_stats(g->s->shard);
    fprintf(g->trace, "%.1f,%" PRIu64 ",%" PRIu64 ",%d\n", kin_clock_ms(g->t.begun, kin_clock_now()), st.weights_budget,
            st.weights.stream.resident_bytes, g->t.n_generated);
    return fflush(g->trace) == 0 ? 0 : kin_err_set(err, "%s: %s", g->o->trace, strerror(errno));
}

// Returns the next token, or KIN_FAIL.
static int32_t sample(generation *g, float *logits, kin_err *err) {
    kin_constraint *constraint = g->constrained.constraint;
    int32_t id = kin_sampler_sample_constrained(g->sampler, logits, constraint);
    if (id < 0)
        return kin_err_set(
            err, "the model returned no usable logits (all%s are NaN or -inf)%s", constraint ? " that the grammar allows" : "",
            constraint ? ""
                       : ": the file may be damaged, or a device computes wrong results; 'kin cache rm --conversations' "
                         "removes the on-disk KV cache");
    kin_sampler_accept(g->sampler, id);
    return constraint && kin_constraint_accept(constraint, id, err) != 0 ? KIN_FAIL : id;
}

// Prints the token. *ends: it is the last one.
static int write_token(generation *g, int32_t id, bool *ends, kin_err *err) {
    const kin_constraint *constraint = g->constrained.constraint;
    if (g->t.n_generated++ == 0) g->t.first = kin_clock_now();
    *ends = kin_vocab_is_eog(g->s->vocab, id) && !g->o->ignore_eos;
    if (*ends) return 0;
    if (write_trace(g, err) != 0) return KIN_FAIL;
    kin_str piece = kin_detok_push(g->detok, id);
    if (kin_app_write(piece.at, piece.len, err) != 0) return KIN_FAIL;
    *ends = (constraint && kin_constraint_is_complete(constraint)) || g->t.n_generated == g->n_max;
    return 0;
}

static int32_t next(void *user, float *logits) {
    generation *g = user;
    bool ends;
    kin_session_mark(g->s);
    if (atomic_load(&kin_app_stop)) return KIN_GENERATION_NO_TOKEN;
    int32_t id = sample(g, logits, &g->why);
    g->failed = id < 0 || write_token(g, id, &ends, &g->why) != 0;
    return g->failed || ends ? KIN_GENERATION_NO_TOKEN : id;
}

static void show_prompt_progress(void *user, int n_done, int n_cached) {
    const generation *g = user;
    kin_app_progress(NULL, "reading the prompt", (uint64_t)n_done, (uint64_t)g->t.n_prompt);
    (void)n_cached;
}

static void ended(void *user, kin_generation_end how, const kin_err *why) {
    generation *g = user;
    if (how != KIN_GENERATION_FAILED) return;
    g->failed = true;
    g->why = *why;
}

static int generate(generation *g, const int32_t *prompt, int n_prompt, kin_err *err) {
    const kin_generation_options o = {.prompt = prompt,
                                      .n_prompt = n_prompt,
                                      .next = next,
                                      .progress = show_prompt_progress,
                                      .drafts = kin_drafter_source(g->drafter),
                                      .draft_counts = &g->drafts,
                                      .ended = ended,
                                      .user = g};
    kin_constraint *constraint = g->constrained.constraint;
    kin_generation *text;
    if (constraint && kin_constraint_reset(constraint, err) != 0) return KIN_FAIL;
    g->failed = false;
    g->drafts = (kin_draft_counts){0};
    kin_drafter_reset(g->drafter); // an earlier line was another sequence
    g->t.begun = kin_clock_now();
    g->t.n_prompt = n_prompt;
    for (int i = 0; i < n_prompt; i++) kin_sampler_accept(g->sampler, prompt[i]);
    if (kin_scheduler_submit(kin_compute_loop_scheduler(g->loop), &o, &text, err) != 0) return KIN_FAIL;
    int rc = kin_compute_loop_finish(g->loop, err);
    if (rc == 0 && g->failed) {
        *err = g->why;
        rc = KIN_FAIL;
    }
    return atomic_load(&kin_app_stop) ? 0 : rc;
}

static void print_drafts(const kin_draft_counts *c) {
    if (kin_draft_counts_drafted(c) == 0) return;
    fprintf(stderr, "kin: %" PRIu64 " passes, %.2f tokens each;", c->n_passes, (double)c->n_written / (double)c->n_passes);
    for (int i = 0; i < KIN_DRAFT_N_SOURCES; i++) {
        if (c->drafted[i] == 0) continue;
        fprintf(stderr, " %s: %" PRIu64 " drafted, %" PRIu64 " accepted (%.0f %%)", kin_draft_source_name(i), c->drafted[i],
                c->accepted[i], 100 * (double)c->accepted[i] / (double)c->drafted[i]);
    }
    if (c->branches > 0) fprintf(stderr, " %" PRIu64 " branches, %" PRIu64 " accepted", c->branches, c->accepted_branches);
    fprintf(stderr, "\n");
}

static void print_stats(const generation *g) {
    const timing *t = &g->t;
    const kin_session *s = g->s;
    if (!s->shard) return; // the shard of a new ring could not be opened
    kin_shard_stats st = kin_shard_get_stats(s->shard);
    char a[32], b[32], c[32], d[32], e[32];
    double ttft = kin_clock_ms(t->begun, t->first), rest = kin_clock_ms(t->first, t->ended);
    double bytes = (double)kin_model_bytes_per_token(&s->model);
    fprintf(stderr, "\nkin: loaded in %.0f ms; prompt %d tokens, first token after %.0f ms (%.1f tokens/s)\n", s->load_ms,
            t->n_prompt, ttft, t->n_prompt / ttft * 1e3);
    if (t->n_generated > 1) {
        double tpot = rest / (t->n_generated - 1);
        fprintf(stderr, "kin: %d tokens generated, %.2f ms each (%.1f tokens/s), reading %.1f GB/s of weights\n", t->n_generated,
                tpot, 1e3 / tpot, bytes / tpot / 1e6);
    }
    print_drafts(&g->drafts);
    kin_scheduler_stats sc = kin_scheduler_get_stats(kin_compute_loop_scheduler(g->loop));
    if (sc.n_replayed_tokens > 0)
        fprintf(stderr, "kin: %" PRIu64 " tokens were recomputed after a change of the ring\n", sc.n_replayed_tokens);
    if (sc.n_partly_replayed_tokens > 0)
        fprintf(stderr, "kin: %" PRIu64 " tokens were recomputed in a lost device's layers only\n", sc.n_partly_replayed_tokens);
    if (sc.n_loaded_tokens > 0)
        fprintf(stderr, "kin: %" PRIu64 " tokens were loaded from the on-disk KV cache\n", sc.n_loaded_tokens);
    fprintf(stderr, "kin: weights %s mapped + %s prepacked + %s on the GPU; KV cache %s for %d tokens; peak memory %s\n",
            kin_size_format(st.weights.mapped_bytes, a, sizeof a),
            kin_size_format(st.weights.cached_bytes + st.weights.packed_bytes, b, sizeof b),
            kin_size_format(st.weights.gpu_bytes, c, sizeof c), kin_size_format(st.kv_bytes, d, sizeof d), s->n_ctx,
            kin_size_format(kin_memory_peak(), e, sizeof e));
    kin_app_print_streaming(&st);
    if (s->clustered) kin_ring_view_print(s->timeline, stderr);
}

// Opens the prompt: -p, -f, or empty (the model starts without one). *read: the memory of a file's contents, or NULL.
static int open_prompt(const run_options *o, uint8_t **read, kin_str *text, kin_err *err) {
    *text = (kin_str){o->prompt ? o->prompt : "", o->prompt ? strlen(o->prompt) : 0};
    if (!o->file) return 0;
    if (kin_whole_input_read(o->file, MAX_PROMPT, read, &text->len, err) != 0) return KIN_FAIL;
    text->at = (const char *)*read;
    return 0;
}

static int open_generation(generation *g, const run_options *o, int n_ctx, kin_err *err) {
    kin_session *s = g->s;
    if (kin_constrained_open(&g->constrained, o->grammar, o->json_schema, s->vocab, err) != 0) return KIN_FAIL;
    if (kin_session_open(s, &o->session, n_ctx, err) != 0) return KIN_FAIL;
    if (o->browsers_port >= 0 && kin_join_page_open(&g->join_page, s, o->browsers_port, &o->https, err) != 0) return KIN_FAIL;
    if (o->trace && !(g->trace = fopen(o->trace, "w"))) return kin_err_set(err, "%s: %s", o->trace, strerror(errno));
    if (g->trace) fprintf(g->trace, "ms,budget_bytes,resident_bytes,tokens\n");
    unsigned flags = o->special ? KIN_DETOK_SPECIAL : 0;
    if (kin_compute_loop_open(&g->loop, s, 1, s->kv_disk.dir != NULL, err) != 0) return KIN_FAIL;
    if (kin_compute_loop_open_drafter(g->loop, false, &g->drafter, err) != 0) return KIN_FAIL;
    if (kin_detok_new(&g->detok, s->vocab, flags, err) != 0) return KIN_FAIL;
    // The sampler may only choose ids of the vocabulary: an embedding may be padded beyond them.
    kin_sampler_options sampler = o->sampler;
    sampler.suppressed = kin_vocab_suppressed(s->vocab, &sampler.n_suppressed);
    return kin_sampler_new(&g->sampler, kin_vocab_n_tokens(s->vocab), &sampler, err);
}

static void close_generation(generation *g) {
    kin_join_page_close(g->join_page);
    if (g->trace) fclose(g->trace);
    kin_compute_loop_close(g->loop);
    kin_drafter_close(g->drafter);
    kin_sampler_free(g->sampler);
    kin_constrained_close(&g->constrained);
    kin_detok_free(g->detok);
}

// Determines how many tokens to generate after n_prompt.
static int plan_length(generation *g, int n_prompt, kin_err *err) {
    int n_ctx = g->s->n_ctx, n_asked = g->o->n_predict;
    if (n_prompt >= n_ctx) {
        return kin_err_set(err, "the prompt has %d tokens, but the context is %d: use a larger --ctx or a shorter prompt",
                           n_prompt, n_ctx);
    }
    g->n_max = n_ctx - n_prompt + 1;
    if (n_asked > 0 && n_asked < g->n_max) g->n_max = n_asked;
    return 0;
}

// Prints the held-back rest and the end of the line.
static int end_text(const generation *g, kin_err *err) {
    kin_str rest = kin_detok_flush(g->detok);
    return kin_app_write(rest.at, rest.len, err) == 0 ? kin_app_write("\n", 1, err) : KIN_FAIL;
}

// Completes an error message with its consequence for the text.
static int report_end(kin_err *err) {
    const kin_err why = *err;
    return kin_err_set(err, "%s; generation stopped", why.text);
}

// Runs one request: reads the prompt and generates the rest.
static int write_text(generation *g, kin_str text, const int32_t *prompt, int n_prompt, kin_err *err) {
    const run_options *o = g->o;
    g->t = (timing){0};
    if (plan_length(g, n_prompt, err) != 0 || kin_compute_loop_enter(g->loop, err) != 0) return KIN_FAIL;
    int rc = o->no_echo ? 0 : kin_app_write(text.at, text.len, err);
    if (rc == 0 && generate(g, prompt, n_prompt, err) != 0) rc = report_end(err);
    g->t.ended = kin_clock_now();
    if (rc == 0) rc = kin_session_end_timeline(g->s, &o->session, err);
    if (end_text(g, rc == 0 ? err : NULL) != 0) rc = KIN_FAIL;
    if (o->stats && g->t.n_generated > 0) print_stats(g);
    kin_compute_loop_leave(g->loop);
    return rc;
}

static int context_wanted(const run_options *o, int n_prompt) {
    int n = n_prompt + (o->n_predict > 0 ? o->n_predict : MAX_UNASKED);
    return n < 512 ? 512 : n;
}

static int run_once(generation *g, kin_err *err) {
    const run_options *o = g->o;
    uint8_t *read = NULL;
    int32_t *prompt = NULL;
    kin_str text;
    int n_prompt = 0, rc = KIN_FAIL;
    if (open_prompt(o, &read, &text, err) != 0 ||
        kin_session_encode(g->s, text.at, text.len, o->special, &prompt, &n_prompt, err) != 0)
        goto done;
    if (n_prompt == 0) {
        kin_err_set(err, "the prompt is empty and the model has no beginning-of-sequence token; give a prompt with -p");
        goto done;
    }
    if (open_generation(g, o, context_wanted(o, n_prompt), err) == 0) rc = write_text(g, text, prompt, n_prompt, err);

done:
    free(prompt);
    free(read);
    return rc;
}

// Reads one prompt per line until the end of the input. A failed prompt is reported, and the next one is read.
static int run_lines(generation *g, kin_err *err) {
    char *line = NULL;
    size_t cap = 0;
    ssize_t len;
    int n_failed = 0;
    if (open_generation(g, g->o, context_wanted(g->o, MAX_UNASKED), err) != 0) return KIN_FAIL;
    while (!atomic_load(&kin_app_stop) && !ferror(stdout) && (len = getline(&line, &cap, stdin)) >= 0) {
        int32_t *prompt = NULL;
        int n_prompt = 0;
        if (len > 0 && line[len - 1] == '\n') len--;
        if (len == 0) continue;
        kin_sampler_reset(g->sampler, g->o->seed);
        kin_detok_reset(g->detok);
        int rc = kin_session_encode(g->s, line, (size_t)len, g->o->special, &prompt, &n_prompt, err);
        if (rc == 0) rc = write_text(g, (kin_str){line, (size_t)len}, prompt, n_prompt, err);
        if (rc != 0) kin_app_fail(err);
        n_failed += rc != 0;
        free(prompt);
    }
    free(line);
    return n_failed == 0 ? 0 : kin_err_set(err, "%d prompt%s failed", n_failed, n_failed == 1 ? "" : "s");
}

static int run_prompts(run_options *o) {
    kin_session s = {0};
    generation g = {.o = o, .s = &s};
    kin_err err;
    int rc = kin_model_source_resolve(&o->session, &err);
    if (rc == 0) rc = kin_session_open_model(&s, &o->session, &err);
    if (rc == 0) rc = o->lines ? run_lines(&g, &err) : run_once(&g, &err);
    int status = rc == 0 ? KIN_EXIT_OK : kin_app_fail(&err);
    if (atomic_load(&kin_app_stop)) status = KIN_EXIT_INTERRUPTED;
    close_generation(&g);
    kin_session_close(&s);
    return status;
}

// An operand is the model, as in all commands; but here it may be a prompt.
static int read_operand(run_options *o, const char *operand, kin_err *err) {
    const char *colon = operand ? strchr(operand, ':') : NULL;
    bool is_model = operand && (kin_session_is_model(operand) || kin_model_source_is_name(operand));
    if (operand && colon && colon > operand && colon[1] && !strpbrk(operand, " \t\n") && !is_model)
        return kin_err_set(err, "'%s' is not a file and names no source; a model of Ollama's registry is ollama:%s", operand,
                           operand);
    if (operand && !is_model)
        return kin_err_set(err, "unexpected argument '%s': there is no such model file, and a prompt needs -p before it",
                           operand);
    return kin_session_end_parsing(&o->session, operand, err);
}

static int check_prompts(const run_options *o, kin_err *err) {
    const char *name = o->prompt ? "-p" : "-f";
    if (o->prompt && o->file) return kin_err_set(err, "-p cannot be combined with -f");
    if (o->grammar && o->json_schema) return kin_err_set(err, "--grammar cannot be combined with --json-schema");
    if (o->browsers_port >= 0 && !o->session.fleet.cluster) return kin_err_set(err, "--browsers needs --cluster");
    if (o->browsers_port < 0 && (o->https.cert_file || o->https.key_file))
        return kin_err_set(err, "--ssl-cert-file and --ssl-key-file need --browsers");
    if (o->lines && (o->prompt || o->file))
        return kin_err_set(err, "--lines reads prompts from stdin and cannot be combined with %s", name);
    return 0;
}

// An option of the command line drops the setting that excludes it.
static void settle(run_options *o, kin_option_tables tables, int argc, char **argv) {
    if (kin_options_gives_way(tables, argc, argv, "prompt", "file")) o->prompt = NULL;
    if (kin_options_gives_way(tables, argc, argv, "file", "prompt")) o->file = NULL;
    if (kin_options_gives_way(tables, argc, argv, "grammar", "json-schema")) o->grammar = NULL;
    if (kin_options_gives_way(tables, argc, argv, "json-schema", "grammar")) o->json_schema = NULL;
}

static int command_run(int argc, char **argv) {
    run_options o = {0};
    tables t;
    kin_err err;
    const char *operand = NULL;
    kin_logit_bias bias[MAX_BIAS];
    fill_run_tables(&o, &t);
    o.seed = UINT64_MAX;
    kin_option_tables all = {t.own, t.session.own, t.session.fleet};
    if (kin_options_parse(all, argc, argv, &operand, &err) != 0) return kin_app_usage("run", &err);
    settle(&o, all, argc, argv);
    if (read_operand(&o, operand, &err) != 0 || check_prompts(&o, &err) != 0 ||
        parse_bias(o.logit_bias, bias, &o.sampler.n_bias, &err) != 0) {
        return kin_app_usage("run", &err);
    }
    o.sampler.bias = bias;
    if (o.seed == UINT64_MAX) o.seed = kin_clock_now() ^ (uint64_t)getpid() << 40;
    o.sampler.seed = o.seed;
    o.session.records = o.stats && o.session.fleet.cluster;
    o.session.keeps_kv = o.session.fleet.cluster; // after a loss the sequence continues from its stored KV cache
    return run_prompts(&o);
}

static void with_run_options(void (*use)(kin_option_tables tables, void *user), void *user) {
    run_options o = {0};
    tables t;
    fill_run_tables(&o, &t);
    use((kin_option_tables){t.own, t.session.own, t.session.fleet}, user);
}

const kin_command kin_command_run = {
    .name = "run",
    .args = "[MODEL] -p PROMPT [-n N]",
    .summary = "generate text from a prompt",
    .help = "Tokens are printed to stdout as they are generated; Ctrl-C stops. MODEL is a GGUF file, the same as -m. 'run' may "
            "be omitted:\n"
            "kin MODEL -p PROMPT.",
    .run = command_run,
    .options = with_run_options,
};
