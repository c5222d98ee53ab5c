#include "pure/plan/group_search.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "pure/plan/choices.h"
#include "pure/plan/timeline.h"

// Sets of 2 to KIN_GROUP_SEARCHED out of KIN_GROUP_POOL: 120 + 560 + 1820.
enum { MAX_CLIQUES = 2500 * KIN_N_SHARES };

// A set of devices that reach each other, and their method of sharing.
typedef struct clique {
    kin_device_set members;
    kin_group_shares by;
    bool may_gain;
    double gain_s, layers_max;
} clique;

typedef struct candidate {
    kin_device_set members;
    kin_group_shares by;
    kin_group group;
    kin_group_time time;
    kin_choices choices; // of the group as one device
} candidate;

typedef struct search {
    const kin_facts *facts;
    kin_plan_options options;
    kin_device_set left_out; // from the given options
    kin_device_rates rates[KIN_FACTS_MAX_DEVICES];
    int n_pool, pool[KIN_GROUP_POOL];
    kin_device_set reached[KIN_FACTS_MAX_DEVICES]; // within the pool, in both directions
    int n_cliques;
    clique cliques[MAX_CLIQUES]; // sorted by gain, the largest first
    kin_err why;                 // why the last impossible one cannot be a group
    int n_candidates;
    candidate candidates[KIN_GROUP_CANDIDATES + 1]; // one more, to be tried if none is faster
    kin_choices singles[KIN_FACTS_MAX_DEVICES];
    int n_chosen, chosen[KIN_GROUPS_MAX], n_sets;
    kin_facts grouped; // facts with the chosen groups
    kin_grouped_plan *best;
    int n_best, best_chosen[KIN_GROUPS_MAX]; // the candidates in `best`
    double best_s, bound_s;
    bool is_cut; // not all choices were searched
} search;

// ---- candidates

// Fills the pool with the devices that have the fastest layers. Browsers compute whole layers only, so they are left out.
static void fill_pool(search *s, kin_device_set usable) {
    for (int i = 0; i < s->facts->n_device; i++) {
        if (!(usable & kin_device_bit(i)) || kin_os_is_browser(s->facts->devices[i].os)) continue;
        int at = s->n_pool < KIN_GROUP_POOL ? s->n_pool++ : KIN_GROUP_POOL;
        for (; at > 0 && s->rates[s->pool[at - 1]].cpu_layer_s > s->rates[i].cpu_layer_s; at--) {
            if (at < KIN_GROUP_POOL) s->pool[at] = s->pool[at - 1];
        }
        if (at < KIN_GROUP_POOL) s->pool[at] = i;
    }
    for (int a = 0; a < s->n_pool; a++) {
        for (int b = 0; b < s->n_pool; b++) {
            int from = s->pool[a], to = s->pool[b];
            bool both = kin_facts_link_usable(&s->facts->links[from][to]) && kin_facts_link_usable(&s->facts->links[to][from]);
            if (a != b && both) s->reached[from] |= kin_device_bit(to);
        }
    }
}

// Adds these members with each method of sharing that deals other pieces than the previous ones.
static void add_clique(search *s, kin_device_set members) {
    kin_group groups[KIN_N_SHARES];
    bool is_short = true;
    for (int by = 0; by < KIN_N_SHARES && is_short; by++) {
        kin_group_time time;
        bool is_new = true;
        kin_group_of(s->facts, s->rates, members, (kin_group_shares)by, &groups[by]);
        for (int k = 0; k < by; k++) is_new = is_new && !kin_group_is_same(s->facts, &groups[k], &groups[by]);
        if (!is_new || kin_group_time_of(s->facts, s->rates, &groups[by], &time, &s->why) != 0) continue;
        if (by == KIN_SHARES_BY_SPEED) is_short = kin_group_is_short(s->facts, &time);
        kin_assert(s->n_cliques < MAX_CLIQUES);
        double saves_s = kin_group_saves_s(&time);
        s->cliques[s->n_cliques++] =
            (clique){members, (kin_group_shares)by, saves_s > 0 || is_short, saves_s + time.reads_s, time.layers_max};
    }
}

// Adds all cliques that contain these members, all of which reach all devices in `reached`, and further devices from pool[from]
// on.
static void add_cliques(search *s, kin_device_set members, kin_device_set reached, int from) {
    int n = __builtin_popcount(members);
    if (n >= 2) add_clique(s, members);
    for (int i = from; i < s->n_pool && n < KIN_GROUP_SEARCHED; i++) {
        int device = s->pool[i];
        if (reached & kin_device_bit(device))
            add_cliques(s, members | kin_device_bit(device), reached & s->reached[device], i + 1);
    }
}

