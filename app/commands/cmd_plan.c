// kin plan: shows which device would compute which layers, the predicted time per token, and the reasons.
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "app/app.h"
#include "app/model_source.h"
#include "app/option_tables.h"
#include "app/plan_compare.h"
#include "app/plan_draft.h"
#include "app/plan_print.h"
#include "cluster/planner.h"
#include "cluster/session.h"
#include "engine/shard_memory.h"
#include "observe/facts_file.h"
#include "observe/plan_file.h"
#include "sys/highs.h"

typedef struct plan_options {
    kin_session_options session; // of these it uses the model, the sizes of its cache, the work, the scheduler and its rounds
    const char *what_if, *save, *ignore;
    const char *draft; // the file of a draft model; NULL: none
    bool has_blocks;   // the session's --draft names draft blocks
    int n_cached;      // tokens before the predicted one; -1: not given
    bool all, json;
} plan_options;

// Options that each kind of plan accepts. A table that does not apply is empty, so its options are unknown.
typedef struct plan_tables {
    kin_option always[12];
    kin_option one[5];   // not with --all
    kin_option model[3]; // if the model is read from its file
    kin_option here[7];  // not with --what-if
    kin_option others[KIN_IDENTITY_N_OPTIONS + 3];
} plan_tables;

static void fill_always(plan_options *o, kin_option table[12]) {
    kin_session_options *s = &o->session;
    const kin_option options[12] = {
        {KIN_OPTION_STRING, "model", 'm', &s->model, "FILE", "GGUF model (default: the file's, or the built-in demo model)", 0,
         0},
        {KIN_OPTION_STRING, "what-if", 0, &o->what_if, "FACTS", "plan for the devices, links and model in this JSON file", 0, 0},
        {KIN_OPTION_STRING, "save", 0, &o->save, "FACTS", "save the measurements to this file", 0, 0},
        {KIN_OPTION_INT, "ctx", 'c', &s->n_ctx, "N", "context size in tokens (default: the file's, or 4096, at most the model's)",
         0, 1 << 27},
        {KIN_OPTION_INT, "batch", 0, &s->n_batch, "N", "prompt tokens processed at once (default: the file's, or 512)", 1, 8192},
        {KIN_OPTION_INT, "prompt", 0, &s->n_prompt, "N", "prompt length whose time is predicted (default: the file's, or 128)", 1,
         1 << 27},
        {KIN_OPTION_INT, "cached", 0, &o->n_cached, "N",
         "context length at which the time per token is predicted (default: the file's, or half the context)", 0, 1 << 27},
        {KIN_OPTION_INT, "rounds", 0, &s->fleet.n_rounds, "K", "passes around the ring per token (default: the fastest)", 0,
         KIN_MAX_WINDOWS},
        {KIN_OPTION_STRING, "halda", 0, &s->fleet.halda, "published|released",
         "objective of --scheduler halda: as in the paper (default), or as in the released prima.cpp", 0, 0},
        {KIN_OPTION_FLAG, "all", 'a', &o->all, NULL, "compare all schedulers", 0, 0},
        {KIN_OPTION_FLAG, "json", 0, &o->json, NULL, "print JSON", 0, 0},
        {0},
    };
    memcpy(table, options, sizeof options);
}

static void fill_here(plan_options *o, kin_option table[7]) {
    kin_session_options *s = &o->session;
    const kin_option options[7] = {
        {KIN_OPTION_FLAG, "cluster", 0, &s->fleet.cluster, NULL, "include other devices ('kin join' on each)", 0, 0},
        {KIN_OPTION_THREADS, "threads", 't', &s->n_threads, "N", "CPU threads of this machine (default: physical cores)", 0,
         1024},
        {KIN_OPTION_SIZE, "memory", 0, &s->memory, "SIZE", "memory limit of this machine (default: free memory)", 0, 0},
        {KIN_OPTION_STRING, "profile", 0, &s->profile, "FILE",
         "machine profile, as printed by 'kin profile --json' (default: measured once)", 0, 0},
        {KIN_OPTION_STRING, "cache", 0, &s->cache_dir, "DIR", "directory of profiles (default: ~/.cache/kin)", 0, 0},
        {KIN_OPTION_FLAG, "no-repack", 0, &s->no_repack, NULL, "use the weights in the file's layout", 0, 0},
        {0},
    };
    memcpy(table, options, sizeof options);
}

