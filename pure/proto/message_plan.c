// A device's description, its plan, and its progress.
#include <string.h>

#include "base/hash.h"
#include "pure/proto/message_impl.h"

//     DEVICE
//     byte  0  u16   n_threads (>= 1)
//           2  u64   memory
//          10  u64   memory_total
//          18  u64   gpu_memory
//          26  hash  model
//          58  str   cpu
//              str   os
//              str   gpu
//              endpoint

static void put_device(kin_writer *w, const kin_proto_device *m) {
    kin_writer_u16(w, m->n_threads);
    kin_writer_u64(w, m->memory);
    kin_writer_u64(w, m->memory_total);
    kin_writer_u64(w, m->gpu_memory);
    kin_proto_put_hash(w, &m->model);
    kin_writer_str(w, m->cpu, KIN_PROTO_MAX_STR);
    kin_writer_str(w, m->os, KIN_PROTO_MAX_STR);
    kin_writer_str(w, m->gpu, KIN_PROTO_MAX_STR);
    kin_proto_put_endpoint(w, &m->endpoint);
}

static void read_device(kin_reader *r, kin_proto_device *m) {
    m->n_threads = (uint16_t)kin_reader_range(r, kin_reader_u16(r), 1, UINT16_MAX, "n_threads");
    m->memory = kin_reader_size(r, "memory");
    m->memory_total = kin_reader_size(r, "memory_total");
    m->gpu_memory = kin_reader_size(r, "gpu_memory");
    kin_proto_read_hash(r, &m->model);
    kin_reader_str(r, m->cpu, KIN_PROTO_MAX_STR, "cpu");
    kin_reader_str(r, m->os, KIN_PROTO_MAX_STR, "os");
    kin_reader_str(r, m->gpu, KIN_PROTO_MAX_STR, "gpu");
    kin_proto_read_endpoint(r, &m->endpoint);
    if (m->endpoint.port == 0) kin_reader_fail(r, "the device has no port");
}

KIN_PROTO_DEFINE(DEVICE, device)

//     PLAN
//     byte  0  hash  model
//          32  u32   n_ctx (1 to 2^27)
//          36  u32   n_batch (1 to 65536)
//          40  u32   flags: 1 flash, 2 repack, 4 timeline, 8 ggml's kernels, 16 windows
//          44  u64   memory
//          52  u16   n_seq (>= 1)
//          54  u16   n_threads
//          56  u16   n_rounds (1 to 1024)
//          58  u8    kv_type: 0 f16, 1 q8_0
//          59  u8    wire_type: 0 f32, 1 f16, 2 q8
//          60  u8    mode: 0 stream, 1 mmap, 2 willneed, 3 window
//              only with 3: u16 sliding_blocks (>= 1), u16 sliding_retain
//              only with flag 16: u16 n_sequences (>= 1)
//          61  u16   n_files (1 to 64)
//          63  n_files x u64 size (>= 1)
//              u16   n_windows (0 to 1024)
//              n_windows x { u16 round, u16 layer_begin, u16 layer_end, u16 n_gpu, u16 n_cpu_moe }
//              id    next member
//              endpoint of the next member
//              id    previous member
//              endpoint of the previous member
//              u8    n_ranks (0, or 2 to 8) of the device's group; 0: no group, and nothing follows
//              u8    rank (< n_ranks)
//              u8    allreduce: 0 mesh, 1 star, 2 tree, 3 ring
//              u8    0
//              u16   head_begin, u16 head_end (> head_begin)
//              u32   ff_begin, u32 ff_end (> ff_begin)
//              n_ranks x { id, endpoint }
// Windows: rounds and layers ascend, none is empty, n_gpu is at most the window's layers, and n_cpu_moe at most n_gpu.

static void put_window(kin_writer *w, const kin_proto_window *window) {
    kin_writer_u16(w, window->round);
    kin_writer_u16(w, window->layer_begin);
    kin_writer_u16(w, window->layer_end);
    kin_writer_u16(w, window->n_gpu);
    kin_writer_u16(w, window->n_cpu_moe);
}