// Equal gains are ordered by their devices, so that the same facts give the same plan everywhere.
static int compare_cliques(const void *a, const void *b) {
    const clique *x = a, *y = b;
    if (x->gain_s != y->gain_s) return x->gain_s > y->gain_s ? -1 : 1;
    if (x->members != y->members) return x->members > y->members ? 1 : -1;
    return (x->by > y->by) - (x->by < y->by);
}

static bool is_candidate(const search *s, const clique *of) {
    for (int i = 0; i < s->n_candidates; i++) {
        if (s->candidates[i].members == of->members && s->candidates[i].by == of->by) return true;
    }
    return false;
}

static void make_candidate(search *s, const clique *of) {
    candidate *c = &s->candidates[s->n_candidates++];
    *c = (candidate){.members = of->members, .by = of->by};
    kin_group_of(s->facts, s->rates, of->members, of->by, &c->group);
    kin_group_time_of(s->facts, s->rates, &c->group, &c->time, &s->why);
}

// Candidates that form a set of disjoint groups come first: rings of groups are made from these.
static void make_candidates(search *s) {
    kin_device_set covered = 0;
    for (int i = 0; i < s->n_cliques && s->n_candidates < KIN_GROUP_CANDIDATES; i++) {
        const clique *c = &s->cliques[i];
        if (!c->may_gain || c->members & covered) continue;
        make_candidate(s, c);
        covered |= c->members;
    }
    for (int i = 0; i < s->n_cliques && s->n_candidates < KIN_GROUP_CANDIDATES; i++) {
        const clique *c = &s->cliques[i];
        if (c->may_gain && !is_candidate(s, c)) make_candidate(s, c);
    }
    for (int i = 0; i < s->n_cliques; i++) s->is_cut = s->is_cut || (s->cliques[i].may_gain && !is_candidate(s, &s->cliques[i]));
}

// ---- plans

static int make_single_choices(search *s, kin_device_set usable, kin_err *err) {
    for (int i = 0; i < s->facts->n_device; i++) {
        if (usable & kin_device_bit(i) && kin_choices_init(&s->singles[i], s->facts, i, err) != 0) return KIN_FAIL;
    }
    return 0;
}

static int make_group_choices(search *s, int from, kin_err *err) {
    for (int i = from; i < s->n_candidates; i++) {
        candidate *c = &s->candidates[i];
        s->grouped = *s->facts;
        kin_group_put(s->facts, s->rates, &c->group, &c->time, &s->grouped);
        if (kin_choices_init(&c->choices, &s->grouped, kin_group_last(&c->group), err) != 0) return KIN_FAIL;
    }
    return 0;
}

// Puts the chosen groups into the facts. Returns options that make all of them compute.
static kin_plan_options put_chosen(search *s, const kin_choices **choices) {
    kin_plan_options o = s->options;
    s->grouped = *s->facts;
    for (int i = 0; i < s->facts->n_device; i++) choices[i] = &s->singles[i];
    for (int i = 0; i < s->n_chosen; i++) {
        const candidate *c = &s->candidates[s->chosen[i]];
        int last = kin_group_last(&c->group);
        kin_group_put(s->facts, s->rates, &c->group, &c->time, &s->grouped);
        choices[last] = &c->choices;
        o.leave_out |= c->members & ~kin_device_bit(last);
        o.force_in = (o.force_in & ~c->members) | kin_device_bit(last);
    }
    return o;
}

static void keep_best(search *s, const kin_plan *plan) {
    s->best_s = plan->tpot_s;
    s->best->plan = *plan;
    s->best->plan.groups.n = s->n_best = s->n_chosen;
    for (int i = 0; i < s->n_chosen; i++) {
        s->best_chosen[i] = s->chosen[i];
        s->best->plan.groups.groups[i] = s->candidates[s->chosen[i]].group;
        s->best->times[i] = s->candidates[s->chosen[i]].time;
    }
}

static void search_chosen(search *s) {
    const kin_choices *choices[KIN_FACTS_MAX_DEVICES];
    kin_plan_options o = put_chosen(s, choices);
    kin_plan plan = {0};
    o.below_s = isfinite(s->best_s) ? s->best_s : 0;
    bool found = kin_plan_exact_of(&s->grouped, &o, choices, &plan, NULL) == 0;
    if (plan.bound_s > 0) s->bound_s = fmin(s->bound_s, plan.bound_s);
    if (found && plan.tpot_s < s->best_s) keep_best(s, &plan);
}

