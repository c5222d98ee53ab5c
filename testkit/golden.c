#include "testkit/golden.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/median.h"
#include "testkit/head_eval.h"
#include "testkit/logits.h"

static const double median_factor = 1.25, max_factor = 1.5, margin_min = 0.1;
static const double other_experts_factor = 4; // times the median; without experts no row is above 1.6 of it

enum { ROWS_PER_EXCEPTION = 10 }; // with experts

// ---- the table

static int add_ids(kin_golden *g, char *text) {
    for (char *end;; text = end) {
        long id = strtol(text, &end, 10);
        if (end == text) return *end ? KIN_FAIL : 0;
        if (g->n_ids == KIN_GOLDEN_MAX_IDS || id < 0 || id >= g->n_vocab) return KIN_FAIL;
        g->ids[g->n_ids++] = (int32_t)id;
    }
}

static int parse_line(kin_golden *g, const char *line) {
    char prompt[2048], greedy[2048];
    *g = (kin_golden){0};
    if (sscanf(line, "%63[^\t]\t%d\t%2047[^\t]\t%2047[^\t]\t%lf\t%lf", g->name, &g->n_vocab, prompt, greedy, &g->error_median,
               &g->error_max) != 6) {
        return KIN_FAIL;
    }
    if (add_ids(g, prompt) != 0) return KIN_FAIL;
    g->n_prompt = g->n_ids;
    return g->n_prompt > 0 ? add_ids(g, greedy) : KIN_FAIL;
}

// Adds the models of a table, if it is there, to the first n. Returns their number, or KIN_FAIL.
static int load_table(const char *dir, const char *name, kin_golden *models, int n, kin_err *err) {
    char path[1024], line[8192];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    FILE *table = fopen(path, "r");
    if (!table) return n;
    const int n_before = n;
    int rc = fgets(line, sizeof line, table) ? 0 : kin_err_set(err, "%s is empty", path); // titles
    while (rc == 0 && fgets(line, sizeof line, table)) {
        if (n == KIN_GOLDEN_MAX_MODELS)
            rc = kin_err_set(err, "%s: more than %d models", path, n);
        else if (parse_line(&models[n++], line) != 0)
            rc = kin_err_set(err, "%s: model %d cannot be read", path, n - n_before);
    }
    fclose(table);
    if (rc == 0 && n == n_before) rc = kin_err_set(err, "%s has no models", path);
    return rc == 0 ? n : KIN_FAIL;
}

int kin_golden_load(const char *dir, kin_golden *models, kin_err *err) {
    const int n = load_table(dir, "golden.tsv", models, 0, err);
    return n < 0 ? KIN_FAIL : load_table(dir, "golden-long.tsv", models, n, err);
}

// ---- rows of logits

// True if the largest logit is clear enough for its index to survive rounding.
static bool is_clear(const float *exact, int n) {
    int best = kin_logits_best(exact, n);
    double second = -INFINITY, squares = 0;
    for (int i = 0; i < n; i++) {
        if (i != best) second = fmax(second, exact[i]);
        squares += (double)exact[i] * (double)exact[i];
    }
    return exact[best] - second >= margin_min * sqrt(squares / n);
}

// ---- the rules

typedef struct check {
    const kin_golden *golden;
    kin_head *head;
    const kin_model *model;
    float *exact, *got;                // [n_ids, n_vocab]
    double errors[KIN_GOLDEN_MAX_IDS]; // [n_ids]
    kin_golden_result *result;
} check;

// True if the row is what another choice of experts gives: much further off than rounding explains.
static bool is_other_experts(const check *c, double error) {
    return c->model->hp.n_expert > 0 && error > other_experts_factor * c->golden->error_median;
}

