// kin bench: measures how fast a model runs here, as medians over repetitions.
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "app/app.h"
#include "app/measure/bench_text.h"
#include "app/measure/oracle_bench.h"
#include "app/model_source.h"
#include "app/option_tables.h"
#include "base/median.h"
#include "base/units.h"
#include "cluster/session.h"
#include "model/arch.h"
#include "pure/text/escape.h"
#include "sys/disk.h"
#include "sys/energy.h"
#include "sys/memory.h"

typedef struct bench_options {
    kin_session_options session;
    int n_prompt, n_gen, n_rows, n_reps;
    float oracle; // < 0: not requested
    float second; // of --oracle
    bool edit;
    bool energy;
    bool json;
} bench_options;

enum { N_BENCH_OPTIONS = 11 + KIN_DRAFT_N_OPTIONS, MAX_REPS = 1000, MAX_ROWS = KIN_DRAFT_MAX + 1 };

typedef struct tables {
    kin_option own[N_BENCH_OPTIONS];
    kin_session_tables session;
} tables;

static void fill_bench_tables(bench_options *o, tables *t) {
    o->session = kin_session_options_defaults();
    o->session.console = &kin_app_console;
    o->n_prompt = 128;
    o->n_gen = 32;
    o->n_rows = 1;
    o->n_reps = 5;
    o->oracle = -1;
    const kin_option own[N_BENCH_OPTIONS] = {
        {KIN_OPTION_INT, "prompt", 'p', &o->n_prompt, "N", "prompt tokens (default: 128)", 1, 1 << 20},
        {KIN_OPTION_INT, "gen", 'n', &o->n_gen, "N", "tokens to generate (default: 32)", 1, 1 << 20},
        {KIN_OPTION_INT, "rows", 0, &o->n_rows, "N", "tokens per pass while generating; TPOT is the time of a pass (default: 1)",
         1, MAX_ROWS},
        {KIN_OPTION_FLOAT, "oracle", 0, &o->oracle, "P",
         "alternate runs without drafts and with drafts that are accepted with probability P", 0, 1},
        {KIN_OPTION_FLOAT, "second", 0, &o->second, "P",
         "with --oracle: a second candidate is right with probability P where the first is wrong (draft trees)", 0, 1},
        {KIN_OPTION_FLAG, "edit", 0, &o->edit, NULL,
         "the same with n-gram lookup, generating the prompt with one token in 24 changed", 0, 0},
        {KIN_OPTION_INT, "reps", 'r', &o->n_reps, "N", "repetitions (default: 5)", 1, MAX_REPS},
        {KIN_OPTION_FLAG, "energy", 0, &o->energy, NULL,
         "also print the energy of this machine per token, by its processors' counters or by a model of power", 0, 0},
        kin_session_timeline_option(&o->session),
        {KIN_OPTION_FLAG, "json", 0, &o->json, NULL, "print JSON", 0, 0},
        {0},
    };
    memcpy(t->own, own, sizeof own);
    kin_option *draft = t->own + N_BENCH_OPTIONS - 1 - KIN_DRAFT_N_OPTIONS;
    kin_draft_option_table(&o->session, draft);
    draft->help = "the same with the model's own output and these draft sources, as in kin run; with --oracle the draft "
                  "model is run, but its tokens are replaced by the oracle's";
    kin_session_option_tables(&o->session, &t->session);
}

typedef struct result {
    double load_ms, ttft_ms, tpot_ms; // medians
    uint64_t bytes_per_token;
    uint64_t peak_bytes;    // resident, including file pages
    double memory_pressure; // decrease of MemAvailable over MemTotal

    // Streaming; all 0 if everything is in memory. The bound: no run can be faster than its disk or its computation.
    uint64_t resident_bytes, streamed_bytes_per_token;
    double disk_rate, stream_rate; // bytes per second: the disk's own, and the rate while reading
    double compute_ms, bound_ms;   // per token
    double hidden_share;           // share of the reading that is hidden behind computation
    double expert_hit_share;       // of the experts that layers needed, those in memory; 0: all experts are
    double foreseen_share;         // of the experts that layers needed and that were not in memory, those read ahead
    double vain_reads;             // experts that were read ahead and not needed, for each one that was
    uint64_t expert_bytes;         // in memory
    uint64_t window_bytes; // of --weights window: by proposition 5 of TPI-LLM, and as the ring and the retained weights take
    uint64_t window_hidden_bytes;
    kin_shard_memory window_memory; // total
    const char *window_state;       // whether proposition 3, 4 or 6 holds

    double energy_j;         // per generated token, of this machine; 0: not requested
    bool energy_is_measured; // by counters; otherwise by a model of power

    // Predictions (docs/PLANNING.md): from the profiles alone, compared with all repetitions; and corrected by the first half of
    // the repetitions, compared with the second half. 0: no prediction.
    kin_oracle_result oracle; // of --oracle
    double predicted_ttft_ms, predicted_tpot_ms, corrected_tpot_ms, second_half_tpot_ms;
} result;