// Searches every choice of disjoint candidates from index `from` on.
static void search_from(search *s, int from, kin_device_set covered) {
    for (int i = from; i < s->n_candidates && s->n_chosen < KIN_GROUPS_MAX; i++) {
        if (s->candidates[i].members & covered) continue;
        if (s->n_sets == KIN_GROUP_SETS) {
            s->is_cut = true;
            return;
        }
        s->n_sets++;
        s->chosen[s->n_chosen++] = i;
        search_chosen(s);
        search_from(s, i + 1, covered | s->candidates[i].members);
        s->n_chosen--;
    }
}

// No group is faster: tries the clique with the largest gain, or one with the head if it can hold all layers; first without other
// devices.
static int try_one(search *s, kin_err *err) {
    const clique *best = &s->cliques[0];
    for (int i = s->n_cliques - 1; i >= 0; i--) {
        if (s->cliques[i].members & kin_device_bit(0) && s->cliques[i].layers_max >= s->facts->model.n_layer)
            best = &s->cliques[i];
    }
    s->best->is_only_tried = true;
    s->chosen[0] = s->n_candidates;
    s->n_chosen = 1;
    make_candidate(s, best);
    if (make_group_choices(s, s->chosen[0], err) != 0) return KIN_FAIL;
    for (int clustered = 0; clustered < 2 && s->best->plan.groups.n == 0; clustered++) {
        if (!clustered) s->options.leave_out |= ~(best->members | kin_device_bit(0));
        s->best_s = INFINITY;
        search_chosen(s);
        s->options.leave_out = s->left_out;
    }
    if (s->best->plan.groups.n == 0) snprintf(s->best->reason, sizeof s->best->reason, "there is no plan with a group");
    return 0;
}

static bool streams(const kin_prediction *p) {
    for (int i = 0; i < KIN_FACTS_MAX_DEVICES; i++) {
        if (p->devices[i].streamed_bytes > 0) return true;
    }
    return false;
}

static void count_streamed(const search *s, kin_grouped_plan *best) {
    for (int i = 0; i < best->plan.groups.n; i++) {
        int last = kin_group_last(&best->plan.groups.groups[i]), n_layer = best->plan.shares[last].n_layer;
        const kin_shared_facts *shared = &s->grouped.shared[last];
        best->n_streamed[i] = 0;
        for (int k = 0; k < shared->n_members; k++) {
            kin_member_rates m;
            kin_member_rates_init(&m, s->facts, shared->members[k].device, shared->members[k].heads, shared->members[k].ff);
            int n = (int)ceil(best->prediction.devices[m.device].streamed_bytes / m.layer_bytes);
            if (n > best->n_streamed[i]) best->n_streamed[i] = n < n_layer ? n : n_layer;
        }
    }
}

// If devices stream, the timeline decides between plans near the best one, as for rings (playoff.c).
static int predict(search *s, kin_err *err) {
    const kin_choices *choices[KIN_FACTS_MAX_DEVICES];
    kin_grouped_plan *best = s->best;
    kin_plan played;
    s->n_chosen = s->n_best;
    memcpy(s->chosen, s->best_chosen, sizeof s->chosen);
    kin_plan_options o = put_chosen(s, choices);
    best->plan.bound_s = best->is_proven ? s->best_s : 0;
    if (kin_timeline_predict(&s->grouped, &best->plan, &best->prediction, err) != 0) return KIN_FAIL;
    if (streams(&best->prediction) && kin_plan_playoff(&s->grouped, &o, &played, NULL) == 0) {
        played.groups = best->plan.groups;
        best->plan = played;
        best->plan.bound_s = best->is_proven ? s->best_s : 0;
        if (kin_timeline_predict(&s->grouped, &best->plan, &best->prediction, err) != 0) return KIN_FAIL;
    }
    count_streamed(s, best);
    return 0;
}