static void put_group(kin_writer *w, const kin_proto_group *g) {
    kin_assert(g->n_ranks >= 0 && g->n_ranks <= KIN_PROTO_MAX_RANKS);
    kin_writer_u8(w, (uint8_t)g->n_ranks);
    if (g->n_ranks == 0) return;
    kin_writer_u8(w, (uint8_t)g->rank);
    kin_writer_u8(w, (uint8_t)g->allreduce);
    kin_writer_u8(w, 0);
    kin_writer_u16(w, g->head_begin);
    kin_writer_u16(w, g->head_end);
    kin_writer_u32(w, g->ff_begin);
    kin_writer_u32(w, g->ff_end);
    for (int i = 0; i < g->n_ranks; i++) {
        kin_proto_put_id(w, &g->id[i]);
        kin_proto_put_endpoint(w, &g->endpoint[i]);
    }
}

static void put_plan(kin_writer *w, const kin_proto_plan *m) {
    kin_assert(m->n_files >= 0 && m->n_files <= KIN_PROTO_MAX_FILES);
    kin_assert(m->n_windows >= 0 && m->n_windows <= KIN_PROTO_MAX_WINDOWS);
    kin_proto_put_hash(w, &m->model);
    kin_writer_u32(w, m->n_ctx);
    kin_writer_u32(w, m->n_batch);
    kin_writer_u32(w, m->flags);
    kin_writer_u64(w, m->memory);
    kin_writer_u16(w, m->n_seq);
    kin_writer_u16(w, m->n_threads);
    kin_writer_u16(w, m->n_rounds);
    kin_writer_u8(w, (uint8_t)m->kv_type);
    kin_writer_u8(w, (uint8_t)m->wire_type);
    kin_writer_u8(w, (uint8_t)m->mode);
    if (m->mode == KIN_PROTO_WINDOW) {
        kin_writer_u16(w, m->sliding_blocks);
        kin_writer_u16(w, m->sliding_retain);
    }
    if (m->flags & KIN_PROTO_PLAN_WINDOWS) kin_writer_u16(w, m->n_sequences);
    kin_writer_u16(w, (uint16_t)m->n_files);
    for (int i = 0; i < m->n_files; i++) kin_writer_u64(w, m->file_size[i]);
    kin_writer_u16(w, (uint16_t)m->n_windows);
    for (int i = 0; i < m->n_windows; i++) put_window(w, &m->window[i]);
    kin_proto_put_id(w, &m->next_id);
    kin_proto_put_endpoint(w, &m->next);
    kin_proto_put_id(w, &m->previous_id);
    kin_proto_put_endpoint(w, &m->previous);
    put_group(w, &m->group);
}

uint64_t kin_proto_plan_work(const kin_proto_plan *m) {
    uint8_t bytes[KIN_FRAME_CAP_SMALL];
    kin_proto_plan work = *m;
    memset(&work.next_id, 0, sizeof work.next_id);
    memset(&work.previous_id, 0, sizeof work.previous_id);
    work.next = work.previous = (kin_proto_endpoint){0};
    memset(work.group.id, 0, sizeof work.group.id);
    memset(work.group.endpoint, 0, sizeof work.group.endpoint);
    work.flags &= ~(uint32_t)KIN_PROTO_PLAN_TIMELINE;
    return kin_hash64(bytes, kin_proto_encode_plan(bytes, sizeof bytes, &work), 0);
}

