#include "pure/grammar/matcher.h"

#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "pure/grammar/grammar_impl.h"

// An item is a state (which determines its machine), the number of complete repetitions if the machine is counted, and the list
// of continuations after the machine ends: the items of its callers, each after the call. A list is sorted and has a number. A
// set of stacks has the same form: the items from which the text can continue. Lists refer only to lists with smaller numbers,
// and equal lists are shared.
//
// State 0 is no state: such an item, the only one at the bottom of all stacks, means that the text may end.
typedef struct item {
    uint32_t state, count, after;
} item;

typedef struct list {
    uint32_t begin, n; // items [begin, begin + n) of the pool
    uint32_t set;      // its number as a set of stacks, or NO_SET
    uint32_t depth;    // call depth
    uint64_t popped;   // the last closure that returned to it
} list;

enum { EMPTY = 0, BOTTOM = 1, N_FIXED }; // lists: the empty one, and the bottom of all stacks
enum { NOTHING = 0 };                    // the set without stacks: the text cannot continue
enum { MAX_POOL = 1 << 18, N_SLOTS = 2 * KIN_MATCHER_MAX_LISTS };
#define NO_SET UINT32_MAX
#define UNKNOWN UINT32_MAX    // a transition that has not been computed yet
#define FULL (UINT32_MAX - 1) // the cache is full: empty it and start over

typedef struct pending { // a call that is deferred until all calls of its machine are known
    item after;
    uint32_t next; // the next one of the same machine, plus 1
} pending;

struct kin_matcher {
    const kin_grammar *grammar;
    const kin_token_trie *trie;

    list *lists;     // [KIN_MATCHER_MAX_LISTS]
    item *pool;      // [MAX_POOL]
    uint32_t *slots; // [N_SLOTS] list number
    uint32_t *rows;  // [max_sets][n_classes] set after a byte
    uint32_t *sets;  // [max_sets] list of each set
    uint32_t n_lists, n_pool, n_sets, max_sets;

    // The current closure.
    uint64_t n_closures;
    item *arrived, *live; // [KIN_MATCHER_MAX_ITEMS]
    uint32_t n_arrived, n_live;
    pending *pendings; // [KIN_MATCHER_MAX_ITEMS]
    uint32_t n_pendings;
    uint32_t *first_pending; // [n_machines] plus 1
    uint64_t *pending_ranks; // [n_machines / 64 + 1] bits
    item *gathered;          // [KIN_MATCHER_MAX_ITEMS]
    bool overflow;           // one of these arrays is too small
    uint64_t n_steps;        // items of all closures for one mask

    uint32_t *path;    // [trie->longest + 1] set at each depth of the current path in a tree
    uint8_t *spelled;  // [trie->longest + 1] bytes of that path
    uint32_t *numbers; // [KIN_MATCHER_MAX_LISTS] scratch for reading and writing places
};

// ---- lists

static int compare(const item *a, const item *b) {
    if (a->state != b->state) return a->state < b->state ? -1 : 1;
    if (a->after != b->after) return a->after < b->after ? -1 : 1;
    return a->count < b->count ? -1 : a->count > b->count;
}

static int by_order(const void *a, const void *b) {
    return compare(a, b);
}

static void sort(item *items, uint32_t n) {
    if (n > 32) {
        qsort(items, n, sizeof *items, by_order);
        return;
    }
    for (uint32_t i = 1; i < n; i++) {
        item moved = items[i];
        uint32_t at = i;
        for (; at > 0 && compare(&moved, &items[at - 1]) < 0; at--) items[at] = items[at - 1];
        items[at] = moved;
    }
}

// Of two counts with the same continuation one may allow everything that the other does: once there are enough repetitions the
// smaller one, and without an upper bound the larger one.
static bool is_one_enough(const kin_grammar_machine *machine, const item *smaller) {
    return machine->counted && (machine->max == KIN_GBNF_UNBOUNDED || smaller->count >= machine->min);
}

