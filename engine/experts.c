#include "engine/experts.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/clock.h"
#include "pure/plan/expert_cache.h"
#include "pure/plan/expert_guess.h"
#include "sys/pages.h"
#include "sys/team/system.h"

enum { HERE = 0, READING = -1 }; // states of a slot; others: the errno of a read that failed
enum { NO_SLOT = -1 };
enum { FILL_AT_ONCE = 4 }; // experts in flight while the cache is filled: a miss waits for as many reads at most

// What a slot's read is for.
enum { FOR_NOBODY, FOR_STEP, AHEAD, GUESSED };

typedef struct layer {
    kin_expert_layer in_file;
    uint64_t part_at[KIN_STREAM_MAX_RANGES]; // in a slot
    uint64_t bytes;                          // of an expert in its slot
} layer;

typedef struct slot {
    kin_stream_ticket ticket;
    atomic_int state;
    atomic_int purpose; // while it is being read
    uint64_t touched;   // its first bytes that take memory
    bool is_guessed;    // since its layer's last step
} slot;

struct kin_experts {
    kin_stream *stream;
    kin_expert_source source;
    int n_layer, n_expert, n_used;
    layer *layers;
    uint8_t *memory; // [n_slots][slot_bytes]
    uint64_t slot_bytes;
    size_t n_slots;
    atomic_int *places; // [n_layer * n_expert] the slot of each expert, or NO_SLOT

    pthread_mutex_t mutex; // guards the following
    kin_expert_cache *cache;
    kin_expert_guess *guess;
    slot *slots;    // [n_slots]
    int32_t *free_; // [n_slots] stack of free slots
    size_t n_free;
    int32_t *uses;               // [n_expert] scratch of choose and expect
    kin_stream_ticket **tickets; // [n_expert] likewise
    int n_at_once;               // experts of the last step that are computed together
    uint64_t budget, n_hits, n_misses, n_filled, n_guessed, n_foreseen, n_late, read_bytes;

    pthread_t filler;
    bool is_filling; // the thread was started
    atomic_bool ends_filling;

    atomic_int il_due;    // the layer that is to be guessed now; -1: none
    atomic_int n_reading; // slots of the last step that are still being read; one more while choose counts them
    atomic_int failed;    // errno of a read whose expert was used; 0: none
    atomic_ullong wait_begin, wait_ns;
};

// ---- places

static uint64_t align_up(uint64_t n, uint64_t to) {
    return (n + to - 1) / to * to;
}

// Returns the bytes that any expert of a part takes in a slot: reads are widened to whole blocks of the disk.
static uint64_t part_room(const kin_expert_part *p) {
    const bool is_aligned = p->offset % KIN_STREAM_ALIGN == 0 && p->stride % KIN_STREAM_ALIGN == 0;
    return align_up(p->bytes + (is_aligned ? 0 : KIN_STREAM_ALIGN - 1), KIN_STREAM_ALIGN);
}

// Memory is taken in whole pages.
static uint64_t expert_room(const kin_expert_layer *l) {
    uint64_t sum = 0;
    for (int k = 0; k < l->n_parts; k++) sum += part_room(&l->parts[k]);
    return align_up(sum, kin_page_bytes());
}

uint64_t kin_experts_largest(const kin_expert_layer *layers, int n_layer) {
    uint64_t most = 0;
    for (int il = 0; il < n_layer; il++) most = expert_room(&layers[il]) > most ? expert_room(&layers[il]) : most;
    return most;
}

static uint64_t offset_of(const kin_expert_part *p, int expert) {
    return p->offset + (uint64_t)expert * p->stride;
}

static uint8_t *slot_memory(const kin_experts *e, int32_t i_slot) {
    return e->memory + (uint64_t)i_slot * e->slot_bytes;
}

// ---- finding

// Notes that a thread waits. The thread that reads the last expert of the step adds the time.
static void note_wait(kin_experts *e) {
    unsigned long long none = 0;
    if (atomic_load(&e->wait_begin) == 0) atomic_compare_exchange_strong(&e->wait_begin, &none, kin_clock_now());
}

static void await_read(slot *s) {
    while (atomic_load(&s->state) == READING) kin_futex_wait(&s->state, READING);
}

static void wait_here(kin_experts *e, slot *s) {
    if (atomic_load_explicit(&s->state, memory_order_acquire) != READING) return;
    note_wait(e);
    await_read(s);
}