// A sequence whose tokens do not depend on the model's output (as in llama-bench), in passes of n_rows tokens: the last one
// generated, followed by the next ones as drafts that are always right.
typedef struct passes {
    kin_session *s;
    const bench_options *o;
    const int32_t *prompt; // [o->n_prompt], repeated
    bool draws;
    kin_weights_stats begun; // when the first token was there
    kin_energy energy_begun;
} passes;

// Statistics of weight reads while tokens were generated.
typedef struct weights_work {
    uint64_t n_passes, busy_ns, wait_ns, read_bytes;
    kin_experts_stats experts; // only the numbers of experts
} weights_work;

static void add_work(weights_work *sum, const kin_weights_stats *a, const kin_weights_stats *b) {
    sum->n_passes += b->stream.n_passes - a->stream.n_passes;
    sum->busy_ns += b->stream.busy_ns - a->stream.busy_ns;
    sum->wait_ns += b->stream.wait_ns - a->stream.wait_ns;
    sum->read_bytes += b->stream.read_bytes - a->stream.read_bytes;
    sum->experts.n_hits += b->experts.n_hits - a->experts.n_hits;
    sum->experts.n_misses += b->experts.n_misses - a->experts.n_misses;
    sum->experts.n_guessed += b->experts.n_guessed - a->experts.n_guessed;
    sum->experts.n_foreseen += b->experts.n_foreseen - a->experts.n_foreseen;
    sum->experts.n_late += b->experts.n_late - a->experts.n_late;
}

static int32_t choose(void *user, const float *logits, int i) {
    passes *p = user;
    if (i == 0 && p->s->shard) p->begun = kin_shard_get_stats(p->s->shard).weights;
    if (i == 0 && p->o->energy) kin_energy_read(&p->energy_begun, KIN_ENERGY_ZONES);
    if (p->draws && i % p->o->n_rows == 0) kin_session_mark(p->s);
    (void)logits;
    return p->prompt[i % p->o->n_prompt];
}

static void foresee(void *user, const int32_t *tokens, int n, int most, kin_draft *out) {
    const passes *p = user;
    int at = n - p->o->n_prompt;
    *out = (kin_draft){.kind = KIN_DRAFT_ORACLE};
    for (; at > 0 && out->n < most; out->n++) out->tokens[out->n] = p->prompt[(at + out->n) % p->o->n_prompt];
    (void)tokens;
}

static int measure(kin_compute_loop *loop, passes *p, double *ttft, double *tpot, kin_err *err) {
    const bench_options *o = p->o;
    const kin_draft_source rows = {foresee, p};
    const kin_bench_text text = {.prompt = p->prompt,
                                 .n_prompt = o->n_prompt,
                                 .n_tokens = 1 + o->n_gen * o->n_rows, // the first token comes from the prompt
                                 .choose = choose,
                                 .user = p,
                                 .drafts = o->n_rows > 1 ? &rows : NULL};
    if (kin_bench_write(loop, &text, ttft, tpot, err) != 0) return KIN_FAIL;
    *tpot /= o->n_gen;
    return 0;
}

static void add_energy(const passes *p, result *r) {
    kin_energy now;
    const double n_tokens = (double)p->o->n_gen * p->o->n_rows * p->o->n_reps;
    kin_energy_read(&now, KIN_ENERGY_ZONES);
    r->energy_j += kin_energy_between(&p->energy_begun, &now, &r->energy_is_measured) / n_tokens;
}

static int measure_disk(const kin_session *s, result *r, kin_err *err) {
    return kin_disk_rate(kin_gguf_file_path(s->model.gguf, 0), 256u << 20, &r->disk_rate, err);
}