// Sorts items and removes duplicates and redundant counts. Returns the number of remaining items.
static uint32_t tidy(const kin_grammar *g, item *items, uint32_t n) {
    uint32_t n_kept = 0;
    sort(items, n);
    for (uint32_t i = 0; i < n; i++) {
        item *last = n_kept > 0 ? &items[n_kept - 1] : NULL;
        if (last && last->state == items[i].state && last->after == items[i].after) {
            const kin_grammar_machine *machine = &g->machines[g->states[last->state].machine];
            if (last->count == items[i].count) continue;
            if (is_one_enough(machine, last)) {
                if (machine->max == KIN_GBNF_UNBOUNDED) *last = items[i];
                continue;
            }
        }
        items[n_kept++] = items[i];
    }
    return n_kept;
}

static uint32_t depth_of(const kin_matcher *m, const item *items, uint32_t n) {
    uint32_t depth = 0;
    for (uint32_t i = 0; i < n; i++) {
        if (items[i].state && m->lists[items[i].after].depth >= depth) depth = m->lists[items[i].after].depth + 1;
    }
    return depth;
}

// Finds or adds the list of these items, sorted. Returns its number; FULL if it is new and there is no room.
static uint32_t find_list(kin_matcher *m, const item *items, uint32_t n) {
    uint32_t at = (uint32_t)kin_hash64(items, n * sizeof *items, 0) & (N_SLOTS - 1);
    for (; m->slots[at] != UNKNOWN; at = (at + 1) & (N_SLOTS - 1)) {
        const list *l = &m->lists[m->slots[at]];
        if (l->n == n && memcmp(m->pool + l->begin, items, n * sizeof *items) == 0) return m->slots[at];
    }
    if (m->n_lists == KIN_MATCHER_MAX_LISTS || n > MAX_POOL - m->n_pool) return FULL;
    m->lists[m->n_lists] = (list){.begin = m->n_pool, .n = n, .set = NO_SET, .depth = depth_of(m, items, n)};
    if (n > 0) memcpy(m->pool + m->n_pool, items, n * sizeof *items);
    m->n_pool += n;
    m->slots[at] = m->n_lists;
    return m->n_lists++;
}

// Returns the number of a list as a set; FULL if there is no room.
static uint32_t number_set(kin_matcher *m, uint32_t at) {
    list *l = &m->lists[at];
    uint32_t n_classes = m->grammar->n_classes;
    if (l->set == NO_SET) {
        if (m->n_sets == m->max_sets) return FULL;
        memset(m->rows + (size_t)m->n_sets * n_classes, 0xff, n_classes * sizeof *m->rows);
        m->sets[m->n_sets] = at;
        l->set = m->n_sets++;
    }
    return l->set;
}

static const list *list_of(const kin_matcher *m, uint32_t set) {
    return &m->lists[m->sets[set]];
}

static void empty_cache(kin_matcher *m) {
    static const item end = {0, 0, 0};
    memset(m->slots, 0xff, N_SLOTS * sizeof *m->slots);
    m->n_lists = m->n_pool = m->n_sets = m->n_closures = 0;
    number_set(m, find_list(m, NULL, 0));
    find_list(m, &end, 1);
}

// ---- closure: everything that is reachable without a byte

static void add(kin_matcher *m, item *items, uint32_t *n, item added) {
    if (*n == KIN_MATCHER_MAX_ITEMS)
        m->overflow = true;
    else
        items[(*n)++] = added;
}

static void begin_closure(kin_matcher *m) {
    m->n_closures++;
    m->n_arrived = m->n_live = m->n_pendings = 0;
    m->overflow = false;
}

static void add_pending(kin_matcher *m, uint32_t machine, item after) {
    uint32_t rank = m->grammar->machines[machine].rank;
    if (m->n_pendings == KIN_MATCHER_MAX_ITEMS) {
        m->overflow = true;
        return;
    }
    if (!(m->pending_ranks[rank / 64] >> (rank % 64) & 1)) m->first_pending[machine] = 0;
    m->pending_ranks[rank / 64] |= (uint64_t)1 << (rank % 64);
    m->pendings[m->n_pendings] = (pending){after, m->first_pending[machine]};
    m->first_pending[machine] = ++m->n_pendings;
}