static void fill_plan_tables(plan_options *o, plan_tables *t) {
    *o = (plan_options){.session = kin_session_options_defaults(), .n_cached = -1};
    o->session.console = &kin_app_console;
    *t = (plan_tables){0};
    o->session.n_batch = 0; // not given
    kin_fleet_options *fleet = &o->session.fleet;
    fill_always(o, t->always);
    t->one[0] = (kin_option){KIN_OPTION_STRING,
                             "scheduler",
                             0,
                             &fleet->scheduler,
                             "NAME",
                             "scheduling algorithm (default: exact; 'help' lists all)",
                             0,
                             0};
    t->one[1] =
        (kin_option){KIN_OPTION_STRING,
                     "draft",
                     0,
                     &o->draft,
                     "FILE",
                     "predict the speed-up of this draft model at several acceptance rates; mtp, mtp:FILE: count draft blocks",
                     0,
                     0};
    t->one[2] = (kin_option){KIN_OPTION_STRING,
                             "ignore",
                             0,
                             &o->ignore,
                             "METRIC",
                             "plan as if speed, latency or bandwidth took no time, to see what that metric is worth",
                             0,
                             0};
    t->one[3] = (kin_option){KIN_OPTION_STRING,
                             "plan",
                             0,
                             &fleet->plan,
                             "auto|even|memory|tp|FILE",
                             "predict this plan, as of kin run --cluster, instead of a scheduler's",
                             0,
                             0};
    t->model[0] = (kin_option){KIN_OPTION_STRING,
                               "kv-type",
                               0,
                               &o->session.kv_type,
                               "f16|q8_0",
                               "KV cache: f16 (default) or q8_0 (half the memory)",
                               0,
                               0};
    t->model[1] =
        (kin_option){KIN_OPTION_STRING,
                     "wire",
                     0,
                     &fleet->wire,
                     "f32|f16|q8",
                     "format of activations on the network: f32 (default, exact), f16 (half the bytes) or q8 (a quarter)",
                     0,
                     0};
    fill_here(o, t->here);
    t->others[0] = (kin_option){KIN_OPTION_INT,
                                "devices",
                                0,
                                &fleet->n_devices,
                                "N",
                                "number of devices to wait for (default: start with those that have joined)",
                                0,
                                32};
    t->others[1] = (kin_option){KIN_OPTION_FLAG,
                                "hidden",
                                0,
                                &fleet->hidden,
                                NULL,
                                "do not answer discovery; devices must be given this head's address",
                                0,
                                0};
    kin_identity_option_table(&fleet->net, t->others + 2);
}

static int parse_tables(plan_options *o, const plan_tables *t, int argc, char **argv, kin_err *err) {
    const char *operand = NULL;
    kin_option_tables tables = {t->always, t->one, t->model, t->here, t->others};
    return kin_options_parse(tables, argc, argv, &operand, err) == 0 ? kin_session_end_parsing(&o->session, operand, err)
                                                                     : KIN_FAIL;
}

// Reads the words that --draft accepts in kin run: takes the file of a draft model; draft blocks are counted by the session.
static int read_draft(plan_options *o, kin_err *err) {
    kin_draft_mode mode;
    const char *words = o->draft;
    if (!words) return 0;
    if (kin_draft_words_read(words, &mode, &o->draft, err) != 0) return KIN_FAIL;
    const bool is_preset = kin_options_is_preset("draft", words); // settings apply to all commands, so they may be ignored here
    o->session.draft = words;
    o->has_blocks = mode == KIN_DRAFT_BLOCK || (o->draft && kin_draft_blocks_fill(o->draft));
    if (!o->has_blocks)
        return o->draft || is_preset ? 0 : kin_err_set(err, "--draft %s: kin plan needs the FILE of a draft model", words);
    o->draft = NULL;
    if (!o->what_if || o->session.model) return 0;
    o->has_blocks = false;
    return is_preset ? 0 : kin_err_set(err, "--draft %s: give the model's file with -m", words);
}

static bool is_given_plan(const plan_options *o) {
    return strcmp(o->session.fleet.plan, "auto") != 0;
}

