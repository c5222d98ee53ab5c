// kin plan: which device would compute what, how long a token would take, and why.
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "app/app.h"
#include "app/facts_file.h"
#include "app/plan_compare.h"
#include "app/plan_view.h"
#include "app/session.h"
#include "sys/highs.h"

typedef struct plan_options {
    kin_session_options session; // of these: the model, what sizes its cache, the work, the scheduler and its rounds
    const char *what_if, *save;
    bool all, json;
} plan_options;

enum { N_OPTIONS = 7 };

typedef struct plan_tables {
    kin_option own[N_OPTIONS];
    kin_session_tables session;
} plan_tables;

static void fill_tables(plan_options *o, plan_tables *t) {
    *o = (plan_options){.session = kin_session_options_defaults()};
    o->session.n_batch = 0; // not given
    const kin_option own[N_OPTIONS] = {
        {KIN_OPTION_STRING, "what-if", 0, &o->what_if, "FACTS", "plan with the devices, links and model of this JSON file", 0, 0},
        {KIN_OPTION_STRING, "save", 0, &o->save, "FACTS", "write what was measured to this file, to look at or to edit", 0, 0},
        {KIN_OPTION_INT, "prompt", 0, &o->session.n_prompt, "N", "tokens of the prompt whose time is predicted", 1, 1 << 27},
        {KIN_OPTION_INT, "cached", 0, &o->session.n_cached, "N", "tokens before the one whose time is predicted", 1, 1 << 27},
        {KIN_OPTION_FLAG, "all", 'a', &o->all, NULL, "all schedulers beside each other", 0, 0},
        {KIN_OPTION_FLAG, "json", 0, &o->json, NULL, "print JSON", 0, 0},
        {0},
    };
    memcpy(t->own, own, sizeof own);
    kin_session_option_tables(&o->session, &t->session);
}

// ---- where facts come from

static int model_from_file(const kin_session_options *o, kin_facts *facts, kin_err *err) {
    kin_session s;
    if (kin_session_open_model(&s, o, err) != 0) return KIN_FAIL;
    int rc = kin_session_model_facts(&s, o, &facts->work, &facts->model, err);
    kin_session_close(&s);
    return rc;
}

static void override_work(const plan_options *o, kin_work_facts *work) {
    if (o->session.n_ctx > 0) work->n_ctx = o->session.n_ctx;
    if (o->session.n_batch > 0) work->n_batch = o->session.n_batch;
    if (o->session.n_prompt > 0) work->n_prompt = o->session.n_prompt;
    if (o->session.n_cached > 0) work->n_cached = o->session.n_cached;
}

static int facts_from_file(const plan_options *o, kin_facts *facts, kin_err *err) {
    if (kin_facts_file_read(o->what_if, facts, err) != 0) return KIN_FAIL;
    override_work(o, &facts->work);
    if (o->session.model) return model_from_file(&o->session, facts, err);
    if (facts->model.n_layer == 0) return kin_err_set(err, "%s: no \"model\" in it: give one with -m", o->what_if);
    return 0;
}

// What is here: this machine, and with --cluster whoever has joined.
static int facts_from_here(const plan_options *o, kin_facts *facts, kin_err *err) {
    enum { N_CTX = 4096 };
    kin_session_options so = o->session;
    kin_session s = {0};
    so.only_looks = true;
    if (so.n_batch == 0) so.n_batch = kin_session_options_defaults().n_batch;
    int rc = kin_session_open_model(&s, &so, err);
    if (rc == 0) rc = kin_session_open(&s, &so, N_CTX, err);
    if (rc == 0) rc = kin_session_look(&s, &so, facts, err);
    kin_session_close(&s);
    return rc;
}

static int find_facts(const plan_options *o, kin_facts *facts, kin_err *err) {
    if ((o->what_if ? facts_from_file : facts_from_here)(o, facts, err) != 0) return KIN_FAIL;
    return o->save ? kin_facts_file_write(o->save, facts, err) : 0;
}

// ---- what is printed