// A call at the end of a machine needs no return address: its continuation is that of the machine (a tail call).
static bool is_last_call(const kin_grammar *g, uint32_t next) {
    const kin_grammar_state_row *row = &g->states[next];
    return row->flags == KIN_STATE_ENDS && row->n_calls == 0 && !g->machines[row->machine].counted;
}

static void add_calls(kin_matcher *m, item from) {
    const kin_grammar *g = m->grammar;
    const kin_grammar_state_row *row = &g->states[from.state];
    for (uint32_t k = 0; k < row->n_calls; k++) {
        kin_grammar_call call = g->calls[row->calls + k];
        const list *after = &m->lists[from.after];
        if (is_last_call(g, call.next))
            for (uint32_t i = 0; i < after->n; i++) add_pending(m, call.machine, m->pool[after->begin + i]);
        else if (after->depth < KIN_MATCHER_MAX_DEPTH)
            add_pending(m, call.machine, (item){call.next, from.count, from.after});
    }
}

// Adds an item from which the text may continue.
static void add_live(kin_matcher *m, item it) {
    const kin_grammar_state_row *row = &m->grammar->states[it.state];
    if (it.state == 0 || row->flags & KIN_STATE_READS) add(m, m->live, &m->n_live, it);
    if (row->n_calls > 0) add_calls(m, it);
}

// Returns from the machine of a list: its callers continue.
static void return_to(kin_matcher *m, uint32_t after) {
    list *l = &m->lists[after];
    if (l->popped == m->n_closures) return;
    l->popped = m->n_closures;
    for (uint32_t i = 0; i < l->n; i++) add(m, m->arrived, &m->n_arrived, m->pool[l->begin + i]);
}

// Enters a state by a byte or by the return of a call.
static void arrive(kin_matcher *m, item it) {
    const kin_grammar_state_row *row = &m->grammar->states[it.state];
    const kin_grammar_machine *machine = &m->grammar->machines[row->machine];
    add_live(m, it);
    if (it.state == 0 || !(row->flags & KIN_STATE_ENDS)) return;
    if (!machine->counted) {
        return_to(m, it.after);
        return;
    }
    bool is_unbounded = machine->max == KIN_GBNF_UNBOUNDED;
    uint32_t count = is_unbounded && it.count >= machine->min ? machine->min : it.count + 1;
    if (count >= machine->min) return_to(m, it.after);
    if (is_unbounded || count < machine->max) add_live(m, (item){machine->start, count, it.after});
}

// Makes all pending calls of one machine at once. Returns FULL or 0.
static uint32_t call(kin_matcher *m, uint32_t machine) {
    uint32_t n = 0;
    for (uint32_t p = m->first_pending[machine]; p; p = m->pendings[p - 1].next) m->gathered[n++] = m->pendings[p - 1].after;
    n = tidy(m->grammar, m->gathered, n);
    uint32_t after = find_list(m, m->gathered, n);
    if (after == FULL) return FULL;
    add_live(m, (item){m->grammar->machines[machine].start, 0, after});
    return 0;
}

// Ends the closure: returns the set of everything that was added since begin_closure. FULL if there is no room for it.
static uint32_t end_closure(kin_matcher *m) {
    const kin_grammar *g = m->grammar;
    for (uint32_t i = 0; i < m->n_arrived; i++) arrive(m, m->arrived[i]);
    uint32_t rc = 0;
    for (uint32_t word = 0; word <= g->n_machines / 64; word++) {
        while (m->pending_ranks[word]) { // a call leads only to higher ranks
            uint32_t bit = (uint32_t)__builtin_ctzll(m->pending_ranks[word]);
            m->pending_ranks[word] &= m->pending_ranks[word] - 1;
            if (rc == 0 && !m->overflow) rc = call(m, g->by_rank[word * 64 + bit]);
        }
    }
    m->n_steps += m->n_arrived + m->n_live + m->n_pendings;
    if (rc != 0) return FULL;
    if (m->overflow) return NOTHING;
    uint32_t found = find_list(m, m->live, tidy(g, m->live, m->n_live));
    return found == FULL ? FULL : number_set(m, found);
}

