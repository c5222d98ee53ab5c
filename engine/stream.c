#include "engine/stream.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "engine/stream_queue.h"
#include "pure/plan/residency.h"
#include "sys/direct.h"
#include "sys/io.h"
#include "sys/pages.h"
#include "sys/ring.h"

enum {
    N_IO_THREADS = 4,
    READS_IN_FLIGHT = 8,   // the same if experts are read
    CHUNK_BYTES = 2 << 20, // measured: 1 to 4 MB with 4 in flight reach the disk's limit, smaller ones do not
    LEAST_READ_BYTES = 512 << 10,
    MOST_READ_BYTES = 4 << 20,
    IDLE_IN_FLIGHT = 4,          // a read that a thread waits for waits for these
    MAX_CHUNKS_PER_EXTENT = 256, // so that there is room for the chunks of any block
    RING_SLACK_PERCENT = 25,     // beyond the largest group: room to read ahead while it is computed
    FAULTS_WORTH_A_CHECK = 4,    // per pass; fewer come from rows of the embedding
};

typedef struct block {
    kin_stream_block spec;
    uint64_t slot_bytes;                          // in the ring
    uint64_t slot_offset[KIN_STREAM_MAX_EXTENTS]; // of each extent's first (aligned) byte
    bool resident;                                // selected to be in memory
    bool present;                                 // its pages were fetched after it became resident
    bool maybe_evicted;                           // was present, but the OS may have reclaimed pages
    bool leaving;                                 // ceases to be resident; used by set_budget only
} block;

// One block in one pass, from when it is scheduled until it is released.
typedef struct step {
    size_t block;
    bool streamed;
    uint64_t ring_at, ring_bytes; // streamed: its place in the ring
    kin_stream_ticket ticket;
} step;

typedef kin_stream_chunk chunk;

struct kin_stream {
    block *blocks;
    size_t n_blocks, n_layer_blocks;
    uint64_t *bytes; // [n_blocks]
    uint64_t total_bytes;
    uint32_t *order; // [n_blocks] see residency.h
    bool *wanted;    // [n_blocks] scratch for set_budget
    bool has_window; // the resident set is fixed, whatever the budget
    kin_stream_mode mode;
    uint64_t n_faults;              // page faults of this process at the last check
    int *fds, *direct_fds, n_files; // [n_files], -1: none; direct_fds are owned unless equal to fds

    uint8_t *ring; // mapped twice in a row, so that data that wraps around its end is contiguous
    uint64_t ring_bytes;
    uint64_t ring_begin, ring_used; // used bytes start at ring_begin, cyclically
    bool ring_touched;              // it occupies memory

    pthread_mutex_t mutex;
    pthread_mutex_t budget_mutex; // serialises set_budget; taken before `mutex`
    pthread_cond_t work, done;    // signals chunks for the I/O threads; a step that is ready
    pthread_t threads[READS_IN_FLIGHT];
    int n_threads;
    bool closing;

    // Steps are numbered from 0 on; [first, acquired) are in use, [acquired, next) are scheduled.
    step *steps; // [n_steps] cyclic
    size_t n_steps;
    size_t first, acquired, next;
    size_t pass_block; // the block that the next scheduled step is for
    bool pass_known;   // it belongs to the pass that has begun
    bool with_output;  // of the pass that has begun

    kin_stream_queue reads;        // what a thread waits for, and what is read ahead of computing
    kin_stream_queue idle;         // what is read when next to nothing of that is left
    int n_reading, n_idle_reading; // chunks of each that are being read
    kin_busy reading, stalling;
    kin_stream_stats stats;
};

static uint64_t align_down(uint64_t n) {
    return n / KIN_STREAM_ALIGN * KIN_STREAM_ALIGN;
}

static uint64_t align_up(uint64_t n) {
    return align_down(n + KIN_STREAM_ALIGN - 1);
}

// ---- sizes

static uint64_t extent_slot_bytes(const kin_extent *e) {
    return align_up(e->offset + e->bytes) - align_down(e->offset);
}

static uint64_t block_slot_bytes(const kin_stream_block *b) {
    uint64_t sum = 0;
    for (int i = 0; i < b->n_extents; i++) sum += extent_slot_bytes(&b->extents[i]);
    return sum;
}

static uint64_t streamed_bytes(const kin_stream_block *b) {
    return b->stays ? 0 : block_slot_bytes(b);
}

static uint64_t whole_pages(uint64_t bytes) {
    uint64_t page = kin_page_bytes();
    return (bytes + page - 1) / page * page;
}

static uint64_t ring_size(const kin_stream_block *blocks, size_t n_blocks, unsigned slack_percent) {
    uint64_t group = 0, largest = 0;
    for (size_t i = 0; i < n_blocks; i++) {
        bool same = i > 0 && blocks[i].i_group == blocks[i - 1].i_group;
        group = (same ? group : 0) + block_slot_bytes(&blocks[i]);
        if (group > largest) largest = group;
    }
    return whole_pages(largest + largest / 100 * slack_percent);
}

