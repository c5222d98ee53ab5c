// A step that does not come back is found from the members' reports (pipeline/lost_step.h). A member that is only slow, busy,
// stopped or far away is not blamed.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/rng.h"
#include "pipeline/lost_step.h"
#include "tests/place.h"

enum { N = 3, TICK_MS = 100 };

static kin_time ms(uint64_t n) {
    return n * UINT64_C(1000000);
}

typedef struct ring { // the true state; members report it at once
    kin_lost_step l;
    kin_time now;
    uint32_t epoch;
    kin_step_place places[N], own;
    kin_lost_step_found found;
    int n_asked;
} ring;

// Three idle devices; each has forwarded the ten frames that it received.
static ring open_ring(void) {
    ring r = {.now = ms(5000), .epoch = 7, .own = {.is_known = true, .n_came = 10, .n_left = 10}};
    for (int i = 0; i < N; i++) r.places[i] = (kin_step_place){.is_known = true, .idles = true, .n_came = 10, .n_left = 10};
    return r;
}

static void tick(ring *r) {
    r->now += ms(TICK_MS);
    if (!kin_lost_step_is_due(&r->l, r->now, r->epoch, &r->own)) return;
    r->n_asked++;
    kin_lost_step_found found = kin_lost_step_compare(&r->l, r->now, r->places, N, &r->own);
    if (r->found.kind == KIN_LOST_STEP_NONE) r->found = found;
}

static void wait_ms(ring *r, int for_ms) {
    for (int t = 0; t < for_ms; t += TICK_MS) tick(r);
}

static void expect(const ring *r, kin_lost_step_kind kind, int member) {
    assert_int_equal(r->found.kind, kind);
    assert_int_equal(r->found.member, member);
}
#define expect(...) FROM_TEST(expect(__VA_ARGS__))

// A step is at `member`, which computes it.
static ring with_step_at(int member) {
    ring r = open_ring();
    r.own.n_left++;
    for (int i = 0; i < member; i++) r.places[i].n_came = r.places[i].n_left = 11;
    r.places[member].n_came = 11;
    r.places[member].idles = false;
    return r;
}

static void a_member_that_idles_with_a_step_has_lost_it(void **state) {
    (void)state;
    for (int i = 0; i < N; i++) {
        ring r = with_step_at(i);
        wait_ms(&r, 60000);
        expect(&r, KIN_LOST_STEP_NONE, 0); // the member is computing
        r.places[i].idles = true;
        wait_ms(&r, KIN_LOST_STEP_MS + KIN_LOST_STEP_AGAIN_MS + 2 * TICK_MS);
        expect(&r, KIN_LOST_STEP_IN, i);
    }
}

// The other members of a group wait for the idle member's sum and report that they make progress.
static void signs_of_others_do_not_hide_an_idle_member(void **state) {
    (void)state;
    ring r = with_step_at(1);
    r.places[1].idles = true;
    r.places[0].idles = r.places[2].idles = false;
    for (int i = 0; i < 100; i++) {
        tick(&r);
        r.places[0].n_signs++;
    }
    expect(&r, KIN_LOST_STEP_IN, 1);
}

static void while_steps_come_back_no_member_is_asked(void **state) {
    (void)state;
    ring r = with_step_at(1);
    for (int i = 0; i < 1000; i++) {
        tick(&r);
        r.own.n_left += i % 25 == 0;
        r.own.n_came += i % 25 == 0;
    }
    assert_int_equal(r.n_asked, 0);
}

static void without_a_step_in_flight_no_member_is_asked(void **state) {
    (void)state;
    ring r = open_ring();
    wait_ms(&r, 1000000);
    r.epoch = 0; // no request is running
    r.own = (kin_step_place){.is_known = true};
    wait_ms(&r, 1000000);
    assert_int_equal(r.n_asked, 0);
}