// implements kin_expert_source.find
static const uint8_t *find(void *user, int il, int expert, int matrix, bool waits) {
    kin_experts *e = user;
    const layer *l = &e->layers[il];
    if (l->in_file.n_parts == 0) return NULL;
    const int i_slot = atomic_load(&e->places[il * e->n_expert + expert]);
    // A late thread computes a chunk of a step that is over, and its result is dropped: any memory will do, but not the weight's
    // mapping, which would bring its pages in.
    if (i_slot == NO_SLOT) return e->memory;
    if (waits) wait_here(e, &e->slots[i_slot]);
    const int state = atomic_load(&e->slots[i_slot].state);
    // Others may fail: those that a step which ended early has chosen. In the slot that a late thread found there may be another.
    const bool is_there = atomic_load(&e->places[il * e->n_expert + expert]) == i_slot;
    if (waits && state > 0 && is_there) atomic_store(&e->failed, state);
    const int k = l->in_file.matrices[matrix].i_part;
    return slot_memory(e, i_slot) + l->part_at[k] + offset_of(&l->in_file.parts[k], expert) % KIN_STREAM_ALIGN +
           l->in_file.matrices[matrix].at;
}

// ---- reading

// One read fewer that the last step waits for.
static void count_down(kin_experts *e) {
    if (atomic_fetch_sub(&e->n_reading, 1) != 1) return;
    const unsigned long long begin = atomic_exchange(&e->wait_begin, 0);
    if (begin) atomic_fetch_add(&e->wait_ns, kin_clock_now() - begin);
}

static void end_read(kin_stream_ticket *t) {
    slot *s = (slot *)((char *)t - offsetof(slot, ticket));
    if (atomic_exchange(&s->purpose, FOR_NOBODY) == FOR_STEP) count_down(t->user);
    atomic_store(&s->state, t->failed ? t->failed : HERE);
    kin_futex_wake(&s->state);
}

// A free slot may still be being read into: for a step that ended early, or ahead.
static void end_old_read(kin_experts *e, slot *s) {
    if (atomic_load(&s->state) == READING) kin_stream_hurry(e->stream, &s->ticket);
    await_read(s);
}

// Prepares the read of an expert into its slot. Call this and the following functions with the mutex held.
static kin_stream_ticket *begin_read(kin_experts *e, int32_t number, int32_t i_slot, int purpose) {
    const int il = number / e->n_expert, expert = number % e->n_expert;
    const layer *l = &e->layers[il];
    slot *s = &e->slots[i_slot];
    uint8_t *to = slot_memory(e, i_slot);
    end_old_read(e, s);
    if (s->touched > l->bytes) kin_pages_drop(to + l->bytes, s->touched - l->bytes);
    s->touched = l->bytes;
    s->ticket = (kin_stream_ticket){.n_ranges = l->in_file.n_parts, .done = end_read, .user = e};
    for (int k = 0; k < l->in_file.n_parts; k++) {
        const kin_expert_part *p = &l->in_file.parts[k];
        s->ticket.ranges[k] = (kin_stream_range){p->i_file, offset_of(p, expert), p->bytes, to + l->part_at[k]};
        e->read_bytes += p->bytes;
    }
    s->is_guessed = purpose == GUESSED;
    if (purpose == FOR_STEP) atomic_fetch_add(&e->n_reading, 1);
    atomic_store(&s->purpose, purpose);
    atomic_store(&s->state, READING);
    atomic_store(&e->places[number], i_slot);
    return &s->ticket;
}

static void free_slots(kin_experts *e, const kin_expert_changes *changes) {
    for (size_t i = 0; i < changes->n_evicted; i++)
        e->free_[e->n_free++] = atomic_exchange(&e->places[changes->evicted[i]], NO_SLOT);
}

// Prepares reads into the slots of those that leave and into free ones. Returns the number of e->tickets, of which there were n.
static size_t begin_reads(kin_experts *e, const kin_expert_changes *changes, int purpose, size_t n) {
    free_slots(e, changes);
    for (size_t i = 0; i < changes->n_missing; i++)
        e->tickets[n++] = begin_read(e, changes->missing[i], e->free_[--e->n_free], purpose);
    return n;
}

