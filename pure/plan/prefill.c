#include "pure/plan/prefill.h"

#include <math.h>
#include <stdlib.h>

#include "base/median.h"

// Fraction by which prompts may delay a step. Steps vary by themselves: the longest of 100 without prompts took 1.5 to 2 times
// their median (4 sequences, 1B model, 2 threads of a virtual machine), and the longest with prompts should take at most twice
// that.
static const double MOST_SLOWDOWN = 0.4;

static const double LESS = 0.9;    // a step that took less than this fraction of T shows that T is less
static const double CHANGED = 0.2; // fraction of T: a change beyond it comes from the devices, not from chance

// Weight of earlier observations after the next step.
static const double KEPT = 0.9;

static const double CERTAIN = 4; // spreads: a step that exceeds the spread by this much is late for a reason, not by chance

static const double SPREAD = 2; // times the mean difference of two steps; 2.3 standard deviations of normal times

// With x = k + f, k + 1 steps in flight have more prompt tokens together than k if (1 + MOST_SLOWDOWN) f > 1.
static const double ONE_MORE = 0.72;

enum {
    FIRST_TOKENS = 2, // before a step with a chunk was measured
    PROBE_EVERY = 32, // steps with prompts, or after some, that one sequence took part in
    N_PROBED = 2,     // so that one slow step cannot be the median of these and the one before
    MOST_TOKENS = 1 << 20,
};

void kin_prefill_init(kin_prefill *p) {
    *p = (kin_prefill){.n_steps = 1};
}

static void add_plain(kin_prefill *p, int n_rows, double took_s) {
    int i = p->n_plain++ % KIN_PREFILL_SAMPLES;
    p->plain[i].took_s = took_s;
    p->plain[i].n_rows = n_rows;
}

// Returns the time of step i without prompts, scaled to n_rows rows: each row costs something, but less than the first one.
static double scale(const kin_prefill *p, int i, int n_rows) {
    double took_s = p->plain[i].took_s, share = (double)n_rows / p->plain[i].n_rows;
    double rows_s = p->token_s * (n_rows - p->plain[i].n_rows);
    return share > 1 ? fmin(took_s + rows_s, took_s * share) : fmax(took_s + rows_s, took_s * share);
}

// Returns T(n_rows). A step without prompts must have been measured.
static double plain_s(const kin_prefill *p, int n_rows) {
    double values[KIN_PREFILL_SAMPLES];
    int n = p->n_plain < KIN_PREFILL_SAMPLES ? p->n_plain : KIN_PREFILL_SAMPLES;
    for (int i = 0; i < n; i++) values[i] = scale(p, i, n_rows);
    return kin_median(values, n);
}

bool kin_prefill_wants_plain(const kin_prefill *p) {
    return p->n_plain == 0 || p->n_wanted > 0;
}

static double spread_s(const kin_prefill *p) {
    return SPREAD * p->differ_s;
}

// Records a step with n_tokens prompt tokens.
static void learn_spread(kin_prefill *p, int n_rows, int n_tokens, double took_s) {
    double own_s = took_s - p->token_s * n_tokens, last_s = p->last_s;
    int more = abs(n_tokens - p->last_tokens);
    bool is_alike = last_s > 0 && n_rows == p->last_rows && more <= 1 + n_tokens / 8;
    double share = p->differ_s > 0 ? 1 - KEPT : 0.5;
    if (is_alike) p->differ_s += share * (fabs(own_s - last_s) - p->differ_s);
    p->last_s = own_s;
    p->last_tokens = n_tokens;
    p->last_rows = n_rows;
}

// Not rounded. At most twice as many as were measured: rows cost little until the kernels need another pass for them.
static double most_tokens(const kin_prefill *p, int n_rows) {
    if (p->n_plain == 0 || p->largest == 0) return FIRST_TOKENS;
    double most_s = fmax(MOST_SLOWDOWN * plain_s(p, n_rows), spread_s(p));
    double n = p->token_s > 0 ? most_s / p->token_s : INFINITY;
    return fmin(n, 2 * p->largest);
}