static void read_group(kin_reader *r, kin_proto_group *g) {
    g->n_ranks = (int)kin_reader_range(r, kin_reader_u8(r), 0, KIN_PROTO_MAX_RANKS, "number of ranks");
    if (g->n_ranks == 0) return;
    if (g->n_ranks == 1) kin_reader_fail(r, "a group of one device");
    g->rank = (int)kin_reader_range(r, kin_reader_u8(r), 0, (uint32_t)g->n_ranks - 1, "rank");
    g->allreduce = kin_reader_range(r, kin_reader_u8(r), 0, KIN_PROTO_ALLREDUCE_N - 1, "allreduce");
    kin_reader_range(r, kin_reader_u8(r), 0, 0, "byte after allreduce");
    g->head_begin = kin_reader_u16(r);
    g->head_end = (uint16_t)kin_reader_range(r, kin_reader_u16(r), g->head_begin + 1u, UINT16_MAX, "head_end");
    g->ff_begin = (uint32_t)kin_reader_range(r, kin_reader_u32(r), 0, INT32_MAX - 1, "ff_begin");
    g->ff_end = (uint32_t)kin_reader_range(r, kin_reader_u32(r), g->ff_begin + 1, INT32_MAX, "ff_end");
    for (int i = 0; i < g->n_ranks; i++) {
        kin_proto_read_id(r, &g->id[i]);
        kin_proto_read_endpoint(r, &g->endpoint[i]);
    }
}

static void read_files(kin_reader *r, kin_proto_plan *m) {
    m->n_files = (int)kin_reader_range(r, kin_reader_u16(r), 1, KIN_PROTO_MAX_FILES, "number of files");
    for (int i = 0; i < m->n_files; i++) {
        m->file_size[i] = kin_reader_size(r, "size of a file");
        if (m->file_size[i] == 0) kin_reader_fail(r, "file %d is empty", i);
    }
}

static void read_windows(kin_reader *r, kin_proto_plan *m) {
    m->n_windows = (int)kin_reader_range(r, kin_reader_u16(r), 0, KIN_PROTO_MAX_WINDOWS, "number of windows");
    for (int i = 0; i < m->n_windows; i++) {
        kin_proto_window *w = &m->window[i];
        *w = (kin_proto_window){.round = kin_reader_u16(r)};
        w->layer_begin = kin_reader_u16(r);
        w->layer_end = (uint16_t)kin_reader_range(r, kin_reader_u16(r), 0, KIN_PROTO_MAX_LAYERS, "layer_end");
        w->n_gpu = kin_reader_u16(r);
        w->n_cpu_moe = (uint16_t)kin_reader_range(r, kin_reader_u16(r), 0, w->n_gpu, "n_cpu_moe");
        if (w->round >= m->n_rounds) kin_reader_fail(r, "window %d is in round %d of %d", i, w->round, m->n_rounds);
        if (w->layer_begin >= w->layer_end) kin_reader_fail(r, "window %d has no layers", i);
        if (w->n_gpu > w->layer_end - w->layer_begin) kin_reader_fail(r, "window %d has more layers on the GPU than layers", i);
        if (i && w->round <= w[-1].round) kin_reader_fail(r, "the rounds are not ascending at window %d", i);
        if (i && w->layer_begin < w[-1].layer_end) kin_reader_fail(r, "the layers are not ascending at window %d", i);
    }
}