// Gives the memory of free slots back. Those that have any are the last ones.
static void drop_free_slots(kin_experts *e) {
    for (size_t i = e->n_free; i-- > 0 && e->slots[e->free_[i]].touched > 0;) {
        slot *s = &e->slots[e->free_[i]];
        end_old_read(e, s); // it would take the memory again
        kin_pages_drop(slot_memory(e, e->free_[i]), s->touched);
        s->touched = 0;
    }
}

// Reads that failed are tried again.
static size_t read_again(kin_experts *e, int il, const int32_t *order, int n) {
    size_t n_tickets = 0;
    for (int i = 0; i < n; i++) {
        const int32_t number = il * e->n_expert + order[i], i_slot = atomic_load(&e->places[number]);
        if (i_slot == NO_SLOT) continue;
        if (atomic_load(&e->slots[i_slot].purpose) == FOR_NOBODY)
            await_read(&e->slots[i_slot]); // a read ahead that is just ending
        if (atomic_load(&e->slots[i_slot].state) > 0) e->tickets[n_tickets++] = begin_read(e, number, i_slot, FOR_STEP);
    }
    return n_tickets;
}

// The step waits for those of its experts that are being read ahead, the first of them before the others.
static void adopt_reads(kin_experts *e, int il, const int32_t *order, int n) {
    for (int i = n; i-- > 0;) {
        const int i_slot = atomic_load(&e->places[il * e->n_expert + order[i]]);
        if (i_slot == NO_SLOT) continue;
        int purpose = atomic_load(&e->slots[i_slot].purpose);
        atomic_fetch_add(&e->n_reading, 1);
        if ((purpose != AHEAD && purpose != GUESSED) ||
            !atomic_compare_exchange_strong(&e->slots[i_slot].purpose, &purpose, FOR_STEP))
            atomic_fetch_sub(&e->n_reading, 1);
        else
            kin_stream_hurry(e->stream, &e->slots[i_slot].ticket);
    }
}

// Moves the experts that are not there yet behind the others, in the order of their reads. Returns how many there are of these.
static int put_last(const kin_experts *e, int il, int32_t *order, int n) {
    int n_here = 0, n_absent = 0;
    int32_t *absent = e->uses; // not used any more
    for (int i = 0; i < n; i++) {
        const int i_slot = atomic_load(&e->places[il * e->n_expert + order[i]]);
        if (i_slot == NO_SLOT || atomic_load(&e->slots[i_slot].state) != HERE)
            absent[n_absent++] = order[i];
        else
            order[n_here++] = order[i];
    }
    memcpy(order + n_here, absent, (size_t)n_absent * sizeof *order);
    return n_absent;
}

// A guess that was wrong is not read unless that has begun.
static void drop_guess(kin_experts *e, int32_t number, int32_t i_slot) {
    if (atomic_load(&e->slots[i_slot].purpose) != GUESSED || !kin_stream_cancel(e->stream, &e->slots[i_slot].ticket)) return;
    const layer *l = &e->layers[number / e->n_expert];
    for (int k = 0; k < l->in_file.n_parts; k++) e->read_bytes -= l->in_file.parts[k].bytes;
    e->n_guessed--;
    kin_expert_cache_remove(e->cache, number);
    atomic_store(&e->places[number], NO_SLOT);
    atomic_store(&e->slots[i_slot].purpose, FOR_NOBODY);
    atomic_store(&e->slots[i_slot].state, ECANCELED); // for threads that are late
    kin_futex_wake(&e->slots[i_slot].state);
    e->free_[e->n_free++] = i_slot;
}

// The layer's step has come: its guesses were right or wrong.
static void settle_guesses(kin_experts *e, int il) {
    kin_expert_guess_settle(e->guess, il, e->uses);
    for (int i = 0; i < e->n_expert; i++) {
        const int32_t number = il * e->n_expert + i, i_slot = atomic_load(&e->places[number]);
        if (i_slot == NO_SLOT || !e->slots[i_slot].is_guessed) continue;
        const bool is_late = atomic_load(&e->slots[i_slot].state) == READING;
        e->slots[i_slot].is_guessed = false;
        if (e->uses[i] == 0)
            drop_guess(e, number, i_slot);
        else
            e->n_foreseen++, e->n_late += is_late;
    }
}