// Returns the size of the largest `window` consecutive parts, without resident blocks; at least what any group needs.
static uint64_t window_size(const kin_stream_options *o) {
    uint64_t bytes = 0, largest = ring_size(o->blocks, o->n_blocks, 0);
    for (size_t begin = 0, end = 0; end < o->n_blocks; end++) {
        for (; o->blocks[end].i_part - o->blocks[begin].i_part >= o->window; begin++) bytes -= streamed_bytes(&o->blocks[begin]);
        bytes += streamed_bytes(&o->blocks[end]);
        if (bytes > largest) largest = bytes;
    }
    return whole_pages(largest);
}

static uint64_t all_bytes(const kin_stream_options *o) {
    uint64_t sum = 0;
    for (size_t i = 0; i < o->n_blocks; i++) {
        for (int k = 0; k < o->blocks[i].n_extents; k++) sum += o->blocks[i].extents[k].bytes;
    }
    return sum;
}

uint64_t kin_stream_min_budget(const kin_stream_block *blocks, size_t n_blocks) {
    return ring_size(blocks, n_blocks, RING_SLACK_PERCENT);
}

// ---- the ring. Call all functions with the mutex held.

// Allocates `bytes` after the used part. False if there is no room now.
static bool ring_allocate(kin_stream *s, uint64_t bytes, step *st) {
    if (s->ring_used + bytes > s->ring_bytes) return false;
    st->ring_at = (s->ring_begin + s->ring_used) % s->ring_bytes;
    st->ring_bytes = bytes;
    s->ring_touched = true;
    s->ring_used += bytes;
    return true;
}

static void ring_give_oldest(kin_stream *s, const step *st) {
    s->ring_begin = (s->ring_begin + st->ring_bytes) % s->ring_bytes;
    s->ring_used -= st->ring_bytes;
}

// Nothing is streamed any more: returns the ring's memory to the OS.
static void ring_rest(kin_stream *s) {
    if (s->ring_touched) kin_ring_forget(s->ring, s->ring_bytes);
    s->ring_touched = false;
}

// ---- scheduling. Call all functions with the mutex held.

static step *step_at(kin_stream *s, size_t number) {
    return &s->steps[number % s->n_steps];
}

static size_t n_chunks_free(const kin_stream *s) {
    return kin_stream_queue_n_free(&s->reads);
}

static void push_chunk(kin_stream *s, chunk c) {
    kin_stream_queue_push_last(&s->reads, &c);
    c.ticket->n_open++;
    pthread_cond_signal(&s->work);
}

// Inserts a chunk before everything that is read ahead, because a thread waits for it.
static void push_urgent(kin_stream *s, chunk c) {
    kin_stream_queue_push_first(&s->reads, &c);
    c.ticket->n_open++;
    pthread_cond_signal(&s->work);
}

// Returns the usual request size, or a larger one for a huge extent, to limit the number of chunks.
static uint64_t chunk_bytes(const kin_extent *e) {
    uint64_t least = align_up(extent_slot_bytes(e) / MAX_CHUNKS_PER_EXTENT);
    return least > CHUNK_BYTES ? least : CHUNK_BYTES;
}

static size_t chunks_of(const block *b) {
    size_t n = 0;
    for (int i = 0; i < b->spec.n_extents; i++) {
        const kin_extent *e = &b->spec.extents[i];
        n += (size_t)(extent_slot_bytes(e) / chunk_bytes(e)) + 1;
    }
    return n;
}

static void push_reads(kin_stream *s, step *st, const block *b) {
    for (int i = 0; i < b->spec.n_extents; i++) {
        const kin_extent *e = &b->spec.extents[i];
        uint64_t begin = align_down(e->offset), end = align_up(e->offset + e->bytes);
        uint8_t *to = s->ring + st->ring_at + b->slot_offset[i];
        uint64_t step_bytes = chunk_bytes(e);
        for (uint64_t at = begin; at < end; at += step_bytes) {
            uint64_t n = end - at < step_bytes ? end - at : step_bytes;
            uint64_t left = e->offset + e->bytes - at;
            push_chunk(s, (chunk){.ticket = &st->ticket,
                                  .i_file = e->i_file,
                                  .offset = at,
                                  .bytes = n,
                                  .n_needed = left < n ? left : n,
                                  .to = to + (at - begin)});
        }
    }
}

// Resident pages are read through the page cache in the background, so that the first pass is not slower than the disk.
static void push_fetches(kin_stream *s, step *st, const block *b) {
    for (int i = 0; i < b->spec.n_extents; i++) {
        const kin_extent *e = &b->spec.extents[i];
        uint64_t step_bytes = chunk_bytes(e);
        for (uint64_t at = 0; at < e->bytes; at += step_bytes) {
            uint64_t n = e->bytes - at < step_bytes ? e->bytes - at : step_bytes;
            push_chunk(s, (chunk){.ticket = &st->ticket,
                                  .i_file = e->i_file,
                                  .offset = e->offset + at,
                                  .bytes = n,
                                  .map = e->map + at,
                                  .block = b,
                                  .maybe_evicted = b->maybe_evicted});
        }
    }
}