// ---- transitions

static uint32_t compute_step(kin_matcher *m, uint32_t set, uint32_t byte_class) {
    begin_closure(m);
    const list *l = list_of(m, set);
    for (uint32_t i = 0; i < l->n; i++) {
        item it = m->pool[l->begin + i];
        it.state = it.state ? kin_grammar_next(m->grammar, it.state, byte_class) : 0;
        if (it.state) add(m, m->arrived, &m->n_arrived, it);
    }
    return end_closure(m);
}

// Returns the set after a byte; NOTHING if the byte is not allowed, FULL if there is no room.
static uint32_t step(kin_matcher *m, uint32_t set, uint8_t byte) {
    uint32_t byte_class = m->grammar->class_of[byte];
    uint32_t *next = &m->rows[(size_t)set * m->grammar->n_classes + byte_class];
    if (*next == UNKNOWN) {
        uint32_t computed = compute_step(m, set, byte_class);
        if (computed == FULL) return FULL;
        *next = computed;
    }
    return *next;
}

static uint32_t first_set(kin_matcher *m) {
    begin_closure(m);
    const kin_grammar_machine *root = &m->grammar->machines[m->grammar->root];
    if (m->grammar->states[root->start].flags & KIN_STATE_ENDS) add_live(m, (item){0, 0, 0});
    add_pending(m, m->grammar->root, (item){0, 0, 0});
    return end_closure(m);
}

// ---- places: n lists, each with n items of 3 words; lists are numbered from 2, the last one is the set

static int reserve(kin_place *place, uint32_t n_words) {
    if (n_words <= place->cap_words) return 0;
    uint32_t *words = realloc(place->words, n_words * sizeof *words);
    if (!words) return KIN_FAIL;
    place->words = words;
    place->cap_words = n_words;
    return 0;
}

static int by_number(const void *a, const void *b) {
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return x < y ? -1 : x > y;
}

// Writes the numbers of the list, and of all lists that it refers to, to m->numbers, ascending; returns how many. Uses the
// marks of closures.
static uint32_t collect(kin_matcher *m, uint32_t top) {
    uint32_t n = 0;
    uint64_t mark = ++m->n_closures;
    m->lists[EMPTY].popped = m->lists[BOTTOM].popped = mark;
    if (top >= N_FIXED) m->numbers[n++] = top;
    m->lists[top].popped = mark;
    for (uint32_t i = 0; i < n; i++) {
        const list *l = &m->lists[m->numbers[i]];
        for (uint32_t k = 0; k < l->n; k++) {
            uint32_t after = m->pool[l->begin + k].after;
            if (m->lists[after].popped == mark) continue;
            m->lists[after].popped = mark;
            m->numbers[n++] = after;
        }
    }
    qsort(m->numbers, n, sizeof *m->numbers, by_number);
    return n;
}

static uint32_t number_in(const uint32_t *numbers, uint32_t n, uint32_t wanted) {
    if (wanted < N_FIXED) return wanted;
    uint32_t lo = 0, hi = n;
    while (hi - lo > 1) {
        uint32_t mid = lo + (hi - lo) / 2;
        if (numbers[mid] <= wanted)
            lo = mid;
        else
            hi = mid;
    }
    return lo + N_FIXED;
}