// A given plan uses no scheduler. In settings and in the environment --plan is meant for rings, and does not count here.
static int check_plan(plan_options *o, kin_err *err) {
    kin_fleet_options *fleet = &o->session.fleet;
    const char *other = o->ignore                                ? "--ignore"
                        : o->draft || o->has_blocks              ? "--draft"
                        : fleet->halda                           ? "--halda"
                        : strcmp(fleet->scheduler, "exact") != 0 ? "--scheduler"
                                                                 : NULL;
    if (kin_options_is_preset("plan", fleet->plan)) fleet->plan = "auto";
    if (!is_given_plan(o)) return 0;
    const bool is_file = !kin_planner_is_word(fleet->plan);
    if (!other && is_file && fleet->n_rounds > 0) other = "--rounds";
    if (!other) return 0;
    return kin_err_set(err, "--plan %s cannot be combined with %s", fleet->plan, other);
}

// Parses with all tables to determine the kind of plan, and again without the tables that it does not accept.
static int read_plan_options(plan_options *o, int argc, char **argv, kin_err *err) {
    static const char of_file[] = "--what-if takes the devices from its file";
    plan_tables t;
    fill_plan_tables(o, &t);
    if (parse_tables(o, &t, argc, argv, err) != 0) return KIN_FAIL;
    const struct {
        bool is_heeded;
        kin_option *table;
        const char *why;
    } rules[] = {
        {!o->all, t.one, "--all runs every scheduler"},
        {!o->what_if || o->session.model, t.model, "--what-if without -m takes the model from its file"},
        {!o->what_if, t.here, of_file},
        {!o->what_if && o->session.fleet.cluster, t.others, o->what_if ? of_file : "without --cluster only this machine is used"},
    };
    for (size_t n = 1; n <= sizeof rules / sizeof *rules; n++) {
        if (rules[n - 1].is_heeded) continue;
        fill_plan_tables(o, &t);
        for (size_t i = 0; i < n; i++) rules[i].table[0].kind = rules[i].is_heeded ? rules[i].table[0].kind : KIN_OPTION_END;
        if (parse_tables(o, &t, argc, argv, err) != 0) return kin_err_prefix(err, "%s", rules[n - 1].why);
    }
    if (o->save && strcmp(o->save, "-") == 0)
        return kin_err_set(err, "--save -: needs a file name, because the plan goes to stdout");
    return read_draft(o, err) == 0 ? check_plan(o, err) : KIN_FAIL;
}

// ---- sources of facts

static int model_from_file(const kin_session_options *o, const kin_work_facts *work, kin_model_facts *model, kin_err *err) {
    kin_session s;
    if (kin_session_open_model(&s, o, err) != 0) return KIN_FAIL;
    int rc = kin_session_model_facts(&s, o, work, model, err);
    kin_session_close(&s);
    return rc;
}

// Subtracts what draft blocks take of the head's memory; kin_session_open does so for this machine.
static int count_blocks(const plan_options *o, kin_facts *facts, kin_err *err) {
    kin_session s;
    uint64_t bytes;
    if (!o->has_blocks) return 0;
    if (kin_session_open_model(&s, &o->session, err) != 0) return KIN_FAIL;
    int rc = kin_session_draft_blocks_bytes(&s, &o->session, &facts->work, &bytes, err);
    if (rc == 0) facts->devices[0].memory_bytes = fmax(0, facts->devices[0].memory_bytes - (double)bytes);
    kin_session_close(&s);
    return rc;
}

static void override_work(const plan_options *o, kin_work_facts *work) {
    if (o->session.n_ctx > 0) work->n_ctx = o->session.n_ctx;
    if (o->session.n_batch > 0) work->n_batch = o->session.n_batch;
    if (o->session.n_prompt > 0) work->n_prompt = o->session.n_prompt;
    if (o->n_cached >= 0) work->n_cached = o->n_cached;
}

// The prompt, and the cached tokens plus one, must fit the context. Values that were not given are reduced to fit.
static int fit_work(const plan_options *o, kin_work_facts *work, kin_err *err) {
    bool may_adjust = !o->what_if || o->session.n_ctx > 0;
    if (may_adjust && o->session.n_prompt == 0 && work->n_prompt > work->n_ctx) work->n_prompt = work->n_ctx;
    if (may_adjust && o->n_cached < 0 && work->n_cached >= work->n_ctx) work->n_cached = work->n_ctx - 1;
    if (work->n_prompt > work->n_ctx)
        return kin_err_set(err,
                           "a prompt of %d tokens does not fit into a context of %d; use a smaller --prompt or a larger --ctx",
                           work->n_prompt, work->n_ctx);
    if (work->n_cached >= work->n_ctx)
        return kin_err_set(err,
                           "a token after %d others does not fit into a context of %d; use a smaller --cached or a larger --ctx",
                           work->n_cached, work->n_ctx);
    return 0;
}

