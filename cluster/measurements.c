#include "cluster/measurements.h"

#include <stdlib.h>

#include "pure/proto/id.h"

enum { PLACES = 64, KEPT = 1 };

typedef struct page {
    bool used;
    kin_proto_id id;
    uint64_t heard; // order in which devices were heard of
    kin_device_facts facts;
} page;

typedef struct entry {
    bool asked, known;
    bool failed;      // the last measurement from this end
    bool is_reported; // the user was informed that they do not reach each other
    kin_link_facts link;
} entry;

struct kin_measurements {
    uint64_t n_heard;
    page pages[PLACES];
    entry links[PLACES][PLACES]; // [from][to]
};

int kin_measurements_open(kin_measurements **out, kin_err *err) {
    *out = calloc(1, sizeof **out);
    return *out ? 0 : kin_err_set(err, "out of memory");
}

void kin_measurements_close(kin_measurements *measurements) {
    free(measurements);
}

static int find_device(const kin_measurements *l, const kin_proto_id *id) {
    for (int i = 0; i < PLACES; i++) {
        if (l->pages[i].used && kin_proto_id_equal(&l->pages[i].id, id)) return i;
    }
    return -1;
}

// Finds a place for a new device: a free one, or that of the least recently heard device, but never the head's.
static int make_place(kin_measurements *l) {
    int at = KEPT;
    if (!l->pages[0].used) return 0;
    for (int i = KEPT; i < PLACES && l->pages[at].used; i++) {
        if (!l->pages[i].used || l->pages[i].heard < l->pages[at].heard) at = i;
    }
    for (int i = 0; i < PLACES; i++) l->links[at][i] = l->links[i][at] = (entry){0};
    return at;
}

void kin_measurements_set_device(kin_measurements *l, const kin_proto_id *id, const kin_device_facts *facts) {
    int at = find_device(l, id);
    if (at < 0) at = make_place(l);
    l->pages[at] = (page){.used = true, .id = *id, .heard = ++l->n_heard, .facts = *facts};
}

const kin_device_facts *kin_measurements_device(const kin_measurements *l, const kin_proto_id *id) {
    int at = find_device(l, id);
    return at < 0 ? NULL : &l->pages[at].facts;
}

bool kin_measurements_ask_back(kin_measurements *l, const kin_proto_id *from, const kin_proto_id *to) {
    int a = find_device(l, from), b = find_device(l, to);
    if (a < 0 || b < 0 || a == b) return false;
    l->links[a][b].asked = true;
    l->links[a][b].failed = false;
    return true;
}

bool kin_measurements_ask(kin_measurements *l, const kin_proto_id *from, const kin_proto_id *to) {
    if (!kin_measurements_ask_back(l, from, to)) return false;
    l->links[find_device(l, to)][find_device(l, from)].failed = false;
    return true;
}

bool kin_measurements_store(kin_measurements *l, const kin_proto_id *from, const kin_proto_id *to, const kin_link_facts *there,
                            const kin_link_facts *back) {
    int a = find_device(l, from), b = find_device(l, to);
    if (a < 0 || b < 0 || !l->links[a][b].asked) return false;
    l->links[a][b].asked = false;
    l->links[a][b].failed = !there || !back;
    if (l->links[a][b].failed && l->links[b][a].failed) l->links[a][b].known = l->links[b][a].known = false;
    if (l->links[a][b].failed) return true;
    l->links[a][b] = (entry){.known = true, .link = *there};
    l->links[b][a] = (entry){.asked = l->links[b][a].asked, .known = true, .link = *back};
    return true;
}

static const entry *entry_of(const kin_measurements *l, const kin_proto_id *from, const kin_proto_id *to) {
    static const entry none;
    int a = find_device(l, from), b = find_device(l, to);
    return a < 0 || b < 0 ? &none : &l->links[a][b];
}

bool kin_measurements_has_failed(const kin_measurements *l, const kin_proto_id *from, const kin_proto_id *to) {
    return entry_of(l, from, to)->failed;
}

bool kin_measurements_is_apart(const kin_measurements *l, const kin_proto_id *a, const kin_proto_id *b) {
    return kin_measurements_has_failed(l, a, b) && kin_measurements_has_failed(l, b, a);
}

bool kin_measurements_note_unreachable(kin_measurements *l, const kin_proto_id *from, const kin_proto_id *to) {
    int a = find_device(l, from), b = find_device(l, to);
    if (a < 0 || b < 0) return true;
    bool is_reported = l->links[a][b].is_reported;
    l->links[a][b].is_reported = l->links[b][a].is_reported = true;
    return !is_reported;
}

static kin_link_facts one_after_the_other(const kin_link_facts *a, const kin_link_facts *b) {
    if (!kin_facts_link_usable(a) || !kin_facts_link_usable(b)) return (kin_link_facts){0};
    return (kin_link_facts){a->rtt_s + b->rtt_s, 1 / (1 / a->bytes_s + 1 / b->bytes_s)};
}

// head, a, b: places of ring members, -1: not known.
static kin_link_facts link_between(const kin_measurements *l, int head, int a, int b) {
    if (a < 0 || b < 0 || a == b) return (kin_link_facts){0};
    const entry *e = &l->links[a][b];
    if (e->known) return e->link;
    if (!e->failed || !l->links[b][a].failed || head < 0) return (kin_link_facts){0};
    return one_after_the_other(&l->links[a][head].link, &l->links[head][b].link);
}

void kin_measurements_fill(kin_measurements *l, const kin_proto_id *ids, int n, kin_facts *facts) {
    kin_assert(n <= KIN_FACTS_MAX_DEVICES);
    int at[KIN_FACTS_MAX_DEVICES];
    facts->n_device = n;
    for (int i = 0; i < n; i++) {
        at[i] = find_device(l, &ids[i]);
        if (at[i] >= 0) l->pages[at[i]].heard = ++l->n_heard; // it is there
        facts->devices[i] = at[i] < 0 ? (kin_device_facts){0} : l->pages[at[i]].facts;
    }
    for (int a = 0; a < n; a++) {
        for (int b = 0; b < n; b++) facts->links[a][b] = link_between(l, at[0], at[a], at[b]);
    }
}