static void a_hop_that_lost_a_step_is_found_later(void **state) {
    (void)state;
    for (int i = 0; i <= N; i++) {
        ring r = open_ring();
        r.own.n_left++;
        for (int k = 0; k < i; k++) r.places[k].n_came = r.places[k].n_left = 11;
        wait_ms(&r, KIN_LOST_STEP_HOP_MS);
        expect(&r, KIN_LOST_STEP_NONE, 0);
        wait_ms(&r, KIN_LOST_STEP_ASK_MS + 2 * KIN_LOST_STEP_AGAIN_MS);
        expect(&r, KIN_LOST_STEP_TO, i);
    }
}

static void a_slow_link_loses_nothing(void **state) {
    (void)state;
    ring r = open_ring();
    r.own.n_left++;
    r.places[0].n_came = r.places[0].n_left = 11;
    r.places[0].moving = 50000000;
    for (int i = 0; i < 50000; i++) { // 83 minutes
        tick(&r);
        r.places[0].moving -= 900;
    }
    expect(&r, KIN_LOST_STEP_NONE, 0);
}

// Pings are always in flight.
static void heartbeats_are_no_bytes_of_a_step(void **state) {
    (void)state;
    ring r = open_ring();
    r.own.n_left++;
    for (int i = 0; i < 10 * (KIN_LOST_STEP_HOP_MS + 8000) / 1000; i++) {
        tick(&r);
        r.places[1].moving = i % 7 ? 0 : 108;
    }
    expect(&r, KIN_LOST_STEP_TO, 0);
}

static void a_member_that_computes_and_gives_signs_may_take_any_time(void **state) {
    (void)state;
    ring r = with_step_at(2);
    for (int i = 0; i < 10 * 3600 * 5; i++) { // five hours, an operation every five minutes
        tick(&r);
        r.places[2].n_signs += i % 3000 == 0;
    }
    expect(&r, KIN_LOST_STEP_NONE, 0);
}

static void a_member_that_waits_for_weights_may_take_any_time(void **state) {
    (void)state;
    ring r = with_step_at(1);
    r.places[1].fetches = true;
    wait_ms(&r, 5 * 3600 * 1000);
    expect(&r, KIN_LOST_STEP_NONE, 0);
}

static void a_member_that_claims_to_compute_without_a_sign_is_found(void **state) {
    (void)state;
    ring r = with_step_at(1);
    wait_ms(&r, KIN_LOST_STEP_MOST_MS);
    expect(&r, KIN_LOST_STEP_NONE, 0);
    wait_ms(&r, 5000);
    expect(&r, KIN_LOST_STEP_STAYS, 1);
}

static void a_member_that_does_not_answer_is_found(void **state) {
    (void)state;
    ring r = with_step_at(1);
    r.places[1] = (kin_step_place){0};
    wait_ms(&r, KIN_LOST_STEP_MOST_MS);
    expect(&r, KIN_LOST_STEP_NONE, 0);
    wait_ms(&r, 5000);
    expect(&r, KIN_LOST_STEP_STAYS, 1);
}

static void what_was_long_before_is_not_too_long(void **state) {
    (void)state;
    ring r = with_step_at(1);
    wait_ms(&r, 500000); // an operation that takes eight minutes
    r.places[1].n_signs++;
    wait_ms(&r, 4900000);
    expect(&r, KIN_LOST_STEP_NONE, 0);
    wait_ms(&r, 200000);
    expect(&r, KIN_LOST_STEP_STAYS, 1);
}

// A laptop was closed, or the head was stopped.
static void time_without_checks_does_not_count(void **state) {
    (void)state;
    ring r = with_step_at(1);
    r.places[1].idles = true;
    for (int i = 0; i < 100; i++) {
        r.now += ms(3600000);
        wait_ms(&r, KIN_LOST_STEP_ASK_MS);
    }
    expect(&r, KIN_LOST_STEP_NONE, 0);
}

static void another_epoch_begins_anew(void **state) {
    (void)state;
    ring r = with_step_at(1);
    r.places[1].idles = true;
    for (int i = 0; i < 100; i++) {
        wait_ms(&r, KIN_LOST_STEP_ASK_MS + KIN_LOST_STEP_MS - TICK_MS);
        r.epoch++;
    }
    expect(&r, KIN_LOST_STEP_NONE, 0);
}