// The next pass is not known yet, but it always begins with the layers.
static bool next_block_known(const kin_stream *s) {
    return s->pass_block < s->n_layer_blocks || s->pass_known;
}

static void next_block(kin_stream *s) {
    size_t end = s->pass_known && s->with_output ? s->n_blocks : s->n_layer_blocks;
    s->pass_block++;
    if (s->pass_known && s->pass_block >= end) {
        s->pass_block = 0;
        s->pass_known = false;
    }
}

// Follows the paper: a window is announced as a whole, when the one before it has been computed.
static bool may_announce(kin_stream *s) {
    if (s->next == s->acquired) return true;
    const step *oldest = step_at(s, s->acquired);
    return s->pass_block > oldest->block && s->blocks[s->pass_block].spec.i_window == s->blocks[oldest->block].spec.i_window;
}

// Schedules one more step; returns false if there is no room for it now.
static bool schedule_one(kin_stream *s) {
    if (!next_block_known(s) || s->next - s->first == s->n_steps) return false;
    if (s->mode == KIN_STREAM_WILLNEED && !may_announce(s)) return false;
    block *b = &s->blocks[s->pass_block];
    step *st = step_at(s, s->next);
    *st = (step){.block = s->pass_block, .streamed = !b->resident};
    if (n_chunks_free(s) < chunks_of(b)) return false;
    if (st->streamed) {
        if (!ring_allocate(s, b->slot_bytes, st)) return false;
        push_reads(s, st, b);
    } else if (!b->present && s->mode != KIN_STREAM_MMAP) {
        push_fetches(s, st, b);
        b->present = s->mode == KIN_STREAM_RESIDENT; // in other modes the OS decides
    }
    s->next++;
    next_block(s);
    return true;
}

static void schedule(kin_stream *s) {
    while (schedule_one(s)) {
    }
}

// Pages of resident blocks may be gone: each block is checked again when its turn comes. Call with the mutex held.
static void doubt_pages(kin_stream *s) {
    for (size_t i = 0; i < s->n_blocks; i++) {
        block *b = &s->blocks[i];
        if (b->present) b->maybe_evicted = true, b->present = false;
    }
}

// The OS may reclaim pages of resident blocks, and computing would read them again page by page. Page faults reveal that: then
// all resident blocks are checked, those scheduled as present at once, the others when their turn comes.
static void check_faults(kin_stream *s, bool pass_begins) {
    uint64_t n = kin_pages_faults(), n_new = n - s->n_faults;
    if (s->mode != KIN_STREAM_RESIDENT || (n_new < FAULTS_WORTH_A_CHECK && !pass_begins)) return;
    s->n_faults = n;
    if (n_new < FAULTS_WORTH_A_CHECK) return;
    doubt_pages(s);
    for (size_t i = s->acquired; i < s->next; i++) {
        step *st = step_at(s, i);
        block *b = &s->blocks[st->block];
        if (st->streamed || b->present || st->ticket.n_open > 0 || n_chunks_free(s) < chunks_of(b)) continue;
        push_fetches(s, st, b);
        b->present = true;
    }
}

// ---- I/O threads

static int read_all(kin_stream *s, const chunk *c) {
    int direct = s->direct_fds[c->i_file], plain = s->fds[c->i_file];
    ssize_t got = kin_io_read_least(direct, c->to, c->bytes, c->n_needed, c->offset);
    if (got < 0 && errno == EINVAL && direct != plain) // the file system does not support O_DIRECT after all
        got = kin_io_read_least(plain, c->to, c->bytes, c->n_needed, c->offset);
    if (got < 0) return errno;
    return (uint64_t)got < c->n_needed ? EIO : 0; // the file was truncated
}

// Sets `skip` if there was nothing to do.
static int run_chunk(kin_stream *s, chunk *c) {
    if (c->maybe_evicted && kin_pages_held(c->map, c->bytes)) c->skip = true;
    if (c->skip) return 0;
    if (c->to) return read_all(s, c);
    if (s->mode == KIN_STREAM_RESIDENT) return kin_pages_fetch(c->map, c->bytes, c->block);
    kin_pages_announce(c->map, c->bytes);
    return 0;
}

static atomic_ullong last_read; // of all streams in this process

bool kin_stream_is_reading(void) {
    kin_time last = atomic_load(&last_read);
    return last && kin_clock_now() < last + UINT64_C(1000000000);
}

static void count_end(kin_stream *s, const chunk *c) {
    kin_time now = kin_clock_now();
    kin_busy_end(&s->reading, now);
    if (c->skip) return;
    atomic_store(&last_read, now);
    if (c->to)
        s->stats.read_bytes += c->bytes;
    else
        s->stats.fetch_bytes += c->bytes;
}