static void explain_experts(const kin_experts_stats *e, result *r) {
    const double missing = (double)(e->n_misses + e->n_foreseen - e->n_late);
    if (e->n_misses > 0) r->expert_hit_share = (double)e->n_hits / (double)(e->n_hits + e->n_misses);
    if (e->n_foreseen == 0) return;
    r->foreseen_share = (double)e->n_foreseen / missing;
    r->vain_reads = (double)(e->n_guessed - e->n_foreseen) / (double)e->n_foreseen;
}

// Computes what streaming did during the measured tokens.
static void explain_streaming(const kin_session *s, const weights_work *w, double tpot_ms, result *r) {
    const double n = (double)w->n_passes, busy_ns = (double)w->busy_ns, wait_ns = (double)w->wait_ns;
    const uint64_t bytes = w->read_bytes;
    const kin_weights_stats now = kin_shard_get_stats(s->shard).weights;
    kin_err err;
    if (n <= 0 || bytes == 0) return;
    r->resident_bytes = now.stream.resident_bytes + now.experts.held_bytes;
    r->expert_bytes = now.experts.held_bytes;
    explain_experts(&w->experts, r);
    r->streamed_bytes_per_token = (uint64_t)((double)bytes / n);
    r->stream_rate = (double)bytes / busy_ns * 1e9;
    r->hidden_share = wait_ns < busy_ns ? 1 - wait_ns / busy_ns : 0;
    double per_pass_wait_ms = wait_ns / n / 1e6;
    r->compute_ms = tpot_ms > per_pass_wait_ms ? tpot_ms - per_pass_wait_ms : 0;
    if (r->disk_rate <= 0 && measure_disk(s, r, &err) != 0) r->disk_rate = r->stream_rate;
    double disk_ms = (double)r->streamed_bytes_per_token / r->disk_rate * 1e3;
    r->bound_ms = disk_ms > r->compute_ms ? disk_ms : r->compute_ms;
}

// After this many repetitions their times are used to correct the prediction.
static int n_to_learn_from(int n_reps) {
    return n_reps / 2;
}

static bool compares_drafts(const bench_options *o) {
    return o->oracle >= 0 || o->edit || o->session.draft;
}

// Predictions exist only for streaming with fused attention.
static bool can_be_predicted(const bench_options *o) {
    return strcmp(o->session.weights, "stream") == 0 && !o->session.no_flash && o->n_rows == 1 && !compares_drafts(o);
}

static void expect(kin_session *s, const bench_options *o, result *r) {
    kin_expectation e;
    if (!can_be_predicted(o) || !kin_session_expects(s, &e)) return;
    bool chunks_are_own = s->clustered && o->session.fleet.n_chunk > 0; // the user's chunks, not those that TTFT is predicted for
    if (!chunks_are_own) r->predicted_ttft_ms = e.before.ttft_s * 1e3;
    r->predicted_tpot_ms = e.before.tpot_s * 1e3;
    r->corrected_tpot_ms = e.corrected.tpot_s * 1e3;
}

// Compares TPI-LLM's conditions with the measurement. Times of computation and reductions are assumed to be proportional to the
// size of a block.
static void explain_window(kin_session *s, result *r) {
    kin_weights_stats w = kin_shard_get_stats(s->shard).weights;
    const kin_sliding_blocks *b = &w.blocks;
    double layer_bytes = (double)(b->attn_bytes + b->ff_bytes);
    if (!kin_shard_get_memory(s->shard, &r->window_memory) || layer_bytes <= 0 || r->disk_rate <= 0) return;
    double attn = (double)b->attn_bytes / layer_bytes, layer_s = r->compute_ms / 1e3 / b->n_layers;
    kin_sliding_times t = {.attn_s = layer_s * attn,
                           .ff_s = layer_s * (1 - attn),
                           .load_attn_s = (double)b->attn_bytes / r->disk_rate,
                           .load_ff_s = (double)b->ff_bytes / r->disk_rate};
    r->window_bytes = r->window_memory.weights;
    r->window_hidden_bytes = w.stream.ring_bytes + w.stream.resident_bytes;
    r->window_state = kin_sliding_window_is_tightly_steady(&t)                    ? "tightly steady"
                      : kin_sliding_window_is_steady(&w.sliding, b->n_layers, &t) ? "steady"
                                                                                  : "not steady";
}

