#include "cluster/pairwise_tests.h"

#include <stdlib.h>

enum { PLACES = 40 };

// A measurement takes at most 3 s (net/probe.h), mostly 0.1 s, on links with long round trips 1 s; they run one after another.
#define TEST_NS ((kin_time)8000000000)

typedef struct pair_test {
    kin_proto_device *device; // NULL: unused
    uint32_t link;
    int n_open;
    kin_time begun;
} pair_test;

struct kin_pairwise_tests {
    kin_pairwise_tests_over over;
    void *user;
    pair_test places[PLACES];
};

int kin_pairwise_tests_open(kin_pairwise_tests **out, kin_pairwise_tests_over over, void *user, kin_err *err) {
    kin_pairwise_tests *m = *out = calloc(1, sizeof *m);
    if (!m) return kin_err_set(err, "out of memory");
    m->over = over;
    m->user = user;
    return 0;
}

static void end_test(pair_test *at) {
    free(at->device);
    *at = (pair_test){0};
}

void kin_pairwise_tests_close(kin_pairwise_tests *m) {
    if (!m) return;
    for (int i = 0; i < PLACES; i++) end_test(&m->places[i]);
    free(m);
}

static pair_test *find_test(kin_pairwise_tests *m, uint32_t link) {
    for (int i = 0; i < PLACES; i++) {
        if (m->places[i].device && m->places[i].link == link) return &m->places[i];
    }
    return NULL;
}

static pair_test *find_free(kin_pairwise_tests *m) {
    for (int i = 0; i < PLACES; i++) {
        if (!m->places[i].device) return &m->places[i];
    }
    return NULL;
}

bool kin_pairwise_tests_begin(kin_pairwise_tests *m, uint32_t link, const kin_proto_device *device, int n_asked, kin_time now) {
    pair_test *at = find_free(m);
    kin_proto_device *copy = at ? malloc(sizeof *copy) : NULL;
    if (!copy) return false;
    *copy = *device;
    *at = (pair_test){.device = copy, .link = link, .n_open = n_asked, .begun = now};
    return true;
}

bool kin_pairwise_tests_answered(kin_pairwise_tests *m, uint32_t link) {
    pair_test *at = find_test(m, link);
    if (at && at->n_open > 0) at->n_open--;
    return at != NULL;
}

bool kin_pairwise_tests_renew(kin_pairwise_tests *m, uint32_t link, const kin_proto_device *device) {
    pair_test *at = find_test(m, link);
    if (at) *at->device = *device;
    return at != NULL;
}

void kin_pairwise_tests_lost(kin_pairwise_tests *m, uint32_t link) {
    pair_test *at = find_test(m, link);
    if (at) end_test(at);
}

void kin_pairwise_tests_tick(kin_pairwise_tests *m, kin_time now) {
    for (int i = 0; i < PLACES; i++) {
        pair_test *at = &m->places[i];
        if (!at->device || (at->n_open > 0 && now - at->begun < TEST_NS)) continue;
        pair_test over = *at;
        *at = (pair_test){0};
        m->over(m->user, over.link, over.device);
        free(over.device);
    }
}
