// Whole clusters, simulated by seed: one head (pure/proto/membership.h), one to eight devices (pure/proto/member.h), and links
// between them that are slow, stall, are cut or break, while processes crash, freeze, restart, fail and have a wrong version or
// model.
//
//     faults for 20 s ──────────────► calm ─────────────► the ring must be up, on every device, with all of them
//
// The simulator, testkit/sim/cluster.h, asserts what must hold at every moment. KIN_SIM_SEEDS=n sets the number of schedules,
// KIN_SIM_SEED=s runs one and prints its events.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>

#include "testkit/sanitized.h"
#include "testkit/sim/cluster.h"
#include "tests/place.h"

enum {
    N_SCHEDULES = KIN_SANITIZED ? 1500 : 3000,
    N_FAULTS = 12,
    CALM_MS = 20000,
    LAST_REQUEST_MS = 32000, // no requests afterwards, so that late joiners get into the plan
    END_MS = 45000,
    NOTICE_MS = 2500, // limit for a request to outlive the death of a member
};

static kin_sim_totals totals;

// ---- faults

// The current request must end within a while, since a member of its plan is gone for longer.
static void expect_an_end(kin_sim *w, int node, bool alone) {
    bool is_member = false;
    for (int i = 0; i < w->n_planned; i++) is_member = is_member || w->planned[i] == node;
    if (w->request == 0 || !is_member) return;
    kin_sim_push(w, (kin_sim_event){.at = w->now + NOTICE_MS * KIN_SIM_MS,
                                    .what = KIN_SIM_CHECK,
                                    .ticket = w->request,
                                    .side = alone,
                                    .serial = w->nodes[KIN_SIM_HEAD].life});
}

static void check_end(kin_sim *w, const kin_sim_event *e) {
    kin_time then = e->at - NOTICE_MS * KIN_SIM_MS;
    bool is_clear = w->nodes[KIN_SIM_HEAD].runs && w->nodes[KIN_SIM_HEAD].life == e->serial && w->head_hit_at <= then &&
                    w->nodes[KIN_SIM_HEAD].frozen_until <= then;
    if (e->side && w->hit_at > then) return; // only if no other fault has delayed it
    if (is_clear) assert_int_not_equal(w->request, e->ticket);
}

static kin_time until_calm(const kin_sim *w, kin_time at) {
    return at < w->calm_at ? at : w->calm_at;
}

static void crash(kin_sim *w, int node) {
    bool quietly = kin_sim_below(w, 2) == 0;
    if (node != KIN_SIM_HEAD) expect_an_end(w, node, false);
    kin_sim_stop(w, node, quietly);
    kin_sim_push(
        w, (kin_sim_event){.at = until_calm(w, w->now + kin_sim_between_ms(w, 20, 8000)), .what = KIN_SIM_RESTART, .node = node});
}

static void freeze(kin_sim *w, int node) {
    kin_time span = kin_sim_below(w, 2) ? kin_sim_between_ms(w, 50, 1400) : kin_sim_between_ms(w, NOTICE_MS, 7000);
    KIN_SIM_REPORT(w, "%d freezes for %.1f s", node, (double)span / 1e9);
    w->nodes[node].frozen_until = until_calm(w, w->now + span);
    bool is_long = w->nodes[node].frozen_until - w->now >= NOTICE_MS * KIN_SIM_MS;
    if (node != KIN_SIM_HEAD && is_long) expect_an_end(w, node, false);
}

static bool is_ring_hop(const kin_sim *w, int a, int b) {
    for (int i = 0; i + 1 < w->n_planned; i++) {
        int from = w->planned[i], to = w->planned[i + 1];
        if ((from == a && to == b) || (from == b && to == a)) return true;
    }
    return a == KIN_SIM_HEAD || b == KIN_SIM_HEAD;
}

static void cut(kin_sim *w, int a, int b) {
    if (a == b || w->cut_until[a][b] > w->now) return;
    kin_time span = kin_sim_below(w, 2) ? kin_sim_between_ms(w, 50, 1400) : kin_sim_between_ms(w, NOTICE_MS, 7000);
    kin_time until = until_calm(w, w->now + span);
    KIN_SIM_REPORT(w, "cut between %d and %d for %.1f s", a, b, (double)span / 1e9);
    w->cut_until[a][b] = w->cut_until[b][a] = until;
    if (until - w->now < NOTICE_MS * KIN_SIM_MS || !is_ring_hop(w, a, b)) return;
    expect_an_end(w, a == KIN_SIM_HEAD ? b : a, a != KIN_SIM_HEAD && b != KIN_SIM_HEAD);
}

static void break_link(kin_sim *w) {
    int at = (int)kin_sim_below(w, KIN_SIM_LINKS);
    if (!w->links[at].open[0] || !w->links[at].open[1]) return;
    KIN_SIM_REPORT(w, "the link between %d and %d breaks", w->links[at].node[0], w->links[at].node[1]);
    w->links[at].open[0] = w->links[at].open[1] = false;
    kin_sim_report_closed(w, at, 0, "connection reset");
    kin_sim_report_closed(w, at, 1, "connection reset");
}

static void fault(kin_sim *w) {
    int node = kin_sim_below(w, 6) == 0 ? KIN_SIM_HEAD : 1 + (int)kin_sim_below(w, (uint64_t)w->n_nodes - 1);
    int other = (int)kin_sim_below(w, (uint64_t)w->n_nodes);
    if (!w->nodes[node].runs || kin_sim_is_frozen(w, node)) return;
    w->hit_at = w->now;
    if (node == KIN_SIM_HEAD) w->head_hit_at = w->now;
    switch (kin_sim_below(w, 5)) {
    case 0:
    case 1: crash(w, node); break;
    case 2: freeze(w, node); break;
    case 3: cut(w, node, other); break;
    case 4: break_link(w); break;
    }
}

