#include "testkit/sim/disks.h"

#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "pure/plan/window.h"

static size_t bytes_of(kin_sim_page_kind kind) {
    return kind == KIN_SIM_OF_TOKENS ? 4 * KIN_KV_CELLS + sizeof(kin_border_set) : KIN_SIM_PAGE_BYTES;
}

// Returns the page's place in the hash table, or the free place where it belongs.
static int *place_of(kin_sim_disks *d, int node, kin_sim_page_kind kind, const kin_page_key *key) {
    for (uint64_t at = kin_hash64(key, sizeof *key, (uint64_t)node * 3 + kind);; at++) {
        int *place = &d->places[at % (2 * KIN_SIM_PAGES)];
        const kin_sim_page *p = &d->pages[*place];
        if (*place == 0) return place;
        if (p->node == node && p->kind == kind && memcmp(&p->key, key, sizeof *key) == 0) return place;
    }
}

kin_sim_page *kin_sim_find_page(kin_sim_disks *d, int node, kin_sim_page_kind kind, const kin_page_key *key) {
    kin_sim_page *p = &d->pages[*place_of(d, node, kind, key)];
    return p->is_there ? p : NULL;
}

void kin_sim_put_page(kin_sim_disks *d, int node, kin_sim_page_kind kind, const kin_page_key *key, const uint8_t *content,
                      bool is_torn) {
    int *place = place_of(d, node, kind, key);
    if (*place == 0) *place = ++d->n_pages;
    kin_assert(d->n_pages < KIN_SIM_PAGES);
    kin_sim_page *p = &d->pages[*place];
    *p = (kin_sim_page){.node = node, .kind = kind, .is_there = true, .is_torn = is_torn, .key = *key};
    memcpy(p->content, content, bytes_of(kind));
}

// ---- writing

static void begin_write(kin_sim_disks *d, kin_sim_page_write write, kin_time at) {
    uint32_t i = d->n_writes++ % KIN_SIM_WRITES;
    kin_assert(!d->writes[i].content);
    d->writes[i] = write;
    kin_sim_push(d->w, (kin_sim_event){.at = at, .what = KIN_SIM_WRITTEN, .ticket = i});
}

void kin_sim_write_page(kin_sim_disks *d, int node, kin_sim_page_kind kind, const kin_page_key *key, uint8_t *content) {
    kin_sim_page_write write = {
        .node = node, .source = -1, .life = d->w->nodes[node].life, .kind = kind, .key = *key, .content = content};
    begin_write(d, write, d->w->now + kin_sim_between_ms(d->w, 1, kin_sim_below(d->w, 8) ? 10 : 400));
}

static bool is_of(const kin_sim_page_write *p, int node, kin_sim_page_kind kind) {
    return p->content && p->node == node && p->kind == kind;
}

bool kin_sim_is_writing(const kin_sim_disks *d, int node, kin_sim_page_kind kind, const kin_page_key *key) {
    for (int i = 0; i < KIN_SIM_WRITES; i++) {
        if (is_of(&d->writes[i], node, kind) && memcmp(&d->writes[i].key, key, sizeof *key) == 0) return true;
    }
    return false;
}

static bool is_full(const kin_sim_disks *d, int node) {
    return d->full_until[node] > d->w->now;
}

void kin_sim_settle_pages(kin_sim_disks *d, int node, kin_sim_page_kind kind) {
    for (int i = 0; i < KIN_SIM_WRITES; i++) {
        const kin_sim_page_write *p = &d->writes[i];
        if (is_of(p, node, kind) && p->source < 0 && !is_full(d, node))
            kin_sim_put_page(d, node, kind, &p->key, p->content, false);
    }
}

int kin_sim_replica(const kin_sim_disks *d, int node) {
    int i = 0;
    while (i < d->w->n_planned && d->w->planned[i] != node) i++;
    for (i++; i < d->w->n_planned; i++) {
        if (!d->keeps_nothing[d->w->planned[i]]) return d->w->planned[i];
    }
    return KIN_SIM_HEAD;
}

static int copy_to_replica(kin_sim_disks *d, const kin_sim_page_write *of) {
    int replica = kin_sim_replica(d, of->node);
    kin_sim_page_write copy = *of;
    copy.node = replica;
    copy.life = d->w->nodes[replica].life;
    copy.source = of->node;
    copy.source_life = of->life;
    copy.content = malloc(KIN_SIM_PAGE_BYTES);
    kin_assert(copy.content);
    memcpy(copy.content, of->content, bytes_of(of->kind));
    begin_write(d, copy, d->w->now + kin_sim_between_ms(d->w, 5, 100));
    return replica;
}

bool kin_sim_page_written(kin_sim_disks *d, uint32_t ticket, int *from, int *to) {
    kin_sim_page_write *p = &d->writes[ticket];
    bool has_source = p->source < 0 || kin_sim_lives(d->w, p->source, p->source_life),
         is_whole = kin_sim_lives(d->w, p->node, p->life);
    bool is_torn = !is_whole && kin_sim_below(d->w, 2) == 0, has_room = !is_full(d, p->node);
    if (has_source && has_room && (is_whole || is_torn)) kin_sim_put_page(d, p->node, p->kind, &p->key, p->content, is_torn);
    d->n_torn += has_source && has_room && is_torn;
    d->n_copied += has_source && has_room && is_whole && p->source >= 0;
    d->n_refused += is_whole && !has_room;
    bool is_copied = p->kind == KIN_SIM_OF_LAYER && p->source < 0 && p->node != KIN_SIM_HEAD && !d->has_no_copies;
    *from = p->node;
    bool copies = is_whole && has_room && is_copied && d->w->nodes[KIN_SIM_HEAD].runs;
    if (copies) *to = copy_to_replica(d, p);
    free(p->content);
    p->content = NULL;
    return copies;
}

// ---- the rest

void kin_sim_damage_pages(kin_sim_disks *d, int node, uint64_t one_in) {
    for (int i = 1; i <= d->n_pages; i++) {
        if (d->pages[i].node == node && kin_sim_below(d->w, one_in) == 0) d->pages[i].is_torn = true;
    }
}

void kin_sim_disks_end(kin_sim_disks *d) {
    for (int i = 0; i < KIN_SIM_WRITES; i++) {
        free(d->writes[i].content);
        d->writes[i].content = NULL;
    }
    memset(d->places, 0, sizeof d->places);
    memset(d->full_until, 0, sizeof d->full_until);
    memset(d->keeps_nothing, 0, sizeof d->keeps_nothing);
    d->n_pages = 0;
    d->n_writes = 0;
}