// Returns the queue whose next chunk is to be read now; NULL: none.
static kin_stream_queue *next_queue(kin_stream *s) {
    if (kin_stream_queue_n(&s->reads) > 0) return &s->reads;
    const bool is_idle = s->n_reading <= 1 && s->n_idle_reading < IDLE_IN_FLIGHT;
    return is_idle && kin_stream_queue_n(&s->idle) > 0 ? &s->idle : NULL;
}

static void *io_thread(void *arg) {
    kin_stream *s = arg;
    pthread_mutex_lock(&s->mutex);
    for (;;) {
        while (!next_queue(s) && !s->closing) pthread_cond_wait(&s->work, &s->mutex);
        if (s->closing) break;
        kin_stream_queue *of = next_queue(s);
        int *n_reading = of == &s->idle ? &s->n_idle_reading : &s->n_reading;
        chunk c = kin_stream_queue_pop(of);
        ++*n_reading;
        c.ticket->n_begun++;
        if (c.block && !((const block *)c.block)->resident) c.skip = true; // it is no longer resident
        kin_busy_begin(&s->reading, kin_clock_now());
        pthread_mutex_unlock(&s->mutex);
        int failed = run_chunk(s, &c);
        pthread_mutex_lock(&s->mutex);
        count_end(s, &c);
        --*n_reading;
        if (kin_stream_queue_n(&s->idle) > 0) pthread_cond_signal(&s->work);
        if (failed) c.ticket->failed = failed;
        if (--c.ticket->n_open > 0) continue;
        if (c.ticket->done) c.ticket->done(c.ticket);
        pthread_cond_broadcast(&s->done);
    }
    pthread_mutex_unlock(&s->mutex);
    return NULL;
}

// ---- opening

static int open_files(kin_stream *s, const kin_stream_options *o, kin_err *err) {
    s->fds = malloc((size_t)o->n_files * sizeof *s->fds);
    s->direct_fds = malloc((size_t)o->n_files * sizeof *s->direct_fds);
    if (!s->fds || !s->direct_fds) return kin_err_set(err, "out of memory");
    s->n_files = o->n_files;
    s->stats.direct = true;
    for (int i = 0; i < o->n_files; i++) {
        s->fds[i] = o->fds[i];
        s->direct_fds[i] = o->fds[i] < 0 ? -1 : kin_direct_open(o->fds[i]);
        if (o->fds[i] < 0 || s->direct_fds[i] >= 0) continue;
        s->direct_fds[i] = s->fds[i];
        s->stats.direct = false;
    }
    return 0;
}

static void close_files(kin_stream *s) {
    for (int i = 0; i < s->n_files; i++) {
        if (s->direct_fds[i] != s->fds[i]) close(s->direct_fds[i]);
    }
    free(s->fds);
    free(s->direct_fds);
}

static int alloc_state(kin_stream *s, const kin_stream_options *o, kin_err *err) {
    s->n_steps = 2 * o->n_blocks;
    s->blocks = calloc(o->n_blocks, sizeof *s->blocks);
    s->bytes = calloc(o->n_blocks, sizeof *s->bytes);
    s->order = calloc(o->n_blocks, sizeof *s->order);
    s->wanted = calloc(o->n_blocks, sizeof *s->wanted);
    s->steps = calloc(s->n_steps, sizeof *s->steps);
    if (!s->blocks || !s->bytes || !s->order || !s->wanted || !s->steps) return kin_err_set(err, "out of memory");
    for (size_t i = 0; i < o->n_blocks; i++) {
        block *b = &s->blocks[i];
        b->spec = o->blocks[i];
        for (int k = 0; k < b->spec.n_extents; k++) {
            b->slot_offset[k] = b->slot_bytes;
            b->slot_bytes += extent_slot_bytes(&b->spec.extents[k]);
            s->bytes[i] += b->spec.extents[k].bytes;
            s->total_bytes += b->spec.extents[k].bytes;
        }
    }
    kin_residency_order(s->bytes, s->n_blocks, o->keeps_output ? o->n_layer_blocks : s->n_blocks, s->order);
    return 0;
}

static int alloc_ring(kin_stream *s, kin_err *err) {
    if (s->ring_bytes == 0) return 0; // all blocks are always in memory
    s->ring = kin_ring_map(s->ring_bytes);
    return s->ring ? 0 : kin_err_set(err, "out of memory: %llu MiB to stream through", (unsigned long long)(s->ring_bytes >> 20));
}