static int facts_from_file(const plan_options *o, kin_facts *facts, kin_err *err) {
    if (kin_facts_file_read(o->what_if, facts, err) != 0) return KIN_FAIL;
    const int n_ctx = facts->work.n_ctx;
    override_work(o, &facts->work);
    if (facts->work.n_ctx != n_ctx) kin_facts_forget_kv(&facts->model);
    if (fit_work(o, &facts->work, err) != 0) return KIN_FAIL;
    if (o->session.model)
        return model_from_file(&o->session, &facts->work, &facts->model, err) == 0 ? count_blocks(o, facts, err) : KIN_FAIL;
    if (facts->model.n_layer == 0) return kin_err_set(err, "%s: contains no \"model\"; give one with -m", o->what_if);
    return 0;
}

// Collects the facts of this machine and, with --cluster, of the devices that have joined.
static int facts_from_here(const plan_options *o, kin_facts *facts, kin_err *err) {
    enum { N_CTX = 4096 };
    kin_session_options so = o->session;
    kin_session s = {0};
    so.dry_run = true;
    so.fleet.plan = kin_session_options_defaults().fleet.plan; // it is made from the facts, later
    if (so.n_batch == 0) so.n_batch = kin_session_options_defaults().n_batch;
    int rc = kin_session_open_model(&s, &so, err);
    if (rc == 0) rc = kin_session_open(&s, &so, N_CTX, err);
    if (rc == 0) rc = kin_session_find_devices(&s, &so, facts, err);
    kin_session_close(&s);
    override_work(o, &facts->work);
    return rc == 0 ? fit_work(o, &facts->work, err) : KIN_FAIL;
}

static int find_facts(const plan_options *o, kin_facts *facts, kin_err *err) {
    if ((o->what_if ? facts_from_file : facts_from_here)(o, facts, err) != 0) return KIN_FAIL;
    return o->save ? kin_facts_file_write(o->save, facts, err) : 0;
}

// ---- output

static int print_plan_json(json_t *json, kin_err *err) {
    if (!json) return kin_err_set(err, "out of memory");
    kin_app_write_json(json, 6);
    return 0;
}

// Checks that the draft model can draft, with the model's vocabulary if the model's file is given.
static int check_draft(const plan_options *o, kin_err *err) {
    const bool has_model = !o->what_if || o->session.model;
    kin_session s = {0};
    if (!o->draft) return 0;
    int rc = has_model ? kin_session_open_vocab(&s, &o->session, err) : 0;
    if (rc == 0 && has_model && !s.vocab) rc = kin_err_set(err, "%s: %s", s.model_name, s.vocab_err.text);
    if (rc == 0) rc = kin_draft_model_check(o->draft, s.vocab, err);
    kin_session_close(&s);
    return rc;
}

// Predicts the gain of --draft's model.
static int find_gain(const plan_options *o, const kin_facts *facts, const kin_plan_options *how,
                     const kin_plan_scheduler *scheduler, kin_draft_gain *gain, kin_err *err) {
    kin_session_options so = o->session;
    kin_model_facts draft;
    kin_work_facts work = facts->work;
    so.model = o->draft;
    so.fleet.cluster = false;
    if (work.n_batch > KIN_DRAFT_MODEL_BATCH) work.n_batch = KIN_DRAFT_MODEL_BATCH;
    if (model_from_file(&so, &work, &draft, err) != 0) return KIN_FAIL;
    if (draft.n_vocab != facts->model.n_vocab)
        return kin_err_set(err, "%s: cannot be the draft model: its vocabulary has %d tokens, the model's %d", o->draft,
                           draft.n_vocab, facts->model.n_vocab);
    draft.cpu_buffer_bytes -= (double)kin_shard_overhead_bytes(); // the program's overhead is counted only once
    return kin_draft_gain_make(gain, facts, how, scheduler, &draft, err);
}

// Plans without a metric, and predicts that plan with all of them. expected_s: the time per token by the plan's own facts.
static int plan_without(const plan_options *o, const kin_facts *facts, const kin_plan_options *how,
                        const kin_plan_scheduler *scheduler, kin_plan_view *view, double *expected_s, kin_err *err) {
    static kin_facts without;
    kin_plan plan;
    kin_prediction expected;
    without = *facts;
    if (kin_facts_ignore(&without, o->ignore, err) != 0) return kin_err_prefix(err, "--ignore");
    if (kin_plan_view_ask(&without, how, scheduler, &plan, &expected, err) != 0) return KIN_FAIL;
    *expected_s = expected.tpot_s;
    int rc = kin_plan_view_of(view, facts, &plan, how, err);
    view->scheduler = scheduler;
    return rc;
}