// Reads what the next group of a step needs, and after that, as far as there is room, what later ones need: order // [n], of
// which n_group are the group.
static void read_group(kin_experts *e, int il, int32_t *order, int n_group, int n) {
    atomic_store(&e->n_reading, 1);
    atomic_store(&e->wait_begin, 0); // of a read that had just ended
    const kin_expert_changes *changes = kin_expert_cache_need(e->cache, order, n_group);
    adopt_reads(e, il, order, n_group);
    const size_t n_now = begin_reads(e, changes, FOR_STEP, read_again(e, il, order, n_group));
    changes = kin_expert_cache_expect(e->cache, il, order + n_group, n - n_group);
    const size_t n_all = begin_reads(e, changes, AHEAD, n_now);
    drop_free_slots(e); // a layer's experts may be larger than another's
    put_last(e, il, order, n_group);
    if (n_now > 0) kin_stream_read(e->stream, e->tickets, n_now);
    if (n_all > n_now) kin_stream_read_idly(e->stream, e->tickets + n_now, n_all - n_now);
    count_down(e);
}

// Returns how many of a layer's experts, of which a step needs n, are computed together: with half of the room, so that as many
// are read meanwhile.
static int n_at_once(const kin_experts *e, int il, int n) {
    const uint64_t room = e->budget / e->layers[il].bytes;
    return (uint64_t)n <= room ? n : room < 2 ? 1 : (int)(room / 2);
}

// implements kin_expert_source.choose
static int choose(void *user, int il, int n_tokens, const int32_t *begin, int32_t *order, int n, bool in_groups) {
    kin_experts *e = user;
    if (e->layers[il].in_file.n_parts == 0) return n;
    pthread_mutex_lock(&e->mutex);
    for (int i = 0; i < e->n_expert; i++) e->uses[i] = begin[i + 1] - begin[i];
    settle_guesses(e, il);
    kin_expert_cache_count(e->cache, il, e->uses, n_tokens);
    const int n_absent = put_last(e, il, order, n), n_group = in_groups ? n_at_once(e, il, n) : n;
    e->n_hits += (uint64_t)(n - n_absent);
    e->n_misses += (uint64_t)n_absent;
    e->n_at_once = n_group;
    read_group(e, il, order, n_group, n);
    const int next = il + 1;
    const bool can_guess = n_tokens <= KIN_GUESS_TOKENS && next < e->n_layer && e->layers[next].in_file.n_parts > 0;
    atomic_store(&e->il_due, can_guess && kin_expert_guess_is_due(e->guess, next) ? next : -1);
    pthread_mutex_unlock(&e->mutex);
    return n_group;
}

// implements kin_expert_source.choose_next
static int choose_next(void *user, int il, int32_t *order, int n) {
    kin_experts *e = user;
    pthread_mutex_lock(&e->mutex);
    const int n_group = n < e->n_at_once ? n : e->n_at_once;
    read_group(e, il, order, n_group, n);
    pthread_mutex_unlock(&e->mutex);
    return n_group;
}

// ---- look-ahead

// implements kin_expert_source.is_due
static bool is_due(void *user, int il) {
    return atomic_load(&((kin_experts *)user)->il_due) == il;
}

// Collects the guessed experts without repetition, by rank, and notes those that are not in memory. Returns how many of them are
// worth a read; they come first, in e->uses.
static int collect_guesses(kin_experts *e, int il, const int32_t *likely, int n_tokens, int stride) {
    const int n_worthy = kin_expert_guess_n_worthy(e->guess, il), n_used = e->n_used;
    int n = 0, n_noted = 0;
    for (int rank = 0; rank < n_used; rank++) {
        for (int i = 0; i < n_tokens; i++) {
            const int32_t expert = likely[i * stride + rank];
            bool is_new = true;
            for (int k = 0; k < n_noted; k++) is_new = is_new && e->uses[k] != expert;
            if (!is_new || n_noted == e->n_expert) continue;
            e->uses[n_noted++] = expert;
            if (rank < n_worthy) n = n_noted;
            if (!kin_expert_cache_has(e->cache, il * e->n_expert + expert)) kin_expert_guess_note(e->guess, il, expert, rank);
        }
    }
    return n;
}