static int print_json(json_t *json, kin_err *err) {
    if (!json) return kin_err_set(err, "no memory");
    json_dumpf(json, stdout, JSON_INDENT(2) | JSON_REAL_PRECISION(6));
    printf("\n");
    json_decref(json);
    return 0;
}

static int show_plan(const plan_options *o, const kin_facts *facts, const kin_plan_options *how, const kin_scheduler *scheduler,
                     kin_err *err) {
    static kin_plan_view view;
    if (kin_plan_view_make(&view, facts, how, scheduler, err) != 0) return KIN_FAIL;
    if (o->json) return print_json(kin_plan_view_json(&view), err);
    kin_plan_view_print(&view, stdout);
    return 0;
}

static int show_all(const plan_options *o, const kin_facts *facts, const kin_plan_options *how, kin_err *err) {
    static kin_plan_compare compare;
    kin_device_set usable;
    if (kin_facts_screen(facts, &usable, NULL, err) != 0) return KIN_FAIL;
    kin_plan_compare_make(&compare, facts, how);
    if (o->json) return print_json(kin_plan_compare_json(&compare), err);
    kin_plan_compare_print(&compare, stdout);
    return 0;
}

static int print_schedulers(void) {
    for (const kin_scheduler *s = kin_schedulers; s->name; s++) {
        bool lacks = s->plan == kin_plan_halda && !kin_highs_is_there();
        printf("%-10s %s%s\n", s->name, s->help, lacks ? " (not in this program: it was built without HiGHS)" : "");
    }
    return KIN_EXIT_OK;
}

static int run(const plan_options *o, const kin_scheduler *scheduler) {
    static kin_facts facts;
    kin_err err;
    kin_plan_options how = kin_plan_options_defaults();
    how.n_rounds = o->session.fleet.n_rounds;
    if (kin_highs_is_there()) how.ilp = kin_highs_solve;
    int rc = find_facts(o, &facts, &err);
    if (rc == 0) rc = o->all ? show_all(o, &facts, &how, &err) : show_plan(o, &facts, &how, scheduler, &err);
    return rc == 0 ? KIN_EXIT_OK : kin_app_fail(&err);
}

static int command_plan(int argc, char **argv) {
    plan_options o;
    plan_tables t;
    kin_err err;
    fill_tables(&o, &t);
    if (kin_options_parse((kin_option_tables){t.own, t.session.own, t.session.fleet}, argc, argv, NULL, &err) != 0)
        return kin_app_usage("plan", &err);
    if (strcmp(o.session.fleet.scheduler, "help") == 0) return print_schedulers();
    const kin_scheduler *scheduler = kin_scheduler_find(o.session.fleet.scheduler);
    if (!scheduler) {
        kin_err_set(&err, "--scheduler %s: there is none ('--scheduler help' lists them)", o.session.fleet.scheduler);
        return kin_app_usage("plan", &err);
    }
    return run(&o, scheduler);
}

static void help_options(void) {
    plan_options o;
    plan_tables t;
    fill_tables(&o, &t);
    kin_options_help((kin_option_tables){t.own, t.session.own, t.session.fleet});
}

const kin_command kin_command_plan = {
    .name = "plan",
    .args = "[-m MODEL] [--cluster] [--what-if FACTS] [--save FACTS] [--scheduler NAME] [--all] [--json]",
    .summary = "which device would compute what, and how long a token would take",
    .help = "Nothing is run and nothing is fetched. With --cluster it waits for the devices on which 'kin join' runs (--devices "
            "N: for\n"
            "so many), measures their links and plans with all of them; without it, with this machine.\n"
            "FACTS is a file of devices, links, a model and the work, see docs/PLANNING.md and assets/facts; --save writes one.\n"
            "With --what-if and -m the model is that of -m. IN RAM and IN VRAM are weights that stay; STREAMED is read from disk "
            "for every\n"
            "token; COMPUTE, DISK (waiting for it) and TO NEXT are a token's. '--scheduler help' lists the schedulers.",
    .run = command_plan,
    .help_options = help_options,
};