static void read_plan(kin_reader *r, kin_proto_plan *m) {
    kin_proto_read_hash(r, &m->model);
    m->n_ctx = kin_reader_range(r, kin_reader_u32(r), 1, KIN_PROTO_MAX_CONTEXT, "n_ctx");
    m->n_batch = kin_reader_range(r, kin_reader_u32(r), 1, KIN_PROTO_MAX_TOKENS, "n_batch");
    m->flags = kin_reader_range(r, kin_reader_u32(r), 0, KIN_PROTO_PLAN_FLAGS, "flags");
    m->memory = kin_reader_size(r, "memory");
    m->n_seq = (uint16_t)kin_reader_range(r, kin_reader_u16(r), 1, UINT16_MAX, "n_seq");
    m->n_threads = kin_reader_u16(r);
    m->n_rounds = (uint16_t)kin_reader_range(r, kin_reader_u16(r), 1, KIN_PROTO_MAX_WINDOWS, "n_rounds");
    m->kv_type = kin_reader_range(r, kin_reader_u8(r), 0, KIN_PROTO_KV_Q8_0, "kv_type");
    m->wire_type = kin_reader_range(r, kin_reader_u8(r), 0, KIN_ACTIVATION_N_TYPES - 1, "wire_type");
    m->mode = kin_reader_range(r, kin_reader_u8(r), 0, KIN_PROTO_WINDOW, "mode");
    if (m->mode == KIN_PROTO_WINDOW) {
        m->sliding_blocks = (uint16_t)kin_reader_range(r, kin_reader_u16(r), 1, UINT16_MAX, "sliding_blocks");
        m->sliding_retain = kin_reader_u16(r);
    }
    if (m->flags & KIN_PROTO_PLAN_WINDOWS)
        m->n_sequences = (uint16_t)kin_reader_range(r, kin_reader_u16(r), 1, UINT16_MAX, "n_sequences");
    read_files(r, m);
    read_windows(r, m);
    kin_proto_read_id(r, &m->next_id);
    kin_proto_read_endpoint(r, &m->next);
    kin_proto_read_id(r, &m->previous_id);
    kin_proto_read_endpoint(r, &m->previous);
    read_group(r, &m->group);
}

KIN_PROTO_DEFINE(PLAN, plan)

//     PROGRESS
//     byte  0  u8   stage: 0 hashing, 1 fetching, 2 packing, 3 loading
//           1  u64  done (<= total)
//           9  u64  total
//          17  u64  rate
//          25  u64  from_peers

static void put_progress(kin_writer *w, const kin_proto_progress *m) {
    kin_writer_u8(w, (uint8_t)m->stage);
    kin_writer_u64(w, m->done);
    kin_writer_u64(w, m->total);
    kin_writer_u64(w, m->rate);
    kin_writer_u64(w, m->from_peers);
}

static void read_progress(kin_reader *r, kin_proto_progress *m) {
    m->stage = kin_reader_range(r, kin_reader_u8(r), 0, KIN_PROTO_LOADING, "stage");
    m->done = kin_reader_size(r, "done");
    m->total = kin_reader_size(r, "total");
    m->rate = kin_reader_size(r, "rate");
    m->from_peers = kin_reader_size(r, "from_peers");
    if (m->done > m->total) kin_reader_fail(r, "done is larger than total");
}

KIN_PROTO_DEFINE(PROGRESS, progress)

//     READY
//     byte  0  u64  kv_bytes
//           8  u64  weights_bytes
//          16  u64  resident_bytes
//          24  u64  compute_bytes
//          32  u64  gpu_bytes

static void put_ready(kin_writer *w, const kin_proto_ready *m) {
    kin_writer_u64(w, m->kv_bytes);
    kin_writer_u64(w, m->weights_bytes);
    kin_writer_u64(w, m->resident_bytes);
    kin_writer_u64(w, m->compute_bytes);
    kin_writer_u64(w, m->gpu_bytes);
}

static void read_ready(kin_reader *r, kin_proto_ready *m) {
    m->kv_bytes = kin_reader_size(r, "kv_bytes");
    m->weights_bytes = kin_reader_size(r, "weights_bytes");
    m->resident_bytes = kin_reader_size(r, "resident_bytes");
    m->compute_bytes = kin_reader_size(r, "compute_bytes");
    m->gpu_bytes = kin_reader_size(r, "gpu_bytes");
}

KIN_PROTO_DEFINE(READY, ready)

// FAILED: u64 step (0: not in a step), str stage, str reason (at most 1000 bytes)

static void put_failed(kin_writer *w, const kin_proto_failed *m) {
    kin_writer_u64(w, m->step);
    kin_writer_str(w, m->stage, KIN_PROTO_MAX_STR);
    kin_writer_str(w, m->reason, KIN_PROTO_MAX_REASON);
}