// implements kin_expert_source.expect
static void expect(void *user, int il, const int32_t *likely, int n_tokens, int stride) {
    kin_experts *e = user;
    pthread_mutex_lock(&e->mutex);
    const int n = collect_guesses(e, il, likely, n_tokens, stride);
    const size_t n_tickets = begin_reads(e, kin_expert_cache_expect(e->cache, il, e->uses, n), GUESSED, 0);
    drop_free_slots(e);
    e->n_guessed += n_tickets;
    if (n_tickets > 0) kin_stream_read_idly(e->stream, e->tickets, n_tickets);
    pthread_mutex_unlock(&e->mutex);
}

// ---- filling

// Begins to read the next experts. Returns how many, with their slots.
static size_t fill_slots(kin_experts *e, int32_t slots[FILL_AT_ONCE]) {
    kin_stream_ticket *tickets[FILL_AT_ONCE];
    const size_t n_most = e->n_expert < FILL_AT_ONCE ? (size_t)e->n_expert : FILL_AT_ONCE;
    pthread_mutex_lock(&e->mutex);
    const kin_expert_changes *changes = kin_expert_cache_fill(e->cache, n_most);
    const size_t n = changes->n_missing;
    for (size_t i = 0; i < n; i++) {
        slots[i] = e->free_[--e->n_free];
        tickets[i] = begin_read(e, changes->missing[i], slots[i], AHEAD);
    }
    if (n > 0) kin_stream_read_idly(e->stream, tickets, n);
    e->n_filled += n;
    pthread_mutex_unlock(&e->mutex);
    return n;
}

static void *run_filler(void *user) {
    kin_experts *e = user;
    int32_t slots[FILL_AT_ONCE];
    size_t n = 1;
    while (n > 0 && !atomic_load(&e->ends_filling)) {
        n = fill_slots(e, slots);
        for (size_t i = 0; i < n; i++) await_read(&e->slots[slots[i]]);
    }
    return NULL;
}

void kin_experts_start_filling(kin_experts *e) {
    kin_assert(!e->is_filling);
    e->is_filling = pthread_create(&e->filler, NULL, run_filler, e) == 0;
}

void kin_experts_stop_filling(kin_experts *e) {
    if (!e || !e->is_filling) return;
    atomic_store(&e->ends_filling, true);
    pthread_join(e->filler, NULL);
    e->is_filling = false;
}

// ---- opening

static int open_cache(kin_experts *e, uint64_t budget, kin_err *err) {
    kin_assert(e->n_layer > 0);
    uint64_t *bytes = calloc((size_t)e->n_layer, sizeof *bytes);
    if (!bytes) return kin_err_set(err, "out of memory");
    for (int il = 0; il < e->n_layer; il++) bytes[il] = e->layers[il].bytes;
    const kin_expert_cache_options o = {.n_layer = e->n_layer, .n_expert = e->n_expert, .bytes = bytes, .budget = budget};
    int rc = kin_expert_cache_open(&e->cache, &o, err);
    free(bytes);
    return rc;
}