static int measure_all(kin_compute_loop *loop, passes *p, result *r, kin_err *err) {
    kin_session *s = p->s;
    const bench_options *o = p->o;
    double ttft[MAX_REPS], tpot[MAX_REPS];
    if (measure(loop, p, ttft, tpot, err) != 0) return KIN_FAIL; // not counted: warms pages and caches
    const kin_head *head = s->head;
    uint64_t ring = kin_head_ring_number(head);
    weights_work work = {0};
    p->draws = true;
    for (int i = 0; i < o->n_reps; i++) {
        if (i == n_to_learn_from(o->n_reps)) expect(s, o, r);
        if (measure(loop, p, &ttft[i], &tpot[i], err) != 0) return KIN_FAIL;
        if (o->energy) add_energy(p, r);
        if (s->shard) {
            const kin_weights_stats ended = kin_shard_get_stats(s->shard).weights;
            add_work(&work, &p->begun, &ended);
        }
        kin_app_progress(NULL, "measuring", (uint64_t)i + 1, (uint64_t)o->n_reps);
    }
    int learned = n_to_learn_from(o->n_reps);
    r->second_half_tpot_ms = kin_median(tpot + learned, o->n_reps - learned);
    r->ttft_ms = kin_median(ttft, o->n_reps);
    r->tpot_ms = kin_median(tpot, o->n_reps);
    if (s->head != head || kin_head_ring_number(head) != ring) return 0; // the counters are those of another shard
    explain_streaming(s, &work, r->tpot_ms, r);
    explain_window(s, r);
    return 0;
}

static int measure_drafts(kin_session *s, const bench_options *o, const int32_t *prompt, result *r, kin_err *err) {
    const kin_oracle_options oracle = {
        .text = o->oracle >= 0 ? KIN_ORACLE_KNOWS
                : o->edit      ? KIN_ORACLE_EDITS
                               : KIN_ORACLE_NONE,
        .chance = (double)o->oracle,
        .second_chance = (double)o->second,
        .n_gen = o->n_gen,
        .n_reps = o->n_reps,
    };
    if (kin_oracle_bench(s, &oracle, prompt, o->n_prompt, &r->oracle, err) != 0) return KIN_FAIL;
    r->tpot_ms = r->oracle.drafted_ms;
    return 0;
}

static int measure_tokens(kin_session *s, const bench_options *o, const int32_t *prompt, result *r, kin_err *err) {
    kin_compute_loop *loop;
    passes p = {.s = s, .o = o, .prompt = prompt};
    if (o->n_rows > 1) s->draft = KIN_DRAFT_ALSO_INEXACT; // with any kernels
    s->draft_min = s->draft_max = o->n_rows - 1;
    if (kin_compute_loop_open(&loop, s, 1, false, err) != 0) return KIN_FAIL;
    int rc = kin_compute_loop_enter(loop, err);
    if (rc == 0) rc = measure_all(loop, &p, r, err);
    if (rc == 0) rc = kin_session_end_timeline(s, &o->session, err);
    kin_compute_loop_leave(loop);
    kin_compute_loop_close(loop);
    return rc;
}

static int bench(kin_session *s, const bench_options *o, result *r, kin_err *err) {
    kin_memory before = kin_memory_read();
    if (o->n_gen > INT32_MAX / 2 / o->n_rows) return kin_err_set(err, "--gen %d is too large", o->n_gen);
    int n_tokens = o->n_prompt + o->n_gen * o->n_rows;
    // Measuring takes 8 MiB, which must not count where memory is compared with a formula.
    if (strcmp(o->session.weights, "window") == 0) {
        if (measure_disk(s, r, err) != 0) r->disk_rate = 0;
        kin_memory_trim();
    }
    if (kin_session_open(s, &o->session, n_tokens, err) != 0) return KIN_FAIL;
    if (n_tokens > s->n_ctx) return kin_err_set(err, "%d tokens do not fit into the context of %d", n_tokens, s->n_ctx);
    int32_t *prompt = malloc((size_t)o->n_prompt * sizeof *prompt);
    int rc = prompt ? 0 : kin_err_set(err, "out of memory");
    for (int i = 0; i < o->n_prompt && rc == 0; i++) prompt[i] = (int32_t)((uint64_t)i * 7919 % (uint64_t)s->model.hp.n_vocab);
    if (rc == 0) rc = compares_drafts(o) ? measure_drafts(s, o, prompt, r, err) : measure_tokens(s, o, prompt, r, err);

    kin_memory after = kin_memory_read();
    r->load_ms = s->load_ms;
    r->bytes_per_token = kin_model_bytes_per_token(&s->model);
    r->peak_bytes = kin_memory_peak();
    r->memory_pressure =
        before.available > after.available ? (double)(before.available - after.available) / (double)before.total : 0;
    free(prompt);
    return rc;
}

