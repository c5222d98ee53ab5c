#include "ring/ledger.h"

#include <stdlib.h>

#include "pure/proto/id.h"

enum { PLACES = 64 };

typedef struct page {
    bool used;
    kin_proto_id id;
    uint64_t heard; // the larger, the later
    kin_device_facts facts;
} page;

typedef struct entry {
    bool known;
    kin_link_facts link;
} entry;

struct kin_ledger {
    uint64_t n_heard;
    page pages[PLACES];
    entry links[PLACES][PLACES]; // [from][to]
};

int kin_ledger_open(kin_ledger **out, kin_err *err) {
    *out = calloc(1, sizeof **out);
    return *out ? 0 : kin_err_set(err, "out of memory");
}

void kin_ledger_close(kin_ledger *ledger) {
    free(ledger);
}

static int find(const kin_ledger *l, const kin_proto_id *id) {
    for (int i = 0; i < PLACES; i++) {
        if (l->pages[i].used && kin_proto_id_equal(&l->pages[i].id, id)) return i;
    }
    return -1;
}

// A place for somebody new: an empty one, or the one that was heard of least recently.
static int make_place(kin_ledger *l) {
    int at = 0;
    for (int i = 0; i < PLACES && l->pages[at].used; i++) {
        if (!l->pages[i].used || l->pages[i].heard < l->pages[at].heard) at = i;
    }
    for (int i = 0; i < PLACES; i++) l->links[at][i].known = l->links[i][at].known = false;
    return at;
}

void kin_ledger_set_device(kin_ledger *l, const kin_proto_id *id, const kin_device_facts *facts) {
    int at = find(l, id);
    if (at < 0) at = make_place(l);
    l->pages[at] = (page){.used = true, .id = *id, .heard = ++l->n_heard, .facts = *facts};
}

const kin_device_facts *kin_ledger_device(const kin_ledger *l, const kin_proto_id *id) {
    int at = find(l, id);
    return at < 0 ? NULL : &l->pages[at].facts;
}

void kin_ledger_set_link(kin_ledger *l, const kin_proto_id *from, const kin_proto_id *to, const kin_link_facts *link) {
    int a = find(l, from), b = find(l, to);
    if (a >= 0 && b >= 0) l->links[a][b] = (entry){true, *link};
}

bool kin_ledger_has_link(const kin_ledger *l, const kin_proto_id *from, const kin_proto_id *to) {
    int a = find(l, from), b = find(l, to);
    return a >= 0 && b >= 0 && l->links[a][b].known;
}

void kin_ledger_fill(const kin_ledger *l, const kin_proto_id *const *ids, int n, kin_facts *facts) {
    kin_assert(n <= KIN_FACTS_MAX_DEVICES);
    int at[KIN_FACTS_MAX_DEVICES];
    facts->n_device = n;
    for (int i = 0; i < n; i++) {
        at[i] = find(l, ids[i]);
        facts->devices[i] = at[i] < 0 ? (kin_device_facts){0} : l->pages[at[i]].facts;
    }
    for (int a = 0; a < n; a++) {
        for (int b = 0; b < n; b++) {
            const entry *e = at[a] < 0 || at[b] < 0 ? NULL : &l->links[at[a]][at[b]];
            facts->links[a][b] = e && e->known && a != b ? e->link : (kin_link_facts){0};
        }
    }
}