static int check_accuracy(check *c, kin_err *err) {
    const kin_golden *g = c->golden;
    kin_golden_result *r = c->result;
    if (kin_head_eval(c->head, 0, 0, g->ids, g->n_ids, c->got, g->n_ids, err) != 0) return KIN_FAIL;
    for (int i = 0; i < g->n_ids; i++) {
        const float *exact = c->exact + i * g->n_vocab, *got = c->got + i * g->n_vocab;
        double error = c->errors[i] = kin_logits_error(got, exact, g->n_vocab);
        if (!(error < INFINITY)) return kin_err_set(err, "row %d has logits that are no numbers", i);
        r->n_above += error > max_factor * g->error_max;
        r->n_other_experts += is_other_experts(c, error);
        r->error_max = fmax(r->error_max, error);
        int want = kin_logits_best(exact, g->n_vocab), is = kin_logits_best(got, g->n_vocab);
        if (is != want && is_clear(exact, g->n_vocab) && !is_other_experts(c, error)) {
            return kin_err_set(err, "row %d: the largest logit is %d's, exactly it is %d's", i, is, want);
        }
    }
    r->error_median = kin_median(c->errors, g->n_ids);
    if (r->error_median > median_factor * g->error_median) {
        return kin_err_set(err, "the median error is %.2e, llama.cpp's %.2e", r->error_median, g->error_median);
    }
    int n_allowed = c->model->hp.n_expert > 0 ? g->n_ids / ROWS_PER_EXCEPTION : 0;
    if (r->n_other_experts > n_allowed) return kin_err_set(err, "%d rows are those of other experts", r->n_other_experts);
    if (r->n_above > n_allowed) {
        return kin_err_set(err, "%d rows are above the maximum: the largest error is %.2e, llama.cpp's %.2e", r->n_above,
                           r->error_max, g->error_max);
    }
    return 0;
}

static int check_generation(check *c, kin_err *err) {
    const kin_golden *g = c->golden;
    float *logits = c->got;
    kin_head_clear(c->head);
    if (kin_head_eval(c->head, 0, 0, g->ids, g->n_prompt, logits, 1, err) != 0) return KIN_FAIL;
    for (int i = g->n_prompt; i < g->n_ids; i++) {
        const float *exact = c->exact + (i - 1) * g->n_vocab;
        if (!is_clear(exact, g->n_vocab)) return 0;
        int32_t id = kin_logits_best(logits, g->n_vocab);
        if (id != g->ids[i]) {
            if (is_other_experts(c, kin_logits_error(logits, exact, g->n_vocab))) return 0;
            return kin_err_set(err, "generated id %d is %d, llama.cpp's %d", i - g->n_prompt, id, g->ids[i]);
        }
        c->result->n_generated++;
        if (kin_head_eval(c->head, 0, i, &id, 1, logits, 1, err) != 0) return KIN_FAIL;
    }
    return 0;
}

static int read_exact(const char *dir, const kin_golden *g, float *exact, kin_err *err) {
    char path[1024];
    size_t n = (size_t)g->n_ids * (size_t)g->n_vocab;
    snprintf(path, sizeof path, "%s/%s.logits", dir, g->name);
    FILE *f = fopen(path, "rb");
    if (!f) return kin_err_set(err, "%s cannot be opened", path);
    bool ok = fread(exact, sizeof *exact, n, f) == n && fgetc(f) == EOF;
    fclose(f);
    return ok ? 0 : kin_err_set(err, "%s does not have a row for each id", path);
}

int kin_golden_check_head(const char *dir, const kin_golden *g, kin_head *head, const kin_model *model, kin_golden_result *result,
                          kin_err *err) {
    check c = {.golden = g, .head = head, .model = model, .result = result};
    size_t n = (size_t)g->n_ids * (size_t)g->n_vocab;
    *result = (kin_golden_result){0};
    if (model->hp.n_vocab != g->n_vocab) return kin_err_set(err, "%s: the vocabulary is not the table's", g->name);
    c.exact = malloc(n * sizeof *c.exact);
    c.got = malloc(n * sizeof *c.got);
    kin_assert(c.exact && c.got);
    int rc = read_exact(dir, g, c.exact, err);
    if (rc == 0) rc = check_accuracy(&c, err);
    if (rc == 0) rc = check_generation(&c, err);
    free(c.got);
    free(c.exact);
    return rc == 0 ? 0 : kin_err_prefix(err, "%s", g->name);
}

int kin_golden_check(const char *dir, const kin_golden *g, const kin_runner_options *o, kin_golden_result *result, kin_err *err) {
    char path[1024];
    kin_runner runner;
    snprintf(path, sizeof path, "%s/%s.gguf", dir, g->name);
    if (kin_runner_open(&runner, path, o, err) != 0) return KIN_FAIL;
    int rc = kin_golden_check_head(dir, g, runner.head, &runner.model, result, err);
    kin_runner_close(&runner);
    return rc;
}