// Call with the mutex held, or before the threads start.
static void choose_resident(kin_stream *s, uint64_t budget) {
    if (s->has_window) {
        s->stats.resident_bytes = 0;
        for (size_t i = 0; i < s->n_blocks; i++) {
            s->wanted[i] = s->blocks[i].spec.stays;
            s->stats.resident_bytes += s->wanted[i] ? s->bytes[i] : 0;
        }
        return;
    }
    uint64_t for_blocks = budget > s->ring_bytes ? budget - s->ring_bytes : 0;
    // If everything is resident, nothing goes through the ring, and it takes no memory.
    if (s->mode != KIN_STREAM_RESIDENT || budget >= s->total_bytes) for_blocks = UINT64_MAX;
    s->stats.resident_bytes = kin_residency_choose(s->bytes, s->n_blocks, s->order, for_blocks, s->wanted);
}

static bool streams(const kin_stream *s) {
    return s->mode == KIN_STREAM_RESIDENT && s->stats.resident_bytes < s->total_bytes;
}

// Adjacent extents, in the file and in the mapping: all resident, or none.
typedef struct range {
    const kin_extent *last;
    uint8_t *begin, *end;
    bool resident;
} range;

static bool continues(const range *r, const kin_extent *e, bool resident) {
    enum { MAX_GAP = 64 << 10 }; // blocks of the prepacked cache begin at multiples of this
    const kin_extent *last = r->last;
    return last && resident == r->resident && e->i_file == last->i_file && e->map >= r->end && e->map - r->end < MAX_GAP &&
           (uint64_t)(e->map - last->map) == e->offset - last->offset;
}

static uint64_t least(uint64_t a, uint64_t b) {
    return a < b ? a : b;
}

// A fault also reads the surroundings of its page, 128 KiB and more. If everything fits, that is the fastest way to get back
// reclaimed pages; if memory is short it pushes out pages that are needed: then faults read single pages, and huge pages are used
// only where they contain nothing else. moved: the resident set has changed, and huge pages at the edges may still hold parts
// that are not resident any more.
static void advise_range(const range *r, bool around, bool moved) {
    if (!r->last) return;
    uint64_t n = (uint64_t)(r->end - r->begin), before = least(n, -(uintptr_t)r->begin % KIN_HUGE_PAGE),
             behind = least(n - before, (uintptr_t)r->end % KIN_HUGE_PAGE);
    kin_pages_read_around(r->begin, n, around);
    if (!r->resident || ((uintptr_t)r->last->map - r->last->offset) % KIN_HUGE_PAGE != 0) return;
    kin_pages_advise_huge(r->begin + before, n - before - behind);
    if (moved) kin_pages_drop(r->begin, before), kin_pages_drop(r->end - behind, behind);
}

static void advise(const kin_stream *s, bool moved) {
    range r = {0};
    if (s->mode != KIN_STREAM_RESIDENT) return;
    for (size_t i = 0; i < s->n_blocks; i++) {
        const block *b = &s->blocks[i];
        for (int k = 0; k < b->spec.n_extents; k++) {
            const kin_extent *e = &b->spec.extents[k];
            if (!continues(&r, e, b->resident)) {
                advise_range(&r, !streams(s), moved);
                r = (range){.begin = (uint8_t *)e->map, .resident = b->resident};
            }
            r.last = e;
            r.end = (uint8_t *)e->map + e->bytes;
        }
    }
    advise_range(&r, !streams(s), moved);
}

// Restores the default of mappings: a fault also reads what is around its page.
static void end_advice(const kin_stream *s) {
    for (size_t i = 0; i < s->n_blocks; i++) {
        const kin_stream_block *b = &s->blocks[i].spec;
        for (int k = 0; k < b->n_extents; k++) kin_pages_read_around(b->extents[k].map, b->extents[k].bytes, true);
    }
}

int kin_stream_check_budget(const kin_stream_options *o, kin_err *err) {
    uint64_t ring_bytes = kin_stream_min_budget(o->blocks, o->n_blocks);
    if (o->mode != KIN_STREAM_RESIDENT || o->window || o->budget >= ring_bytes || o->budget >= all_bytes(o)) return 0;
    return kin_err_set(err, "%llu MiB are not enough for weights: streaming needs at least %llu MiB",
                       (unsigned long long)(o->budget + o->beside) >> 20,
                       (unsigned long long)(ring_bytes + o->beside + ((1 << 20) - 1)) >> 20);
}