static int alloc_slots(kin_experts *e, kin_err *err) {
    const size_t n_all = (size_t)e->n_layer * (size_t)e->n_expert, n_expert = (size_t)e->n_expert;
    e->places = malloc(n_all * sizeof *e->places);
    e->slots = calloc(e->n_slots, sizeof *e->slots);
    e->free_ = malloc(e->n_slots * sizeof *e->free_);
    e->uses = malloc(n_expert * sizeof *e->uses);
    e->tickets = malloc(n_expert * sizeof *e->tickets);
    if (!e->places || !e->slots || !e->free_ || !e->uses || !e->tickets) return kin_err_set(err, "out of memory");
    for (size_t i = 0; i < n_all; i++) atomic_init(&e->places[i], NO_SLOT);
    for (size_t i = 0; i < e->n_slots; i++) e->free_[e->n_free++] = (int32_t)(e->n_slots - 1 - i);
    e->memory =
        mmap(NULL, e->n_slots * e->slot_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (e->memory == MAP_FAILED) {
        e->memory = NULL;
        return kin_err_set(err, "out of address space for experts");
    }
    kin_pages_refuse_huge(e->memory, e->n_slots * e->slot_bytes); // they would take memory between slots, which is not counted
    return 0;
}

static void describe_layers(kin_experts *e, const kin_expert_layer *layers) {
    for (int il = 0; il < e->n_layer; il++) {
        layer *l = &e->layers[il];
        l->in_file = layers[il];
        l->bytes = expert_room(&l->in_file);
        uint64_t at = 0;
        for (int k = 0; k < l->in_file.n_parts; at += part_room(&l->in_file.parts[k++])) l->part_at[k] = at;
        if (l->in_file.n_parts > 0) e->n_slots += (size_t)e->n_expert;
    }
    e->slot_bytes = kin_experts_largest(layers, e->n_layer);
}

int kin_experts_open(kin_experts **out, kin_stream *stream, const kin_expert_layer *layers, int n_layer, int n_expert, int n_used,
                     uint64_t budget, kin_err *err) {
    kin_experts *e = *out = calloc(1, sizeof *e);
    if (!e) return kin_err_set(err, "out of memory");
    pthread_mutex_init(&e->mutex, NULL);
    e->stream = stream;
    e->source = (kin_expert_source){
        .choose = choose, .choose_next = choose_next, .find = find, .is_due = is_due, .expect = expect, .user = e};
    atomic_init(&e->il_due, -1);
    e->n_layer = n_layer;
    e->n_expert = n_expert;
    e->n_used = n_used;
    e->budget = budget;
    e->layers = calloc((size_t)n_layer, sizeof *e->layers);
    int rc = e->layers ? 0 : kin_err_set(err, "out of memory");
    if (rc == 0) describe_layers(e, layers);
    if (rc == 0 && (open_cache(e, budget, err) != 0 || alloc_slots(e, err) != 0)) rc = KIN_FAIL;
    if (rc == 0) rc = kin_expert_guess_open(&e->guess, n_layer, n_used, err);
    if (rc == 0) return 0;
    kin_experts_close(e);
    *out = NULL;
    return KIN_FAIL;
}

void kin_experts_close(kin_experts *e) {
    if (!e) return;
    if (e->memory) munmap(e->memory, e->n_slots * e->slot_bytes);
    kin_expert_cache_close(e->cache);
    kin_expert_guess_close(e->guess);
    pthread_mutex_destroy(&e->mutex);
    free(e->layers);
    free(e->places);
    free(e->slots);
    free(e->free_);
    free(e->uses);
    free(e->tickets);
    free(e);
}

const kin_expert_source *kin_experts_source(const kin_experts *e) {
    return &e->source;
}

// ---- changes from outside

void kin_experts_set_counts(kin_experts *e, const float *counts) {
    pthread_mutex_lock(&e->mutex);
    kin_expert_cache_set_counts(e->cache, counts);
    pthread_mutex_unlock(&e->mutex);
}

void kin_experts_get_counts(kin_experts *e, float *counts) {
    pthread_mutex_lock(&e->mutex);
    kin_expert_cache_get_counts(e->cache, counts);
    pthread_mutex_unlock(&e->mutex);
}

void kin_experts_set_budget(kin_experts *e, uint64_t budget) {
    pthread_mutex_lock(&e->mutex);
    e->budget = budget;
    const kin_expert_changes *changes = kin_expert_cache_set_budget(e->cache, budget);
    free_slots(e, changes);
    drop_free_slots(e);
    pthread_mutex_unlock(&e->mutex);
}

void kin_experts_forget(kin_experts *e, int il) {
    pthread_mutex_lock(&e->mutex);
    const kin_expert_changes *changes = kin_expert_cache_forget(e->cache, il);
    free_slots(e, changes);
    drop_free_slots(e);
    pthread_mutex_unlock(&e->mutex);
}

int kin_experts_check(kin_experts *e, kin_err *err) {
    const int failed = atomic_exchange(&e->failed, 0);
    return failed ? kin_err_set(err, "reading experts: %s", strerror(failed)) : 0;
}

kin_experts_stats kin_experts_get_stats(kin_experts *e) {
    pthread_mutex_lock(&e->mutex);
    kin_experts_stats stats = {.budget = e->budget,
                               .held_bytes = kin_expert_cache_held(e->cache),
                               .n_hits = e->n_hits,
                               .n_misses = e->n_misses,
                               .n_filled = e->n_filled,
                               .n_guessed = e->n_guessed,
                               .n_foreseen = e->n_foreseen,
                               .n_late = e->n_late,
                               .read_bytes = e->read_bytes,
                               .wait_ns = atomic_load(&e->wait_ns)};
    pthread_mutex_unlock(&e->mutex);
    return stats;
}