// ---- a schedule

static bool is_good(const kin_sim *w, int node) {
    return !w->nodes[node].wrong_version;
}

// Firewalls: devices that none can reach, not even the head, and single directions that are blocked. All devices reach the head.
static void build_walls(kin_sim *w) {
    uint64_t one_in = 1 + kin_sim_below(w, 4);
    for (int to = 1; to < w->n_nodes; to++) {
        bool is_shut = kin_sim_below(w, one_in) == 0;
        for (int from = 0; from < w->n_nodes; from++) {
            if (from != to && (is_shut || kin_sim_below(w, 8) == 0)) w->walls[from][to] = 1 + kin_sim_below(w, 2);
        }
    }
}

static void set_up(kin_sim *w, uint64_t seed) {
    kin_rng_seed(&w->rng, seed);
    w->n_nodes = 2 + (int)kin_sim_below(w, KIN_SIM_NODES - 1);
    w->calm_at = CALM_MS * KIN_SIM_MS;
    w->last_request_at = LAST_REQUEST_MS * KIN_SIM_MS;
    w->totals = &totals;
    if (w->n_nodes > 2 && kin_sim_below(w, 4) == 0) w->nodes[w->n_nodes - 1].wrong_version = true;
    if (kin_sim_below(w, 4) == 0) w->nodes[1].wrong_model = true;
    int n_good = 0;
    for (int i = 1; i < w->n_nodes; i++) n_good += is_good(w, i);
    w->n_needed = (int)kin_sim_below(w, (uint64_t)n_good + 1);
    if (kin_sim_below(w, 2)) build_walls(w);
    for (int i = 0; i < w->n_nodes; i++) {
        kin_sim_push(w, (kin_sim_event){.at = kin_sim_between_ms(w, 0, 3000), .what = KIN_SIM_RESTART, .node = i});
    }
    for (int i = 0; i < N_FAULTS; i++) {
        kin_sim_push(w, (kin_sim_event){.at = kin_sim_between_ms(w, 1000, CALM_MS - 1), .what = KIN_SIM_FAULT});
    }
}

static void check_calm_end(const kin_sim *w) {
    assert_int_equal(kin_membership_state_now(w->membership), KIN_MEMBERSHIP_SERVING);
    assert_int_equal(w->request, 0);
    assert_int_equal(kin_membership_n_requests(w->membership), 0);
    int n_good = 0;
    for (int i = 1; i < w->n_nodes; i++) {
        if (!is_good(w, i)) {
            assert_int_equal(kin_member_state_now(w->nodes[i].member), KIN_MEMBER_GIVEN_UP);
            continue;
        }
        n_good++;
        assert_int_equal(kin_member_state_now(w->nodes[i].member), KIN_MEMBER_READY);
        assert_int_equal(kin_member_epoch(w->nodes[i].member), kin_membership_epoch(w->membership));
        assert_true(w->nodes[i].plan == w->plan);
    }
    assert_int_equal(w->n_planned, n_good);
}

static void run_schedule(uint64_t seed, bool tells) {
    kin_sim *w = calloc(1, sizeof *w);
    assert_non_null(w);
    w->tells = tells;
    set_up(w, seed);
    while (w->n_queue > 0 && w->queue[0].at < END_MS * KIN_SIM_MS) {
        kin_sim_event e = kin_sim_pop(w);
        kin_sim_happen(w, &e);
        if (e.what == KIN_SIM_FAULT) fault(w);
        if (e.what == KIN_SIM_CHECK) check_end(w, &e);
    }
    check_calm_end(w);
    kin_membership_free(w->membership);
    for (int i = 1; i < w->n_nodes; i++) kin_member_free(w->nodes[i].member);
    free(w);
}
#define run_schedule(...) FROM_TEST(run_schedule(__VA_ARGS__))

static void every_schedule_of_faults_ends_well(void **state) {
    (void)state;
    const char *one = getenv("KIN_SIM_SEED"), *many = getenv("KIN_SIM_SEEDS");
    if (one) {
        run_schedule(strtoull(one, NULL, 10), true);
        return;
    }
    uint64_t n = many ? strtoull(many, NULL, 10) : N_SCHEDULES;
    for (uint64_t seed = 0; seed < n; seed++) {
        fprintf(stderr, "\rseed %llu ", (unsigned long long)seed); // shows the seed if it fails
        run_schedule(seed, false);
    }
    printf("%llu schedules: %llu steps, %llu epochs, %llu requests done, %llu failed with a sentence, at most %llu actions\n",
           (unsigned long long)n, (unsigned long long)totals.n_steps, (unsigned long long)totals.n_epochs,
           (unsigned long long)totals.n_done, (unsigned long long)totals.n_failed, (unsigned long long)totals.n_actions_max);
    printf("%llu links opened by who receives, %llu by way of the head, %llu times somebody was left out\n",
           (unsigned long long)totals.n_back, (unsigned long long)totals.n_relayed, (unsigned long long)totals.n_left_out);
    printf("%llu better plans were prepared beside an epoch, %llu of them began, %llu were given up\n",
           (unsigned long long)totals.n_prefetched, (unsigned long long)totals.n_switched, (unsigned long long)totals.n_given_up);
    assert_true(totals.n_done > n && totals.n_failed > n / 10); // else nothing was tested
    assert_true(totals.n_switched > n / 2 && totals.n_prefetched > totals.n_switched && totals.n_given_up > n / 20);
    assert_true(totals.n_back > n / 10 && totals.n_relayed > n / 10);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_schedule_of_faults_ends_well)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