int kin_stream_open(kin_stream **out, const kin_stream_options *o, kin_err *err) {
    *out = NULL;
    kin_stream *s = calloc(1, sizeof *s);
    if (!s) return kin_err_set(err, "out of memory");
    pthread_mutex_init(&s->mutex, NULL);
    pthread_mutex_init(&s->budget_mutex, NULL);
    pthread_cond_init(&s->work, NULL);
    pthread_cond_init(&s->done, NULL);
    s->n_blocks = o->n_blocks;
    kin_stream_queue_init(&s->reads);
    kin_stream_queue_init(&s->idle);
    s->n_layer_blocks = o->n_layer_blocks;
    s->mode = o->mode;
    s->has_window = o->window > 0;
    s->ring_bytes = s->has_window ? window_size(o) : kin_stream_min_budget(o->blocks, o->n_blocks);
    if (kin_stream_check_budget(o, err) != 0) goto fail;
    if (open_files(s, o, err) != 0 || alloc_state(s, o, err) != 0) goto fail;
    if (s->mode == KIN_STREAM_RESIDENT && alloc_ring(s, err) != 0) goto fail;
    choose_resident(s, o->budget);
    for (size_t i = 0; i < s->n_blocks; i++) s->blocks[i].resident = s->wanted[i];
    advise(s, false);
    s->n_faults = kin_pages_faults();

    const int n_threads = o->reads_experts ? READS_IN_FLIGHT : N_IO_THREADS;
    while (s->n_threads < n_threads && pthread_create(&s->threads[s->n_threads], NULL, io_thread, s) == 0) s->n_threads++;
    if (s->n_threads == 0) {
        kin_err_set(err, "cannot start the reader threads");
        goto fail;
    }
    *out = s;
    return 0;

fail:
    kin_stream_close(s);
    return KIN_FAIL;
}

void kin_stream_close(kin_stream *s) {
    if (!s) return;
    pthread_mutex_lock(&s->mutex);
    s->closing = true;
    pthread_cond_broadcast(&s->work);
    pthread_mutex_unlock(&s->mutex);
    for (int i = 0; i < s->n_threads; i++) pthread_join(s->threads[i], NULL);
    if (s->blocks) end_advice(s);
    close_files(s);
    kin_ring_unmap(s->ring, s->ring_bytes);
    pthread_mutex_destroy(&s->mutex);
    pthread_mutex_destroy(&s->budget_mutex);
    pthread_cond_destroy(&s->work);
    pthread_cond_destroy(&s->done);
    free(s->blocks);
    free(s->bytes);
    free(s->order);
    free(s->wanted);
    free(s->steps);
    free(s);
}

// ---- running

// Waits for a ticket's reads. Call with the mutex held.
static void wait_ready(kin_stream *s, const kin_stream_ticket *t) {
    if (t->n_open == 0) return;
    kin_busy_begin(&s->stalling, kin_clock_now());
    while (t->n_open > 0) pthread_cond_wait(&s->done, &s->mutex);
    kin_busy_end(&s->stalling, kin_clock_now());
}

// Call with the mutex held.
static void release_oldest(kin_stream *s) {
    step *st = step_at(s, s->first++);
    if (st->streamed) ring_give_oldest(s, st);
}

// Cancels the reads of this step that have not begun. Call with the mutex held.
static void cancel(kin_stream *s, const step *st) {
    for (size_t i = 0; i < kin_stream_queue_n(&s->reads); i++) {
        chunk *c = kin_stream_queue_at(&s->reads, i);
        if (c->ticket == &st->ticket) c->skip = true;
    }
    if (!st->streamed && st->ticket.n_open > 0) s->blocks[st->block].present = false;
}

// Drops scheduled steps, the oldest first, until `n` are left. Call with the mutex held.
static void drop_to(kin_stream *s, size_t n) {
    size_t end = s->next - n;
    for (size_t i = s->first; i < end; i++) cancel(s, step_at(s, i));
    while (s->first < end) {
        while (step_at(s, s->first)->ticket.n_open > 0) pthread_cond_wait(&s->done, &s->mutex);
        release_oldest(s);
    }
    s->acquired = s->first;
}

// Returns how many of the scheduled steps remain useful if a run begins at `block`: those from the first step for it on. Call
// with the mutex held.
static size_t still_useful(kin_stream *s, size_t block) {
    for (size_t i = s->acquired; i < s->next; i++) {
        if (step_at(s, i)->block == block) return s->next - i;
    }
    return 0;
}

// True if scheduling has already gone on to the next pass. Call with the mutex held.
static bool wrapped(kin_stream *s) {
    for (size_t i = s->first; i < s->next; i++) {
        size_t following = i + 1 < s->next ? step_at(s, i + 1)->block : s->pass_block;
        if (following <= step_at(s, i)->block) return true;
    }
    return false;
}

// Call with the mutex held.
static bool output_scheduled(kin_stream *s) {
    for (size_t i = s->first; i < s->next; i++) {
        if (step_at(s, i)->block >= s->n_layer_blocks) return true;
    }
    return s->n_layer_blocks == s->n_blocks;
}

// Call with the mutex held.
static bool all_present(const kin_stream *s) {
    for (size_t i = 0; i < s->n_blocks; i++) {
        if (!s->blocks[i].present && s->blocks[i].spec.n_extents > 0) return false;
    }
    return true;
}