static int write_place(kin_matcher *m, uint32_t set, kin_place *place) {
    uint32_t top = m->sets[set], n = collect(m, top), n_words = 2, at = 0;
    for (uint32_t i = 0; i < n; i++) n_words += 1 + 3 * m->lists[m->numbers[i]].n;
    if (reserve(place, n_words) != 0) return KIN_FAIL;
    place->words[at++] = n;
    place->words[at++] = number_in(m->numbers, n, top);
    for (uint32_t i = 0; i < n; i++) {
        const list *l = &m->lists[m->numbers[i]];
        place->words[at++] = l->n;
        for (uint32_t k = 0; k < l->n; k++) {
            item it = m->pool[l->begin + k];
            place->words[at++] = it.state;
            place->words[at++] = it.count;
            place->words[at++] = number_in(m->numbers, n, it.after);
        }
    }
    place->n_words = n_words;
    return 0;
}

// Returns the set of a place; FULL if there is no room for it.
static uint32_t read_place(kin_matcher *m, const kin_place *place) {
    const uint32_t *words = place->words + 2;
    m->numbers[EMPTY] = EMPTY;
    m->numbers[BOTTOM] = BOTTOM;
    for (uint32_t i = 0; i < place->words[0]; i++) {
        uint32_t n = *words++;
        for (uint32_t k = 0; k < n; k++, words += 3) m->gathered[k] = (item){words[0], words[1], m->numbers[words[2]]};
        sort(m->gathered, n); // by the current numbers
        m->numbers[N_FIXED + i] = find_list(m, m->gathered, n);
        if (m->numbers[N_FIXED + i] == FULL) return FULL;
    }
    return number_set(m, m->numbers[place->words[1]]);
}

int kin_matcher_begin(kin_matcher *m, kin_place *place) {
    uint32_t set = first_set(m);
    if (set == FULL) {
        empty_cache(m);
        set = first_set(m);
    }
    return write_place(m, set == FULL ? NOTHING : set, place);
}

int kin_place_copy(kin_place *to, const kin_place *from) {
    if (reserve(to, from->n_words) != 0) return KIN_FAIL;
    memcpy(to->words, from->words, from->n_words * sizeof *to->words);
    to->n_words = from->n_words;
    return 0;
}

void kin_place_fini(kin_place *place) {
    free(place->words);
    *place = (kin_place){0};
}

// Reads the last list: the state of its first item is 0 if the text may end.
bool kin_place_may_end(const kin_place *place) {
    uint32_t set = place->words[1];
    if (set < N_FIXED) return set == BOTTOM;
    const uint32_t *words = place->words + 2;
    for (uint32_t i = N_FIXED; i < set; i++) words += 1 + 3 * words[0];
    return words[1] == 0;
}

bool kin_place_may_go_on(const kin_place *place) {
    return place->words[1] >= N_FIXED;
}

// ---- texts

// Returns the set after the bytes, starting at the place; NOTHING if they are not allowed. A text that does not fit into an
// empty cache is not allowed.
static uint32_t walk(kin_matcher *m, const kin_place *place, const uint8_t *at, size_t len) {
    uint32_t set = FULL;
    for (int attempt = 0; set == FULL && attempt < 2; attempt++) {
        if (attempt > 0) empty_cache(m);
        set = read_place(m, place);
        for (size_t i = 0; i < len && set != FULL && set != NOTHING; i++) set = step(m, set, at[i]);
    }
    return set == FULL ? NOTHING : set;
}

int kin_matcher_accept_bytes(kin_matcher *m, kin_place *place, const char *at, size_t len, bool *allowed) {
    uint32_t set = walk(m, place, (const uint8_t *)at, len);
    *allowed = set != NOTHING;
    return *allowed ? write_place(m, set, place) : 0;
}

int kin_matcher_accept(kin_matcher *m, kin_place *place, int32_t id, bool *allowed) {
    kin_str text = kin_token_trie_text(m->trie, id);
    if (text.len > 0) return kin_matcher_accept_bytes(m, place, text.at, text.len, allowed);
    *allowed = kin_vocab_is_eog(m->trie->vocab, id) && kin_place_may_end(place);
    return 0;
}