// Fails if the plan uses a device whose facts cannot be, since its time would mean nothing. refused: why; "": its facts can be
static int check_given(const char *name, const kin_facts *facts, const kin_plan *plan, const char refused[][KIN_FACTS_MAX_REASON],
                       kin_err *err) {
    for (int i = 0; i < facts->n_device; i++) {
        if (!refused[i][0] || !kin_plan_has(plan, i)) continue;
        return kin_err_set(err, "--plan %s uses '%s', whose facts cannot be: %s", name, facts->devices[i].name, refused[i]);
    }
    return 0;
}

// Asks the planner for the plan of --plan, as a head does. *facts gets the memory limits of the file.
static int make_given(const plan_options *o, kin_facts *facts, kin_plan *plan, kin_err *err) {
    static kin_planner_question q;
    static kin_manual_plan manual;
    static char refused[KIN_FACTS_MAX_DEVICES][KIN_FACTS_MAX_REASON];
    kin_device_set usable;
    kin_planner *planner;
    kin_planner_options po = kin_planner_options_defaults();
    po.plan = o->session.fleet.plan;
    po.head_name = facts->devices[0].name;
    po.n_rounds = o->session.fleet.n_rounds;
    po.begins_alone = true;
    if (!kin_planner_is_word(po.plan)) {
        if (kin_plan_file_read(po.plan, po.head_name, &manual, err) != 0) return KIN_FAIL;
        po.manual = &manual;
    }
    if (kin_facts_screen(facts, &usable, refused, err) != 0) return KIN_FAIL;
    q = (kin_planner_question){.n = facts->n_device, .has_facts = true, .facts = *facts};
    for (int i = 0; i < q.n; i++) {
        snprintf(q.candidates[i].name, sizeof q.candidates[i].name, "%s", facts->devices[i].name);
        q.candidates[i].memory = refused[i][0] ? 0 : (uint64_t)facts->devices[i].memory_bytes;
        q.ids[i].bytes[0] = (uint8_t)(i + 1);
    }
    if (kin_planner_open(&planner, &po, &facts->model, &facts->work, err) != 0) return KIN_FAIL;
    int rc = kin_planner_ask(planner, &q, plan, err);
    if (rc == 0) rc = check_given(po.plan, facts, plan, refused, err);
    if (rc == 0) kin_planner_last(planner, facts, plan);
    kin_planner_close(planner);
    return rc;
}

static int view_given(const plan_options *o, const kin_facts *facts, const kin_plan_options *how, kin_plan_view *view,
                      kin_err *err) {
    static kin_facts limited;
    static kin_plan_scheduler none;
    static char name[64];
    kin_plan plan;
    limited = *facts;
    if (make_given(o, &limited, &plan, err) != 0 || kin_plan_view_of(view, &limited, &plan, how, err) != 0) return KIN_FAIL;
    snprintf(name, sizeof name, "none (--plan %s)", kin_planner_is_word(o->session.fleet.plan) ? o->session.fleet.plan : "FILE");
    none.name = name;
    view->scheduler = &none;
    return 0;
}

static int show_json(const plan_options *o, const kin_plan_view *view, const kin_draft_gain *gain, double expected_s,
                     kin_err *err) {
    json_t *json = kin_plan_view_json(view);
    if (o->draft) json_object_set_new(json, "draft", kin_plan_draft_json(gain));
    if (o->ignore) {
        json_object_set_new(json, "ignored", json_string(o->ignore));
        json_object_set_new(json, "expected_tpot_ms", json_real(expected_s * 1e3));
    }
    return print_plan_json(json, err);
}