static void print_streaming(const result *r) {
    char a[32], b[32], text[200];
    if (r->streamed_bytes_per_token == 0) return;
    printf("streaming        %s resident, %s read per token at %.2f GB/s (disk: %.2f), %.0f %% of it overlapped with computing\n",
           kin_size_format(r->resident_bytes, a, sizeof a), kin_size_format(r->streamed_bytes_per_token, b, sizeof b),
           r->stream_rate / 1e9, r->disk_rate / 1e9, 100 * r->hidden_share);
    if (r->expert_bytes > 0)
        printf("experts          %s in memory, %.1f %% of those that were needed\n",
               kin_size_format(r->expert_bytes, a, sizeof a), 100 * r->expert_hit_share);
    if (r->foreseen_share > 0)
        printf("look-ahead       %.1f %% of the others were read before they were needed, and %.2f in vain for each of these\n",
               100 * r->foreseen_share, r->vain_reads);
    printf("bound            %.1f ms per token (computing only: %.1f ms); measured: %.2f times the bound\n", r->bound_ms,
           r->compute_ms, r->tpot_ms / r->bound_ms);
    if (!r->window_state) return;
    kin_shard_memory_format(&r->window_memory, text, sizeof text);
    printf("window           %s by TPI-LLM's proposition 5, %s used; its conditions: %s\n",
           kin_size_format(r->window_bytes, a, sizeof a), kin_size_format(r->window_hidden_bytes, b, sizeof b), r->window_state);
    printf("window memory    %s\n", text);
}

static double error_of(double predicted, double measured) {
    return (predicted - measured) / measured;
}

static void print_prediction(const result *r) {
    if (r->predicted_tpot_ms <= 0) return;
    printf("predicted        TPOT %.2f ms (%+.1f %%)", r->predicted_tpot_ms, 100 * error_of(r->predicted_tpot_ms, r->tpot_ms));
    if (r->predicted_ttft_ms > 0)
        printf(", TTFT %.1f ms (%+.1f %%)", r->predicted_ttft_ms, 100 * error_of(r->predicted_ttft_ms, r->ttft_ms));
    printf("; corrected by this run: TPOT %.2f ms (%+.1f %%)\n", r->corrected_tpot_ms,
           100 * error_of(r->corrected_tpot_ms, r->second_half_tpot_ms));
}

static void add_prediction(json_t *root, const char *key, const char *error_key, double predicted_ms, double measured_ms) {
    if (predicted_ms <= 0) return;
    json_object_set_new(root, key, json_real(predicted_ms));
    json_object_set_new(root, error_key, json_real(error_of(predicted_ms, measured_ms)));
}

static void print_drafts(const bench_options *o, const kin_oracle_result *r) {
    const kin_draft_counts *c = &r->drafts;
    printf("generate %-7d TPOT %.2f ms without drafts, %.2f ms with drafts: %.2f times as fast\n", o->n_gen, r->plain_ms,
           r->drafted_ms, r->plain_ms / r->drafted_ms);
    printf("drafts           %" PRIu64 " drafted, %" PRIu64 " accepted; %" PRIu64 " passes, %.2f tokens each; same output\n",
           kin_draft_counts_drafted(c), kin_draft_counts_accepted(c), c->n_passes, (double)c->n_written / (double)c->n_passes);
}

static void print_branches(const kin_draft_counts *c) {
    if (c->branches == 0) return;
    printf("branches         %" PRIu64 " verified, %" PRIu64 " accepted\n", c->branches, c->accepted_branches);
}

static void print_times(const bench_options *o, const result *r) {
    printf("prompt %-9d TTFT %.1f ms   %.1f tokens/s\n", o->n_prompt, r->ttft_ms, o->n_prompt / r->ttft_ms * 1e3);
    printf("generate %-7d TPOT %.2f ms   %.2f tokens/s   %.1f GB/s\n", o->n_gen, r->tpot_ms, o->n_rows * 1e3 / r->tpot_ms,
           (double)r->bytes_per_token / r->tpot_ms / 1e6);
}