bool kin_matcher_allows(kin_matcher *m, const kin_place *place, int32_t id) {
    kin_str text = kin_token_trie_text(m->trie, id);
    if (text.len > 0) return walk(m, place, (const uint8_t *)text.at, text.len) != NOTHING;
    return kin_vocab_is_eog(m->trie->vocab, id) && kin_place_may_end(place);
}

// ---- masks

// Empties the cache and computes the sets along the spelled path again. Returns the set before the node at `depth`.
static uint32_t walk_again(kin_matcher *m, const kin_place *place, uint32_t depth) {
    empty_cache(m);
    m->path[0] = read_place(m, place);
    for (uint32_t d = 1; d < depth; d++) {
        if (m->path[d - 1] == FULL) return FULL;
        m->path[d] = step(m, m->path[d - 1], m->spelled[d]);
    }
    return m->path[depth - 1];
}

// Adds the tokens of the tree that the grammar allows after path[0]. A node without a token has the placeholder n_tokens
// (token_trie.h), which saves a branch.
static void walk_tree(kin_matcher *m, const kin_place *place, const kin_token_tree *tree, uint64_t *set) {
    const uint8_t *class_of = m->grammar->class_of;
    const uint32_t *rows = m->rows;
    size_t n_classes = m->grammar->n_classes;
    for (uint32_t i = 0; i < tree->n_nodes && m->n_steps < KIN_MATCHER_MAX_STEPS;) {
        const kin_token_node *node = &tree->nodes[i];
        uint32_t before = m->path[node->depth - 1];
        // If it does not fit into an empty cache it is rejected, as in walk.
        uint32_t next = before == FULL ? NOTHING : rows[before * n_classes + class_of[node->byte]];
        m->spelled[node->depth] = node->byte;
        if (next == UNKNOWN) next = step(m, before, node->byte);
        if (next == FULL) {
            before = walk_again(m, place, node->depth);
            next = before == FULL ? FULL : step(m, before, node->byte);
            if (next == FULL) next = NOTHING;
        }
        m->path[node->depth] = next;
        if (next == NOTHING) {
            i = node->end;
            continue;
        }
        kin_token_set_add(set, node->token);
        i++;
    }
}

// Returns the number of arbitrary plain characters that may come next.
static uint32_t plain_allowed(const kin_matcher *m, uint32_t set) {
    const list *l = list_of(m, set);
    uint32_t most = 0;
    for (uint32_t i = 0; i < l->n; i++) {
        item it = m->pool[l->begin + i];
        const kin_grammar_state_row *row = &m->grammar->states[it.state];
        if (!(row->flags & KIN_STATE_PLAIN)) continue;
        const kin_grammar_machine *machine = &m->grammar->machines[row->machine];
        uint32_t n = machine->counted && machine->max != KIN_GBNF_UNBOUNDED ? machine->max - it.count : UINT32_MAX;
        if (n > most) most = n;
    }
    return most;
}

// True if only the repetition found by plain_allowed reads plain characters here.
static bool only_plain_reads(const kin_matcher *m, uint32_t set, uint32_t n_left) {
    const list *l = list_of(m, set);
    uint32_t n_plain = 0;
    for (uint32_t i = 0; i < l->n; i++) {
        uint8_t flags = m->grammar->states[m->pool[l->begin + i].state].flags;
        if (flags & KIN_STATE_PLAIN)
            n_plain++;
        else if (flags & KIN_STATE_READS_PLAIN)
            return false;
    }
    return n_plain == (n_left > 0);
}

// True if plain tokens with more than n_left characters, the maximum, are certainly rejected: each plain character takes one
// repetition and nothing else reads any, until no repetitions are left and nothing reads plain characters.
static bool is_plain_limit(kin_matcher *m, uint32_t set, uint32_t n_left) {
    for (;; n_left--) {
        if (set == FULL || !only_plain_reads(m, set, n_left)) return false;
        if (n_left == 0) return true;
        set = step(m, set, 'a');
    }
}