static int run(search *s, double below_s, kin_err *err) {
    kin_device_set usable;
    if (kin_plan_scheduler_devices(s->facts, &s->options, &usable, err) != 0) return KIN_FAIL;
    kin_group_rates(s->facts, usable, s->rates);
    fill_pool(s, usable);
    kin_err_set(&s->why, "%s",
                s->n_pool < 2 ? "there is no other device to share layers with" : "no two devices can reach each other");
    add_cliques(s, 0, usable, 0);
    snprintf(s->best->reason, sizeof s->best->reason, "%.*s", KIN_FACTS_MAX_REASON - 1, s->why.text);
    if (s->n_cliques == 0) return 0;
    qsort(s->cliques, (size_t)s->n_cliques, sizeof *s->cliques, compare_cliques);
    make_candidates(s);
    if (make_single_choices(s, usable, err) != 0 || make_group_choices(s, 0, err) != 0) return KIN_FAIL;
    s->best_s = s->bound_s = below_s;
    search_from(s, 0, 0);
    s->best->is_proven = !s->is_cut && s->bound_s >= s->best_s * (1 - 1e-9);
    if (s->best->plan.groups.n == 0 && try_one(s, err) != 0) return KIN_FAIL;
    return s->best->plan.groups.n > 0 ? predict(s, err) : 0;
}

int kin_plan_grouped(const kin_facts *facts, const kin_plan_options *options, double below_s, kin_grouped_plan *out,
                     kin_err *err) {
    memset(out, 0, sizeof *out);
    search *s = calloc(1, sizeof *s);
    if (!s) return kin_err_set(err, "plan: out of memory");
    s->facts = facts;
    s->options = *options;
    s->left_out = options->leave_out;
    s->best = out;
    int rc = run(s, below_s, err);
    for (int i = 0; i < KIN_FACTS_MAX_DEVICES; i++) kin_choices_fini(&s->singles[i]);
    for (int i = 0; i <= KIN_GROUP_CANDIDATES; i++) kin_choices_fini(&s->candidates[i].choices);
    free(s);
    return rc;
}

// ---- for people

static size_t add(char *buf, size_t n, size_t used, const char *format, ...) KIN_PRINTF(4, 5);

static size_t add(char *buf, size_t n, size_t used, const char *format, ...) {
    va_list args;
    va_start(args, format);
    int more = used < n ? vsnprintf(buf + used, n - used, format, args) : 0;
    va_end(args);
    return used + (more > 0 ? (size_t)more : 0);
}

static double waits_s(const kin_prediction *p) {
    return p->exposed_s + p->disk_bound_s;
}

void kin_grouped_explain(const kin_facts *facts, const kin_grouped_plan *p, const kin_prediction *ring, char *buf, size_t n) {
    size_t used = 0;
    const kin_prediction *g = &p->prediction;
    if (p->plan.groups.n == 0) {
        snprintf(buf, n, "no group: %s", p->reason);
        return;
    }
    bool is_faster = g->tpot_s < ring->tpot_s, is_one = p->plan.groups.n == 1;
    const char *slower = p->is_only_tried ? "no group" : "a ring is faster";
    used = add(buf, n, used, "%s: ", !is_faster ? slower : is_one ? "a group is faster" : "groups are faster");
    for (int i = 0; i < p->plan.groups.n; i++) {
        const kin_group *group = &p->plan.groups.groups[i];
        const kin_group_time *t = &p->times[i];
        int n_layer = p->plan.shares[kin_group_last(group)].n_layer;
        for (int k = 0; k < group->n; k++)
            used = add(buf, n, used, "%s%s", k > 0 ? " + " : i > 0 ? "; " : "", facts->devices[group->devices[k]].name);
        used = add(buf, n, used, " share %d layers", n_layer);
        if (p->n_streamed[i] > 0) used = add(buf, n, used, ", %d of them from disk", p->n_streamed[i]);
        used = add(buf, n, used, ", 2 x %d sums of %.2f ms cost %.1f ms", n_layer, (t->sum_s + t->sum_token_s) * 1e3,
                   2 * n_layer * (t->sum_s + t->sum_token_s) * 1e3);
    }
    double gain_s = ring->compute_s - (g->compute_s - g->sums_s), wait_s = waits_s(ring) - waits_s(g);
    used = add(buf, n, used, "; tensor parallelism %s %.1f ms", gain_s >= 0 ? "gains" : "loses", fabs(gain_s) * 1e3);
    if (fmax(waits_s(ring), waits_s(g)) > 5e-5)
        used = add(buf, n, used, " of computing and %s%.1f ms of waiting for disks",
                   (gain_s >= 0) == (wait_s >= 0) ? ""
                   : wait_s >= 0                  ? "gains "
                                                  : "loses ",
                   fabs(wait_s) * 1e3);
    add(buf, n, used, ": %.1f ms a token, the ring %.1f ms", g->tpot_s * 1e3, ring->tpot_s * 1e3);
}