static void print_text(const kin_session *s, const bench_options *o, const result *r) {
    char a[32], b[32], name[1024];
    printf("model            %s (%s, %d layers), %s per token\n",
           kin_escape(name, sizeof name, s->model_name, strlen(s->model_name)), s->model.hp.arch->name, s->model.hp.n_layer,
           kin_size_format(r->bytes_per_token, a, sizeof a));
    printf("load             %.0f ms\n", r->load_ms);
    if (compares_drafts(o))
        print_drafts(o, &r->oracle);
    else
        print_times(o, r);
    print_branches(&r->oracle.drafts);
    print_streaming(r);
    print_prediction(r);
    if (o->energy)
        printf("energy           %.3g J per token on this machine, %s\n", r->energy_j,
               r->energy_is_measured ? "by its processors' counters"
                                     : "by a model of power: 4 W, 15 W per busy processor, 2 W for reading");
    printf("memory           peak %s, pressure %.1f %%\n", kin_size_format(r->peak_bytes, b, sizeof b), 100 * r->memory_pressure);
}

static void add_drafts(json_t *root, const bench_options *o, const kin_oracle_result *r) {
    if (o->oracle >= 0) json_object_set_new(root, "oracle", json_real((double)o->oracle));
    if (o->second > 0) json_object_set_new(root, "second", json_real((double)o->second));
    json_object_set_new(root, "plain_tpot_ms", json_real(r->plain_ms));
    json_object_set_new(root, "draft_n", json_integer((json_int_t)kin_draft_counts_drafted(&r->drafts)));
    json_object_set_new(root, "draft_n_accepted", json_integer((json_int_t)kin_draft_counts_accepted(&r->drafts)));
    if (r->drafts.branches > 0) {
        json_object_set_new(root, "branch_n", json_integer((json_int_t)r->drafts.branches));
        json_object_set_new(root, "branch_n_accepted", json_integer((json_int_t)r->drafts.accepted_branches));
    }
    json_object_set_new(root, "pass_n", json_integer((json_int_t)r->drafts.n_passes));
    json_object_set_new(root, "tokens_per_pass", json_real((double)r->drafts.n_written / (double)r->drafts.n_passes));
}

static void print_json(const kin_session *s, const bench_options *o, const result *r) {
    const struct {
        const char *name;
        double value;
        bool whole;
    } figures[] = {
        {"threads", s->devices.n_threads, true},
        {"prompt", o->n_prompt, true},
        {"gen", o->n_gen, true},
        {"rows", o->n_rows, true},
        {"reps", o->n_reps, true},
        {"load_ms", r->load_ms, false},
        {"ttft_ms", r->ttft_ms, false},
        {"prompt_tokens_per_s", o->n_prompt / r->ttft_ms * 1e3, false},
        {"tpot_ms", r->tpot_ms, false},
        {"tokens_per_s", o->n_rows * 1e3 / r->tpot_ms, false},
        {"weight_bytes_per_token", (double)r->bytes_per_token, true},
        {"weight_gb_per_s", (double)r->bytes_per_token / r->tpot_ms / 1e6, false},
        {"peak_bytes", (double)r->peak_bytes, true},
        {"memory_pressure", r->memory_pressure, false},
        {"resident_bytes", (double)r->resident_bytes, true},
        {"streamed_bytes_per_token", (double)r->streamed_bytes_per_token, true},
        {"stream_gb_per_s", r->stream_rate / 1e9, false},
        {"disk_gb_per_s", r->disk_rate / 1e9, false},
        {"hidden_share", r->hidden_share, false},
        {"expert_bytes", (double)r->expert_bytes, true},
        {"expert_hit_share", r->expert_hit_share, false},
        {"foreseen_share", r->foreseen_share, false},
        {"vain_reads", r->vain_reads, false},
        {"compute_ms", r->compute_ms, false},
        {"bound_ms", r->bound_ms, false},
    };
    char name[1024]; // a file name may not be UTF-8
    json_t *root = json_object();
    json_object_set_new(root, "model", json_string(kin_escape(name, sizeof name, s->model_name, strlen(s->model_name))));
    json_object_set_new(root, "arch", json_string(s->model.hp.arch->name));
    for (size_t i = 0; i < sizeof figures / sizeof figures[0]; i++) {
        double value = figures[i].value;
        json_object_set_new(root, figures[i].name, figures[i].whole ? json_integer((json_int_t)value) : json_real(value));
    }
    if (r->window_state) {
        json_object_set_new(root, "window_bytes", json_integer((json_int_t)r->window_bytes));
        json_object_set_new(root, "window_taken_bytes", json_integer((json_int_t)r->window_hidden_bytes));
        json_object_set_new(root, "formula_bytes", json_integer((json_int_t)kin_shard_memory_sum(&r->window_memory)));
        json_object_set_new(root, "taken_bytes", json_integer((json_int_t)r->window_memory.occupied));
        json_object_set_new(root, "window_state", json_string(r->window_state));
    }
    if (o->energy) {
        json_object_set_new(root, "energy_j_per_token", json_real(r->energy_j));
        json_object_set_new(root, "energy_source", json_string(r->energy_is_measured ? "rapl" : "model"));
    }
    if (compares_drafts(o)) add_drafts(root, o, &r->oracle);
    add_prediction(root, "predicted_tpot_ms", "predicted_tpot_error", r->predicted_tpot_ms, r->tpot_ms);
    add_prediction(root, "predicted_ttft_ms", "predicted_ttft_error", r->predicted_ttft_ms, r->ttft_ms);
    add_prediction(root, "corrected_tpot_ms", "corrected_tpot_error", r->corrected_tpot_ms, r->second_half_tpot_ms);
    kin_app_write_json(root, 0);
}

