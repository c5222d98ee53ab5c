#include "ring/ledger.h"

#include <stdlib.h>

#include "pure/proto/id.h"

enum { PLACES = 64, KEPT = 1 };

typedef struct page {
    bool used;
    kin_proto_id id;
    uint64_t heard; // the larger, the later
    kin_device_facts facts;
} page;

typedef struct entry {
    bool asked, known;
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

// A place for somebody new: an empty one, or the one that was heard of least recently, but never the head's.
static int make_place(kin_ledger *l) {
    int at = KEPT;
    if (!l->pages[0].used) return 0;
    for (int i = KEPT; i < PLACES && l->pages[at].used; i++) {
        if (!l->pages[i].used || l->pages[i].heard < l->pages[at].heard) at = i;
    }
    for (int i = 0; i < PLACES; i++) l->links[at][i] = l->links[i][at] = (entry){0};
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

bool kin_ledger_ask(kin_ledger *l, const kin_proto_id *from, const kin_proto_id *to) {
    int a = find(l, from), b = find(l, to);
    if (a < 0 || b < 0 || a == b) return false;
    l->links[a][b].asked = true;
    return true;
}

bool kin_ledger_take(kin_ledger *l, const kin_proto_id *from, const kin_proto_id *to, const kin_link_facts *there,
                     const kin_link_facts *back) {
    int a = find(l, from), b = find(l, to);
    if (a < 0 || b < 0 || !l->links[a][b].asked) return false;
    l->links[a][b].asked = false;
    if (!there || !back) return true;
    l->links[a][b] = (entry){.known = true, .link = *there};
    l->links[b][a] = (entry){.asked = l->links[b][a].asked, .known = true, .link = *back};
    return true;
}

void kin_ledger_fill(kin_ledger *l, const kin_proto_id *const *ids, int n, kin_facts *facts) {
    kin_assert(n <= KIN_FACTS_MAX_DEVICES);
    int at[KIN_FACTS_MAX_DEVICES];
    facts->n_device = n;
    for (int i = 0; i < n; i++) {
        at[i] = find(l, ids[i]);
        if (at[i] >= 0) l->pages[at[i]].heard = ++l->n_heard; // it is there
        facts->devices[i] = at[i] < 0 ? (kin_device_facts){0} : l->pages[at[i]].facts;
    }
    for (int a = 0; a < n; a++) {
        for (int b = 0; b < n; b++) {
            const entry *e = at[a] < 0 || at[b] < 0 ? NULL : &l->links[at[a]][at[b]];
            facts->links[a][b] = e && e->known && a != b ? e->link : (kin_link_facts){0};
        }
    }
}