// Makes the scheduled steps start with `block`, and sets what follows them. Call with the mutex held.
static void seek(kin_stream *s, size_t block, bool with_output) {
    drop_to(s, still_useful(s, block));
    if (wrapped(s) && with_output && !output_scheduled(s)) drop_to(s, 0);
    if (s->first == s->next) s->pass_block = block;
    if (wrapped(s)) return;
    s->pass_known = true;
    s->with_output = with_output;
    // If all layers are scheduled already, the output or the next pass follows.
    if (s->pass_block >= (with_output ? s->n_blocks : s->n_layer_blocks)) {
        s->pass_block = 0;
        s->pass_known = false;
    }
}

bool kin_stream_begin(kin_stream *s, size_t block, bool with_output) {
    pthread_mutex_lock(&s->mutex);
    kin_assert(block < s->n_blocks);
    if (block == 0) s->stats.n_passes++;
    check_faults(s, block == 0);
    bool idle = s->mode == KIN_STREAM_MMAP || (s->mode == KIN_STREAM_RESIDENT && all_present(s));
    if (idle) { // nothing to read ahead: the run uses the mappings
        drop_to(s, 0);
        s->pass_block = 0;
        s->pass_known = false;
        ring_rest(s);
    } else {
        seek(s, block, with_output);
        schedule(s);
    }
    pthread_mutex_unlock(&s->mutex);
    return !idle;
}

int kin_stream_acquire(kin_stream *s, size_t block_number, const uint8_t **ptrs, kin_err *err) {
    pthread_mutex_lock(&s->mutex);
    check_faults(s, false);
    schedule(s);
    kin_assert(s->acquired < s->next);
    step *st = step_at(s, s->acquired);
    kin_assert(st->block == block_number);
    wait_ready(s, &st->ticket);
    s->acquired++;
    const block *b = &s->blocks[st->block];
    for (int i = 0; i < b->spec.n_extents; i++) {
        const kin_extent *e = &b->spec.extents[i];
        ptrs[i] = st->streamed ? s->ring + st->ring_at + b->slot_offset[i] + e->offset % KIN_STREAM_ALIGN : e->map;
    }
    int failed = st->ticket.failed;
    pthread_mutex_unlock(&s->mutex);
    return failed ? kin_err_set(err, "reading weights: %s", strerror(failed)) : b->spec.n_extents;
}

void kin_stream_release(kin_stream *s, size_t n) {
    pthread_mutex_lock(&s->mutex);
    kin_assert(s->first + n <= s->acquired);
    while (n-- > 0) release_oldest(s);
    schedule(s);
    pthread_mutex_unlock(&s->mutex);
}

// ---- changing the resident set

// Releases a block's pages, and the huge pages of the file in which it begins and ends (the OS keeps huge pages that other
// mappings use). A thread that still reads the mapping would fetch them again: slow, but never wrong.
static void drop_pages(kin_stream *s, const block *b) {
    for (int i = 0; i < b->spec.n_extents; i++) {
        const kin_extent *e = &b->spec.extents[i];
        kin_pages_drop((uint8_t *)e->map, e->bytes);
#ifdef POSIX_FADV_DONTNEED
        uint64_t begin = e->offset / KIN_HUGE_PAGE * KIN_HUGE_PAGE;
        uint64_t end = (e->offset + e->bytes + KIN_HUGE_PAGE - 1) / KIN_HUGE_PAGE * KIN_HUGE_PAGE;
        posix_fadvise(s->fds[e->i_file], (off_t)begin, (off_t)(end - begin), POSIX_FADV_DONTNEED);
#endif
    }
}

uint64_t kin_stream_set_budget(kin_stream *s, uint64_t budget) {
    pthread_mutex_lock(&s->budget_mutex);
    pthread_mutex_lock(&s->mutex);
    choose_resident(s, budget);
    bool changes = false;
    for (size_t i = 0; i < s->n_blocks; i++) {
        block *b = &s->blocks[i];
        b->leaving = b->resident && !s->wanted[i];
        if (b->resident != s->wanted[i]) b->present = b->maybe_evicted = false, changes = true;
        b->resident = s->wanted[i];
    }
    uint64_t resident = s->stats.resident_bytes;
    if (changes) doubt_pages(s);
    pthread_mutex_unlock(&s->mutex);

    // Releasing gigabytes takes time, so the mutex is not held.
    if (changes) advise(s, true);
    for (size_t i = 0; i < s->n_blocks; i++) {
        if (s->blocks[i].leaving) drop_pages(s, &s->blocks[i]);
    }
    pthread_mutex_unlock(&s->budget_mutex);
    return resident;
}

bool kin_stream_has_output(kin_stream *s) {
    pthread_mutex_lock(&s->mutex);
    bool has = s->mode == KIN_STREAM_RESIDENT && s->n_layer_blocks < s->n_blocks;
    for (size_t i = s->n_layer_blocks; i < s->n_blocks; i++)
        has = has && (s->blocks[i].present || s->blocks[i].spec.n_extents == 0);
    pthread_mutex_unlock(&s->mutex);
    return has;
}

bool kin_stream_can_stream(const kin_stream *s) {
    return s->total_bytes > 0;
}