static int check(const bench_options *o, kin_err *err) {
    if (o->n_rows > o->session.n_batch) return kin_err_set(err, "--rows %d needs --batch %d", o->n_rows, o->n_rows);
    if (!compares_drafts(o) && o->second == 0) return 0;
    if (o->energy) return kin_err_set(err, "--energy cannot be combined with --oracle, --edit or --draft");
    if (o->edit && (o->oracle >= 0 || o->session.draft))
        return kin_err_set(err, "--edit cannot be combined with --oracle or --draft");
    if (o->n_rows > 1) return kin_err_set(err, "--rows cannot be combined with --oracle, --edit or --draft");
    if (o->second > 0 && o->oracle < 0) return kin_err_set(err, "--second needs --oracle");
    return o->n_gen > 1 ? 0 : kin_err_set(err, "--oracle, --edit and --draft need --gen 2 or more");
}

static int command_bench(int argc, char **argv) {
    bench_options o = {0};
    tables t;
    kin_err err;
    kin_session s = {0};
    result r = {0};
    const char *model = NULL;
    fill_bench_tables(&o, &t);
    if (kin_options_parse((kin_option_tables){t.own, t.session.own, t.session.fleet}, argc, argv, &model, &err) != 0 ||
        kin_session_end_parsing(&o.session, model, &err) != 0 || check(&o, &err) != 0)
        return kin_app_usage("bench", &err);
    o.session.predicts = can_be_predicted(&o);
    o.session.drafts = o.session.draft != NULL;
    o.session.n_prompt = o.n_prompt;
    o.session.n_cached = o.n_prompt + o.n_gen / 2;
    int rc = kin_model_source_resolve(&o.session, &err);
    if (rc == 0) rc = kin_session_open_model(&s, &o.session, &err);
    if (rc == 0) rc = bench(&s, &o, &r, &err);
    if (rc == 0 && o.json) print_json(&s, &o, &r);
    if (rc == 0 && !o.json) print_text(&s, &o, &r);
    kin_session_close(&s);
    return rc == 0 ? KIN_EXIT_OK : kin_app_fail(&err);
}

static void with_bench_options(void (*use)(kin_option_tables tables, void *user), void *user) {
    bench_options o = {0};
    tables t;
    fill_bench_tables(&o, &t);
    use((kin_option_tables){t.own, t.session.own, t.session.fleet}, user);
}

const kin_command kin_command_bench = {
    .name = "bench",
    .args = "[MODEL] [--prompt N] [--gen N] [--reps R] [--json]",
    .summary = "measure the speed of a model on this machine",
    .help =
        "TTFT: time to the first token. TPOT: time per output token after it. GB/s: weights read per second while generating.\n"
        "Memory pressure: the drop of available memory as a share of total memory.",
    .run = command_bench,
    .options = with_bench_options,
};