static int show_plan(const plan_options *o, const kin_facts *facts, const kin_plan_options *how,
                     const kin_plan_scheduler *scheduler, kin_err *err) {
    static kin_plan_view view;
    kin_draft_gain gain;
    double expected_s = 0;
    char text[KIN_PLAN_PRINT_TIME];
    int rc = is_given_plan(o) ? view_given(o, facts, how, &view, err)
             : o->ignore      ? plan_without(o, facts, how, scheduler, &view, &expected_s, err)
                              : kin_plan_view_make(&view, facts, how, scheduler, err);
    if (rc != 0) return KIN_FAIL;
    if (o->draft && find_gain(o, facts, how, scheduler, &gain, err) != 0) return KIN_FAIL;
    if (o->json) return show_json(o, &view, &gain, expected_s, err);
    kin_plan_print(&view, stdout);
    if (o->ignore) printf("\nplanned without %s, which expected %s a token\n", o->ignore, kin_plan_print_time(expected_s, text));
    if (o->draft) kin_plan_draft_print(&gain, stdout);
    return 0;
}

static int show_all(const plan_options *o, const kin_facts *facts, const kin_plan_options *how, kin_err *err) {
    static kin_plan_compare compare;
    int rc = kin_plan_compare_make(&compare, facts, how, err);
    if (rc == 0 && o->json) rc = print_plan_json(kin_plan_compare_json(&compare), err);
    if (rc == 0 && !o->json) kin_plan_compare_print(&compare, stdout);
    if (rc == 0 && compare.n_plans == 0) rc = kin_err_set(err, "no scheduler found a plan");
    return rc;
}

static int print_schedulers(void) {
    for (const kin_plan_scheduler *s = kin_plan_schedulers; s->name; s++) {
        bool lacks = s->plan == kin_plan_halda && !kin_highs_is_there();
        printf("%-10s %s%s\n", s->name, s->help, lacks ? " (not available: kin was built without HiGHS)" : "");
    }
    return KIN_EXIT_OK;
}

static int run_plan(const plan_options *o, kin_plan_options how, const kin_plan_scheduler *scheduler) {
    static kin_facts facts;
    kin_err err;
    how.n_rounds = o->session.fleet.n_rounds;
    if (kin_highs_is_there()) how.ilp = kin_highs_solve;
    int rc = check_draft(o, &err) == 0 ? find_facts(o, &facts, &err) : KIN_FAIL;
    if (rc == 0) rc = o->all ? show_all(o, &facts, &how, &err) : show_plan(o, &facts, &how, scheduler, &err);
    return rc == 0 ? KIN_EXIT_OK : kin_app_fail(&err);
}

static int command_plan(int argc, char **argv) {
    plan_options o;
    kin_err err;
    if (read_plan_options(&o, argc, argv, &err) != 0) return kin_app_usage("plan", &err);
    if (kin_model_source_resolve(&o.session, &err) != 0) return kin_app_fail(&err);
    if (strcmp(o.session.fleet.scheduler, "help") == 0) return print_schedulers();
    const kin_plan_scheduler *scheduler = kin_plan_scheduler_find(o.session.fleet.scheduler);
    kin_plan_options how = kin_plan_options_defaults();
    const char *halda = o.session.fleet.halda;
    if (!scheduler) kin_err_set(&err, "--scheduler %s: unknown ('--scheduler help' lists all)", o.session.fleet.scheduler);
    if (!scheduler || (halda && kin_plan_options_read_halda(&how, halda, o.all ? NULL : scheduler, &err) != 0))
        return kin_app_usage("plan", &err);
    return run_plan(&o, how, scheduler);
}

static void with_plan_options(void (*use)(kin_option_tables tables, void *user), void *user) {
    plan_options o;
    plan_tables t;
    fill_plan_tables(&o, &t);
    use((kin_option_tables){t.always, t.one, t.model, t.here, t.others}, user);
}

const kin_command kin_command_plan = {
    .name = "plan",
    .args = "[MODEL] [--cluster] [--what-if FACTS] [--save FACTS] [--scheduler NAME] [--plan FILE] [--all] [--json]",
    .summary = "show which device would run which layers, and the predicted speed",
    .help =
        "Nothing is run or fetched. With --cluster it waits for the devices on which 'kin join' runs (--devices N: for N "
        "devices),\n"
        "measures their links and plans for all of them; without it, for this machine, including its GPU.\n"
        "FACTS is a file of devices, links, a model and a workload: see docs/PLANNING.md and assets/facts; --save writes one.\n"
        "With --what-if and -m the model of -m is used. IN RAM and IN VRAM: weights kept in memory; STREAMED: weights read from "
        "disk\n"
        "for every token; COMPUTE, DISK (waiting for it) and TO NEXT: time per token. '--scheduler help' lists the schedulers.",
    .run = command_plan,
    .options = with_plan_options,
};