static void read_failed(kin_reader *r, kin_proto_failed *m) {
    m->step = kin_reader_u64(r);
    kin_reader_str(r, m->stage, KIN_PROTO_MAX_STR, "stage");
    kin_reader_str(r, m->reason, KIN_PROTO_MAX_REASON, "reason");
}

KIN_PROTO_DEFINE(FAILED, failed)

// NEXT: u8 is_open (0 or 1), str reason (at most 1000 bytes)

static void put_next(kin_writer *w, const kin_proto_next *m) {
    kin_writer_u8(w, m->is_open);
    kin_writer_str(w, m->reason, KIN_PROTO_MAX_REASON);
}

static void read_next(kin_reader *r, kin_proto_next *m) {
    m->is_open = kin_reader_range(r, kin_reader_u8(r), 0, 1, "is_open");
    kin_reader_str(r, m->reason, KIN_PROTO_MAX_REASON, "reason");
}

KIN_PROTO_DEFINE(NEXT, next)

// END: str reason (at most 1000 bytes)

static void put_end(kin_writer *w, const kin_proto_end *m) {
    kin_writer_str(w, m->reason, KIN_PROTO_MAX_REASON);
}

static void read_end(kin_reader *r, kin_proto_end *m) {
    kin_reader_str(r, m->reason, KIN_PROTO_MAX_REASON, "reason");
}

KIN_PROTO_DEFINE(END, end)

// LEFT_OUT: str reason (at most 1000 bytes)

static void put_left_out(kin_writer *w, const kin_proto_left_out *m) {
    kin_writer_str(w, m->reason, KIN_PROTO_MAX_REASON);
}

static void read_left_out(kin_reader *r, kin_proto_left_out *m) {
    kin_reader_str(r, m->reason, KIN_PROTO_MAX_REASON, "reason");
}

KIN_PROTO_DEFINE(LEFT_OUT, left_out)

//     PREFETCH
//     byte  0  u32  ticket (>= 1)
//           4  u8   purpose: 0 a plan, 1 standby
//           5  u8   rate_limited (0 or 1)
//           6  PLAN, as above

static void put_prefetch(kin_writer *w, const kin_proto_prefetch *m) {
    kin_writer_u32(w, m->ticket);
    kin_writer_u8(w, (uint8_t)m->purpose);
    kin_writer_u8(w, m->rate_limited);
    put_plan(w, &m->plan);
}

static void read_prefetch(kin_reader *r, kin_proto_prefetch *m) {
    m->ticket = (uint32_t)kin_reader_range(r, kin_reader_u32(r), 1, UINT32_MAX, "ticket");
    m->purpose = kin_reader_range(r, kin_reader_u8(r), 0, KIN_PROTO_FOR_STANDBY, "purpose");
    m->rate_limited = kin_reader_range(r, kin_reader_u8(r), 0, 1, "gently");
    read_plan(r, &m->plan);
}

KIN_PROTO_DEFINE(PREFETCH, prefetch)

//     PREFETCHED
//     byte  0  u32  ticket (>= 1)
//           4  u8   is_here (0 or 1)
//           5  PROGRESS, as above
//          38  str  reason (at most 1000 bytes)

static void put_prefetched(kin_writer *w, const kin_proto_prefetched *m) {
    kin_writer_u32(w, m->ticket);
    kin_writer_u8(w, m->is_here);
    put_progress(w, &m->progress);
    kin_writer_str(w, m->reason, KIN_PROTO_MAX_REASON);
}

static void read_prefetched(kin_reader *r, kin_proto_prefetched *m) {
    m->ticket = (uint32_t)kin_reader_range(r, kin_reader_u32(r), 1, UINT32_MAX, "ticket");
    m->is_here = kin_reader_range(r, kin_reader_u8(r), 0, 1, "is_here");
    read_progress(r, &m->progress);
    kin_reader_str(r, m->reason, KIN_PROTO_MAX_REASON, "reason");
    if (m->is_here && m->reason[0]) kin_reader_fail(r, "it is both available and failed");
}

KIN_PROTO_DEFINE(PREFETCHED, prefetched)