// Rings of any speed: members take up to half an hour for a step and show signs of progress meanwhile; bytes trickle; answers are
// lost; the head is stopped. While no step is lost, no member is blamed. Then a member loses a step and is found.
typedef struct load {
    int at;         // the member that has the step; N: the step is back
    int left_ms;    // remaining computing time
    int sign_ms;    // time until the member's next sign of progress
    bool is_on_way; // the step is leaving this member
} load;

static void next_step(ring *r, load *l, kin_rng *rng) {
    static const int longest_ms[] = {200, 20000, 1800000};
    uint64_t k = kin_rng_u64(rng);
    l->is_on_way = false;
    l->left_ms = (int)(k % (uint64_t)longest_ms[k >> 40 & 1 ? 0 : k >> 41 & 3 ? 1 : 2]);
    l->sign_ms = 0;
    r->places[l->at].n_came++;
    r->places[l->at].idles = false;
}

static void work(ring *r, load *l, kin_rng *rng) {
    if (l->at == N) {
        r->own.n_left++;
        l->at = 0;
        next_step(r, l, rng);
        return;
    }
    kin_step_place *p = &r->places[l->at];
    uint64_t k = kin_rng_u64(rng);
    if (l->is_on_way) {
        uint64_t n = 1 + k % 40000;
        p->moving -= n < p->moving ? n : p->moving;
        if (p->moving > 0) return;
        l->at++;
        if (l->at < N)
            next_step(r, l, rng);
        else
            r->own.n_came++;
        return;
    }
    l->left_ms -= TICK_MS;
    l->sign_ms -= TICK_MS;
    if (l->sign_ms <= 0) {
        p->n_signs++;
        l->sign_ms = (int)(k % 500000);
    }
    if (l->left_ms > 0) return;
    p->n_left++;
    p->idles = true;
    p->moving = k >> 8 & 1 ? 1000 : 4000000;
    l->is_on_way = true;
}

static void members_of_any_speed_are_told_from_those_that_lose(void **state) {
    (void)state;
    for (uint64_t seed = 1; seed <= 200; seed++) {
        kin_rng rng;
        kin_rng_seed(&rng, seed);
        ring r = open_ring();
        load l = {.at = N};
        for (int i = 0; i < 36000; i++) {
            work(&r, &l, &rng);
            kin_step_place held = r.places[seed % N];
            if (kin_rng_u64(&rng) % 20 == 0) r.places[seed % N].is_known = false;
            if (kin_rng_u64(&rng) % 2000 == 0) r.now += ms(kin_rng_u64(&rng) % 100000);
            tick(&r);
            r.places[seed % N] = held;
        }
        if (r.found.kind != KIN_LOST_STEP_NONE)
            fail_msg("seed %llu: %d at %d", (unsigned long long)seed, (int)r.found.kind, r.found.member);
        while (l.at == N || l.is_on_way) work(&r, &l, &rng);
        r.places[l.at].idles = true;
        wait_ms(&r, 20000);
        expect(&r, KIN_LOST_STEP_IN, l.at);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_member_that_idles_with_a_step_has_lost_it),
        cmocka_unit_test(signs_of_others_do_not_hide_an_idle_member),
        cmocka_unit_test(while_steps_come_back_no_member_is_asked),
        cmocka_unit_test(without_a_step_in_flight_no_member_is_asked),
        cmocka_unit_test(a_hop_that_lost_a_step_is_found_later),
        cmocka_unit_test(a_slow_link_loses_nothing),
        cmocka_unit_test(heartbeats_are_no_bytes_of_a_step),
        cmocka_unit_test(a_member_that_computes_and_gives_signs_may_take_any_time),
        cmocka_unit_test(a_member_that_waits_for_weights_may_take_any_time),
        cmocka_unit_test(a_member_that_claims_to_compute_without_a_sign_is_found),
        cmocka_unit_test(a_member_that_does_not_answer_is_found),
        cmocka_unit_test(what_was_long_before_is_not_too_long),
        cmocka_unit_test(time_without_checks_does_not_count),
        cmocka_unit_test(another_epoch_begins_anew),
        cmocka_unit_test(members_of_any_speed_are_told_from_those_that_lose),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