void kin_stream_fetch(kin_stream *s, const kin_extent *extents, size_t n) {
    kin_stream_ticket waiting = {0};
    pthread_mutex_lock(&s->mutex);
    for (size_t i = 0; i < n; i++) {
        while (n_chunks_free(s) == 0) pthread_cond_wait(&s->done, &s->mutex);
        push_urgent(s, (chunk){.ticket = &waiting, .bytes = extents[i].bytes, .map = extents[i].map});
    }
    wait_ready(s, &waiting);
    pthread_mutex_unlock(&s->mutex);
}

// Pushes a range's reads before all that are queued, so that the first is done first. Call with the mutex held.
static void push_range(kin_stream *s, kin_stream_ticket *t, const kin_stream_range *r, uint64_t piece, kin_stream_queue *to) {
    const uint64_t begin = align_down(r->offset), bytes = align_up(r->offset + r->bytes) - begin;
    for (uint64_t end = bytes; end > 0;) {
        const uint64_t at = (end - 1) / piece * piece, left = r->offset + r->bytes - begin - at;
        while (kin_stream_queue_n_free(to) == 0) pthread_cond_wait(&s->done, &s->mutex);
        const chunk c = {.ticket = t,
                         .i_file = r->i_file,
                         .offset = begin + at,
                         .bytes = end - at,
                         .n_needed = left < end - at ? left : end - at,
                         .to = r->to + at};
        kin_stream_queue_push_first(to, &c);
        t->n_open++;
        pthread_cond_signal(&s->work);
        end = at;
    }
}

// Call with the mutex held.
static void push_ticket(kin_stream *s, kin_stream_ticket *t, uint64_t piece, kin_stream_queue *to) {
    t->n_open = 1; // until all of its reads are there
    t->n_begun = t->failed = 0;
    for (int k = t->n_ranges; k-- > 0;) push_range(s, t, &t->ranges[k], piece, to);
    if (--t->n_open == 0 && t->done) t->done(t); // they were done while this thread waited for room
}

static uint64_t piece_of(kin_stream_ticket *const *tickets, size_t n) {
    uint64_t bytes = 0;
    for (size_t i = 0; i < n; i++)
        for (int k = 0; k < tickets[i]->n_ranges; k++) bytes += tickets[i]->ranges[k].bytes;
    const uint64_t piece = align_up(bytes / READS_IN_FLIGHT);
    return piece < LEAST_READ_BYTES ? LEAST_READ_BYTES : piece > MOST_READ_BYTES ? MOST_READ_BYTES : piece;
}

void kin_stream_read(kin_stream *s, kin_stream_ticket *const *tickets, size_t n) {
    const uint64_t piece = piece_of(tickets, n);
    pthread_mutex_lock(&s->mutex);
    for (size_t i = n; i-- > 0;) push_ticket(s, tickets[i], piece, &s->reads);
    pthread_mutex_unlock(&s->mutex);
}

void kin_stream_read_idly(kin_stream *s, kin_stream_ticket *const *tickets, size_t n) {
    const uint64_t piece = piece_of(tickets, n);
    pthread_mutex_lock(&s->mutex);
    for (size_t i = n; i-- > 0;) push_ticket(s, tickets[i], piece, &s->idle);
    pthread_mutex_unlock(&s->mutex);
}

bool kin_stream_cancel(kin_stream *s, kin_stream_ticket *t) {
    pthread_mutex_lock(&s->mutex);
    const bool has_begun = t->n_begun > 0;
    if (!has_begun) t->n_open -= kin_stream_queue_remove(&s->idle, t, NULL);
    pthread_mutex_unlock(&s->mutex);
    return !has_begun;
}

void kin_stream_hurry(kin_stream *s, const kin_stream_ticket *t) {
    pthread_mutex_lock(&s->mutex);
    if (kin_stream_queue_remove(&s->idle, t, &s->reads) > 0) pthread_cond_broadcast(&s->work);
    pthread_mutex_unlock(&s->mutex);
}

kin_stream_stats kin_stream_get_stats(kin_stream *s) {
    pthread_mutex_lock(&s->mutex);
    kin_stream_stats stats = s->stats;
    stats.busy_ns = kin_busy_ns(&s->reading, kin_clock_now());
    stats.wait_ns = kin_busy_ns(&s->stalling, kin_clock_now());
    stats.ring_bytes = s->ring ? s->ring_bytes : 0;
    stats.state_bytes = sizeof *s;
    pthread_mutex_unlock(&s->mutex);
    return stats;
}

size_t kin_stream_pop_intervals(kin_stream *s, kin_stream_record record, kin_interval *out, size_t n_max) {
    pthread_mutex_lock(&s->mutex);
    size_t n = kin_busy_pop(record == KIN_STREAM_READS ? &s->reading : &s->stalling, kin_clock_now(), out, n_max);
    pthread_mutex_unlock(&s->mutex);
    return n;
}