int kin_prefill_tokens(const kin_prefill *p, int n_rows) {
    return (int)fmin(fmax(most_tokens(p, n_rows), 1), MOST_TOKENS);
}

void kin_prefill_learn_plain(kin_prefill *p, int n_rows, double took_s) {
    double before_s = p->n_plain > 0 ? plain_s(p, n_rows) : 0;
    add_plain(p, n_rows, took_s);
    if (fabs(plain_s(p, n_rows) - before_s) > fmax(CHANGED * before_s, spread_s(p))) p->slowest = 0;
    learn_spread(p, n_rows, 0, took_s);
    p->n_since = p->n_next = 0;
    p->n_rows = n_rows;
    if (p->n_wanted > 0) p->n_wanted--;
}

static void blend(double *mean, double value, double share) {
    *mean = *mean > 0 ? (1 - share) * *mean + share * value : value;
}

// x is smaller than assumed; the cost of a token with this many steps in flight is no longer valid.
static void drop_step(kin_prefill *p, const kin_prefill_beside *b) {
    p->n_steps = b->n_steps - 1;
    p->slowest = fmax(p->slowest, 1 / (b->n_steps - 0.5));
    p->token_s = p->weight = p->last_above_s = 0;
    p->largest = 0;
}

// A step took more_s longer than without its prompt tokens; usual_s was the spread before it.
static void learn_token(kin_prefill *p, int n_tokens, double more_s, double usual_s) {
    bool is_first = p->token_s <= 0;
    double error_s = more_s - p->token_s * n_tokens;
    double above_s = fmax(error_s - usual_s, 0);
    double rise_s = above_s > CERTAIN * usual_s ? above_s : fmin(above_s, p->last_above_s);
    if (is_first) rise_s = 0;
    p->last_above_s = above_s;
    p->weight = KEPT * p->weight + (double)n_tokens * n_tokens;
    p->token_s += 0.5 * rise_s / n_tokens + n_tokens * (is_first ? error_s : error_s - above_s) / p->weight;
    p->token_s = fmax(p->token_s, 0);
}

static void choose_steps(kin_prefill *p, const kin_prefill_beside *b) {
    bool too_long = most_tokens(p, b->n_rows) < 1;
    if (too_long && b->n_steps > b->n_least)
        drop_step(p, b);
    else if (!too_long && b->n_steps < b->n_most && (p->slowest > 0 || b->n_steps == b->n_least) &&
             (b->n_steps + ONE_MORE) * p->slowest <= 1)
        p->n_steps = b->n_steps + 1;
}

void kin_prefill_learn(kin_prefill *p, const kin_prefill_beside *b, int n_tokens, double took_s) {
    p->n_rows = b->n_rows;
    p->n_next = 0;
    if (++p->n_since >= PROBE_EVERY * b->n_least && p->n_wanted == 0) p->n_wanted = N_PROBED;
    if (p->n_plain == 0) return;
    double more_s = took_s - plain_s(p, b->n_rows);
    const double usual_s = spread_s(p);
    learn_spread(p, b->n_rows, n_tokens, took_s);
    if (took_s < LESS * plain_s(p, b->n_rows) - spread_s(p)) {
        p->n_plain = 0;
        add_plain(p, b->n_rows, took_s);
        p->n_wanted = N_PROBED;
    }
    if (n_tokens == 0) return;
    learn_token(p, n_tokens, more_s, usual_s);
    if (n_tokens > p->largest) p->largest = n_tokens;
    choose_steps(p, b);
}

// A step after one of the same kind shows the time that the slowest member needs. The first one after a step of sequences is
// shorter than that, and may be back too soon.
void kin_prefill_learn_next(kin_prefill *p, int n_tokens, double later_s) {
    bool is_first = p->n_next++ == 0;
    if (p->n_plain == 0 || p->n_rows == 0 || p->token_s <= 0 || (is_first && p->slowest > 0)) return;
    double share = later_s / (plain_s(p, p->n_rows) + p->token_s * (n_tokens - p->n_rows));
    if (share <= 0) return;
    if (!p->is_sure || p->slowest == 0)
        p->slowest = share;
    else
        blend(&p->slowest, share, 0.25);
    p->is_sure = !is_first;
}