void kin_matcher_mask(kin_matcher *m, const kin_place *place, uint64_t *set) {
    const kin_token_trie *trie = m->trie;
    if (kin_place_may_end(place))
        memcpy(set, trie->ends, trie->n_words * sizeof *set);
    else
        memset(set, 0, trie->n_words * sizeof *set);
    m->n_steps = 0;
    m->path[0] = read_place(m, place);
    if (m->path[0] == FULL) {
        empty_cache(m);
        m->path[0] = read_place(m, place); // cannot fail: the place was written from a cache of this size
    }
    uint32_t n_plain = plain_allowed(m, m->path[0]);
    kin_token_trie_add_plain(trie, n_plain, set);
    if (n_plain < trie->longest_plain && (n_plain == 0 || !is_plain_limit(m, m->path[0], n_plain)))
        walk_tree(m, place, &trie->plain, set);
    walk_tree(m, place, &trie->other, set);
    kin_token_trie_finish(trie, set);
}

// ---- open and close

static int allocate(kin_matcher *m) {
    uint32_t n_machines = m->grammar->n_machines, longest = m->trie ? m->trie->longest : 0;
    m->lists = malloc(KIN_MATCHER_MAX_LISTS * sizeof *m->lists);
    m->pool = malloc(MAX_POOL * sizeof *m->pool);
    m->slots = malloc(N_SLOTS * sizeof *m->slots);
    m->rows = malloc(KIN_MATCHER_MAX_CELLS * sizeof *m->rows);
    m->sets = malloc(m->max_sets * sizeof *m->sets);
    m->arrived = malloc(KIN_MATCHER_MAX_ITEMS * sizeof *m->arrived);
    m->live = malloc(KIN_MATCHER_MAX_ITEMS * sizeof *m->live);
    m->gathered = malloc(KIN_MATCHER_MAX_ITEMS * sizeof *m->gathered);
    m->pendings = malloc(KIN_MATCHER_MAX_ITEMS * sizeof *m->pendings);
    m->first_pending = malloc(n_machines * sizeof *m->first_pending);
    m->pending_ranks = calloc(n_machines / 64 + 1, sizeof *m->pending_ranks);
    m->path = malloc(((size_t)longest + 1) * sizeof *m->path);
    m->spelled = malloc((size_t)longest + 1);
    m->numbers = malloc((KIN_MATCHER_MAX_LISTS + N_FIXED) * sizeof *m->numbers);
    bool ok = m->lists && m->pool && m->slots && m->rows && m->sets && m->arrived && m->live && m->gathered && m->pendings &&
              m->first_pending && m->pending_ranks && m->path && m->spelled && m->numbers;
    return ok ? 0 : KIN_FAIL;
}

int kin_matcher_new(kin_matcher **out, const kin_grammar *grammar, const kin_token_trie *trie, kin_err *err) {
    *out = NULL;
    kin_matcher *m = calloc(1, sizeof *m);
    if (!m) return kin_err_set(err, "grammar: out of memory");
    m->grammar = grammar;
    m->trie = trie;
    m->max_sets = KIN_MATCHER_MAX_CELLS / grammar->n_classes;
    if (m->max_sets > KIN_MATCHER_MAX_LISTS) m->max_sets = KIN_MATCHER_MAX_LISTS;
    if (allocate(m) != 0) {
        kin_matcher_free(m);
        return kin_err_set(err, "grammar: out of memory");
    }
    empty_cache(m);
    *out = m;
    return 0;
}

void kin_matcher_free(kin_matcher *m) {
    if (!m) return;
    free(m->numbers);
    free(m->spelled);
    free(m->path);
    free(m->pending_ranks);
    free(m->first_pending);
    free(m->pendings);
    free(m->gathered);
    free(m->live);
    free(m->arrived);
    free(m->sets);
    free(m->rows);
    free(m->slots);
    free(m->pool);
    free(m->lists);
    free(m);
}

const kin_token_trie *kin_matcher_trie(const kin_matcher *m) {
    return m->trie;
}
