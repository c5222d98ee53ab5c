// Messages: one struct and one codec for each type of frame (pure/proto/frame.h lists the types, docs/PROTOCOL.md describes the
// protocol).
//
// The structs are plain data with fixed maxima. Small parts are copied into them. Long parts (positions, activations, hashes,
// bitmaps, file bytes) are not copied: after decoding they are pointers into the payload, valid as long as the payload; for
// encoding they are pointers to bytes in wire format. They have any alignment: read them with the helpers below. When a long part
// is NULL, encoding leaves its room for the caller to fill in place.
//
// Decoding checks everything that can be checked without knowing the plan or the model: exact length, counts, ranges, order,
// text. Encoding asserts counts and room only; kin_label_set (pure/proto/label.h) makes texts that the other side accepts.
//
// For each message X there are:
//   size_t kin_proto_size_X(const kin_proto_X *m)                                       bytes of the payload
//   size_t kin_proto_encode_X(uint8_t *buf, size_t cap, const kin_proto_X *m)           writes that many, returns them
//   int kin_proto_decode_X(const uint8_t *payload, size_t n, kin_proto_X *m, kin_err *err)
//
// Nothing is allocated or stored: any thread. The byte tables are in the codecs:
//   message_link.c    OPEN ACCEPT REFUSE PING PONG BYE
//   message_plan.c    DEVICE PLAN PROGRESS NEXT READY FAILED END PREFETCH PREFETCHED
//   message_step.c    STEP PAGES SUM
//   message_status.c  STATUS_WANTED STATUS EVENTS REPORT
//   message_fetch.c   HASHES_WANTED HASHES GET DATA LACK HAVE KEPT
//   message_measure.c PROFILE MEASURE MEASURED ECHO
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "pure/plan/facts.h"
#include "pure/plan/window.h"
#include "pure/proto/activations.h"
#include "pure/proto/frame.h"

enum {
    KIN_PROTO_MAX_STR = 255,
    KIN_PROTO_MAX_REASON = 1000,
    KIN_PROTO_MAX_ADDRESSES = 8,
    KIN_PROTO_MAX_FILES = 64,
    KIN_PROTO_MAX_WINDOWS = 1024, // of one device; also the limit of rounds
    KIN_PROTO_MAX_LAYERS = 4096,
    KIN_PROTO_MAX_CONTEXT = 1 << 27,
    KIN_PROTO_MAX_BLOCKS = 1 << 21, // of 64 tokens, in a context
    KIN_PROTO_MAX_TOKENS = 1 << 16, // in one step
    KIN_PROTO_MAX_OPS = 1 << 12,    // changes of the KV cache in one step
    KIN_PROTO_MAX_PAGES = 8,        // of the KV cache in one request
    KIN_PROTO_MAX_EMBD = 1 << 20,
    KIN_PROTO_MAX_RANKS = 8,             // devices of a group
    KIN_PROTO_MAX_SUMS = 1 << 14,        // in one round of a step
    KIN_PROTO_MAX_EVENTS = 1024,         // in one frame
    KIN_PROTO_MAX_HASHES = 1 << 14,      // in one frame
    KIN_PROTO_MAX_CHUNKS = 1 << 22,      // of a model
    KIN_PROTO_MIN_CHUNK_BYTES = 1 << 16, // powers of two
    KIN_PROTO_MAX_CHUNK_BYTES = 1 << 26,
};

typedef struct kin_proto_id {
    uint8_t bytes[16];
} kin_proto_id;

typedef struct kin_proto_hash {
    uint8_t bytes[32]; // SHA-256
} kin_proto_hash;

// The addresses at which a process listens. None: at the address that the receiver already knows; then the port may be 0.
typedef struct kin_proto_endpoint {
    uint16_t port;
    int n_addresses;
    char address[KIN_PROTO_MAX_ADDRESSES][KIN_PROTO_MAX_STR + 1]; // a host name or a numeric address, not empty
} kin_proto_endpoint;

// ---- links

// A range of protocol versions (pure/proto/versions.h).
typedef struct kin_proto_versions {
    uint16_t min, max; // 1 <= min <= max
} kin_proto_versions;

typedef struct kin_proto_open {
    kin_proto_role role;
    kin_proto_id id;
    // Id of the process that is called; zeros: not known. On a ring link: the id of its other end, even if the head is called in
    // its place.
    kin_proto_id peer;
    uint64_t run; // run of this process: another run with the same id is a copy of the machine, or its next start
    kin_proto_versions versions;
    char name[KIN_PROTO_MAX_STR + 1];
    char version[KIN_PROTO_MAX_STR + 1]; // version of the program, for people
    uint32_t features;                   // bits; unknown ones are ignored
} kin_proto_open;

// Features of OPEN.
enum {
    KIN_PROTO_INEXACT = 2, // computes without kin's CPU kernels: rows have other bits, which may depend on the step's other rows
    KIN_PROTO_NO_SLICES = 4, // has no prepacked weights: slices of them must fit into its memory
};

// Features of ACCEPT.
enum {
    KIN_PROTO_BY_GATEWAY = 1, // a device forwarded the link (net/gateway.h)
};

typedef struct kin_proto_accept {
    kin_proto_id id;
    kin_proto_versions versions;
    char name[KIN_PROTO_MAX_STR + 1];
    char version[KIN_PROTO_MAX_STR + 1];
    uint32_t features; // bits; unknown ones are ignored
} kin_proto_accept;

typedef struct kin_proto_refuse {
    char reason[KIN_PROTO_MAX_REASON + 1];
} kin_proto_refuse;

typedef struct kin_proto_ping {
    uint64_t time; // ns of the sender's clock
} kin_proto_ping;

typedef struct kin_proto_pong {
    uint64_t time; // as received
    uint64_t own;  // ns of the answering side's clock
} kin_proto_pong;

typedef struct kin_proto_bye {
    char reason[KIN_PROTO_MAX_REASON + 1];
} kin_proto_bye;

// ---- plans

// Device -> head, after ACCEPT on its control link.
typedef struct kin_proto_device {
    uint16_t n_threads;    // >= 1
    uint64_t memory;       // bytes that kin may use
    uint64_t memory_total; // bytes of the whole machine
    char cpu[KIN_PROTO_MAX_STR + 1];
    char os[KIN_PROTO_MAX_STR + 1];
    char gpu[KIN_PROTO_MAX_STR + 1]; // empty: none
    uint64_t gpu_memory;
    kin_proto_hash model; // model that it has a file of; zeros: none
    kin_proto_endpoint endpoint;
} kin_proto_device;

typedef struct kin_proto_window {
    uint16_t round;
    uint16_t layer_begin, layer_end; // not empty
    uint16_t n_gpu;                  // the last n_gpu of these layers are on the GPU
    uint16_t n_cpu_moe;              // the first n_cpu_moe of those have their feed-forward blocks on the CPU
} kin_proto_window;

typedef enum kin_proto_kv_type { KIN_PROTO_KV_F16, KIN_PROTO_KV_Q8_0 } kin_proto_kv_type;

typedef enum kin_proto_mode { KIN_PROTO_STREAM, KIN_PROTO_MMAP, KIN_PROTO_WILLNEED, KIN_PROTO_WINDOW } kin_proto_mode;

enum {
    KIN_PROTO_PLAN_FLASH = 1,
    KIN_PROTO_PLAN_REPACK = 2,
    KIN_PROTO_PLAN_TIMELINE = 4,
    KIN_PROTO_PLAN_GGML = 8,
    KIN_PROTO_PLAN_WINDOWS = 16,
    KIN_PROTO_PLAN_FLAGS = 31
};

// The method by which the devices of a group add up their results.
typedef enum kin_proto_allreduce {
    KIN_PROTO_ALLREDUCE_MESH, // each sends its result to all others
    KIN_PROTO_ALLREDUCE_STAR, // all send to the last one, which sends the sum to all
    KIN_PROTO_ALLREDUCE_TREE, // pairwise to the first one, and back the same way
    KIN_PROTO_ALLREDUCE_RING, // pieces go round the ring twice
} kin_proto_allreduce;

enum { KIN_PROTO_ALLREDUCE_N = 4 };

// A device of a group has a share of each layer of its windows (model/share.h).
typedef struct kin_proto_group {
    int n_ranks; // 0: layers are whole, and the other fields are unused; otherwise 2 to KIN_PROTO_MAX_RANKS
    int rank;    // rank of the device
    kin_proto_allreduce allreduce;
    uint16_t head_begin, head_end; // not empty
    uint32_t ff_begin, ff_end;     // not empty
    // All devices of the group, including this one. Without addresses: the head, where the device reached it.
    kin_proto_id id[KIN_PROTO_MAX_RANKS];
    kin_proto_endpoint endpoint[KIN_PROTO_MAX_RANKS];
} kin_proto_group;

// Head -> device: everything that the device needs to know to take part.
typedef struct kin_proto_plan {
    kin_proto_hash model;
    int n_files; // >= 1
    uint64_t file_size[KIN_PROTO_MAX_FILES];
    uint32_t n_ctx;
    uint32_t n_batch; // most tokens of a step
    uint16_t n_seq;   // >= 1
    kin_proto_kv_type kv_type;
    kin_activation_type wire_type;
    uint32_t flags;       // KIN_PROTO_PLAN_*
    uint16_t n_sequences; // for KIN_PROTO_PLAN_WINDOWS, otherwise 0: for whose windows windowed layers have room, >= 1
    kin_proto_mode mode;
    // For KIN_PROTO_WINDOW, otherwise 0: n_blocks >= 1 and retain of a kin_sliding_window.
    uint16_t sliding_blocks, sliding_retain;
    uint64_t memory;    // limit in bytes for everything; 0: what the machine can spare
    uint16_t n_threads; // 0: the device chooses
    uint16_t n_rounds;  // >= 1
    int n_windows;      // 0: a relay; at most one per round
    kin_proto_window window[KIN_PROTO_MAX_WINDOWS];
    // The neighbours in the ring. Without addresses: the head, where the device reached it; the head forwards what is for others.
    kin_proto_id next_id;
    kin_proto_endpoint next;
    kin_proto_id previous_id;
    kin_proto_endpoint previous;
    kin_proto_group group;
} kin_proto_plan;

// Returns a hash of what a plan means for the device's preparation: all but the neighbours, and the flag for the timeline. Head
// and device compare it with that of the last plan.
uint64_t kin_proto_plan_work(const kin_proto_plan *m);

// The purpose of fetching weights before a plan needs them.
typedef enum kin_proto_purpose {
    KIN_PROTO_FOR_PLAN,    // a better plan, which waits for them
    KIN_PROTO_FOR_STANDBY, // standby: the plans without one of the other devices
} kin_proto_purpose;

// Head -> device: fetch and pack the windows of this plan in the background, regardless of the epoch in force. The same ticket
// again only changes `rate_limited`. Another ticket, or PLAN, replaces it; what has been fetched stays.
typedef struct kin_proto_prefetch {
    uint32_t ticket; // number that the head assigned to it, >= 1
    kin_proto_purpose purpose;
    bool rate_limited;   // requests are running: use only a small part of the link, and no CPU time that others need
    kin_proto_plan plan; // without neighbours
} kin_proto_prefetch;

typedef enum kin_proto_stage {
    KIN_PROTO_HASHING,
    KIN_PROTO_FETCHING,
    KIN_PROTO_PACKING,
    KIN_PROTO_LOADING,
} kin_proto_stage;

typedef struct kin_proto_progress {
    kin_proto_stage stage;
    uint64_t done, total; // bytes
    uint64_t rate;        // bytes per second
    uint64_t from_peers;  // bytes that came from devices other than the head
} kin_proto_progress;

// Device -> head: the state of the PREFETCH with that ticket; sent from time to time, and when it ends.
typedef struct kin_proto_prefetched {
    uint32_t ticket;
    bool is_here; // everything has arrived
    kin_proto_progress progress;
    char reason[KIN_PROTO_MAX_REASON + 1]; // why it failed; empty: it has not failed
} kin_proto_prefetched;

typedef struct kin_proto_ready {
    uint64_t kv_bytes, weights_bytes, resident_bytes, compute_bytes, gpu_bytes;
} kin_proto_ready;

typedef struct kin_proto_failed {
    uint64_t step; // 0: not during a step
    char stage[KIN_PROTO_MAX_STR + 1];
    char reason[KIN_PROTO_MAX_REASON + 1];
} kin_proto_failed;

// Device -> head: the state of its ring link in this epoch.
typedef struct kin_proto_next {
    bool is_open;
    char reason[KIN_PROTO_MAX_REASON + 1]; // why it is not open
} kin_proto_next;

// Head -> device: the epoch is over. The device closes its ring link, keeps what it has loaded, and waits for another plan.
typedef struct kin_proto_end {
    char reason[KIN_PROTO_MAX_REASON + 1];
} kin_proto_end;

// Head -> device: the device has joined, but the plan has no layers for it.
typedef struct kin_proto_left_out {
    char reason[KIN_PROTO_MAX_REASON + 1];
} kin_proto_left_out;

// ---- steps

enum {
    KIN_PROTO_STEP_NO_OUTPUT = 1, // no logits are made from this step
    KIN_PROTO_STEP_ALL_ROWS = 2,  // all rows are wanted: n_out is n_tokens, and there is no array `out`
    KIN_PROTO_STEP_MORE = 4,      // more chunks of the same prompt follow
    KIN_PROTO_STEP_POSITIONS = 8, // pos, seq and out are present: once per step and device, with the first round
    KIN_PROTO_STEP_TOKENS = 16,   // with POSITIONS: the tokens' numbers are present, because some layers need them
    KIN_PROTO_STEP_FLAGS = 31,
};

typedef struct kin_proto_step {
    uint64_t step;
    uint16_t round;
    uint16_t flags;
    kin_activation_type type;
    uint32_t n_tokens; // >= 1
    uint32_t n_rows;   // rows of the activations: n_tokens, or n_out after the model's last layer
    uint32_t n_embd;
    uint16_t n_ops;             // changes of the KV cache; 0 without POSITIONS
    uint32_t n_out;             // rows whose results are wanted after the last layer
    const uint8_t *pos;         // i32 [n_tokens], >= 0; with POSITIONS
    const uint8_t *seq;         // i32 [n_tokens], >= 0; with POSITIONS
    const uint8_t *out;         // i32 [n_out], ascending, < n_tokens; with POSITIONS, without ALL_ROWS
    const uint8_t *ops;         // i32 [n_ops, 3]: seq (>= -1), from, n (>= 0): see kin_kv_op (engine/kv/blocks.h)
    const uint8_t *tokens;      // i32 [n_tokens], >= 0; with TOKENS
    const uint8_t *activations; // type [n_rows, n_embd]
} kin_proto_step;

typedef struct kin_proto_page_key {
    uint8_t bytes[16];
} kin_proto_page_key;

// Goes round the ring once, in order with the steps. Each member keeps pages of the KV cache on its disk, loads them from there,
// or deletes them.
typedef struct kin_proto_pages {
    uint64_t step; // its number in the sequence of steps
    bool loads;
    bool drops;       // instead of both: delete the pages from the disks
    bool recomputes;  // with loads: pages that are not found are computed where the hidden states before them are available
    bool has_states;  // without recomputes: with what layers that store no pages need to continue after the last page; pages that
                      // are kept or deleted: that alone
    uint16_t n_pages; // 1 to KIN_PROTO_MAX_PAGES
    uint16_t n_good;  // number of leading pages that all members so far have
    uint16_t n_ops;
    uint16_t timeout_ms; // time limit for pages on other devices' disks; unless it recomputes, reduced by the time that members
                         // so far have taken
    int32_t seq;         // >= 0
    uint32_t first;      // block of the sequence, at most KIN_PROTO_MAX_BLOCKS
    const uint8_t *ops;  // as in a step
    kin_proto_page_key key[KIN_PROTO_MAX_PAGES];
    kin_border_set borders; // if it recomputes: of the ring that computed these pages
} kin_proto_pages;

// Between the devices of a group: values of a sum, for all rows or for a part of them.
typedef struct kin_proto_sum {
    uint64_t step;
    uint16_t round;
    uint16_t i_sum; // index within that round, < KIN_PROTO_MAX_SUMS
    kin_activation_type type;
    uint32_t n_values;     // >= 1
    const uint8_t *values; // type [n_values]
} kin_proto_sum;

// ---- status

typedef struct kin_proto_status_wanted {
    char nothing; // the message is empty, but a struct cannot be
} kin_proto_status_wanted;

typedef enum kin_proto_state {
    KIN_PROTO_JOINED,
    KIN_PROTO_PREPARING,
    KIN_PROTO_WAITING,   // ready, nothing to do
    KIN_PROTO_COMPUTING, // a step has arrived
} kin_proto_state;

typedef enum kin_proto_work {
    KIN_PROTO_WORKS,  // working on a step, or on something else
    KIN_PROTO_IDLES,  // everything that arrived is done
    KIN_PROTO_FETCHES // a step may be waiting for weights that have not arrived
} kin_proto_work;

typedef struct kin_proto_status {
    kin_proto_state state;
    uint64_t steps, tokens;
    uint64_t compute_ns, wait_ns, disk_ns;
    uint64_t net_in, net_out; // bytes
    uint64_t streamed_bytes, resident_bytes, memory_free;
    uint64_t rtt_ns; // to the next member
    // For a step of one token, all rounds together: medians of the last 15 since the plan began. token_compute_ns 0: not known.
    uint64_t token_compute_ns; // computing, without the waits below
    uint64_t token_stall_ns;   // waiting for streamed weights
    uint64_t token_disk_ns;    // time with a read of streamed weights in flight
    uint64_t token_disk_bytes; // bytes of these reads
    // For a ring: where its steps are (pipeline/lost_step.h).
    uint32_t epoch;          // 0: of no ring
    uint32_t n_came, n_left; // frames with steps or requests for pages of that epoch that arrived, and that were sent on
    uint32_t n_signs;        // signs of life of the computing thread, modulo 2^32
    kin_proto_work work;
    uint64_t moving; // bytes that the next member has not acknowledged, plus those of a partly received frame
    char doing[KIN_PROTO_MAX_STR + 1];
} kin_proto_status;

typedef enum kin_proto_event_kind {
    KIN_PROTO_EVENT_COMPUTE,
    KIN_PROTO_EVENT_WAIT,
    KIN_PROTO_EVENT_DISK,
    KIN_PROTO_EVENT_SEND,
} kin_proto_event_kind;

typedef struct kin_proto_event {
    kin_proto_event_kind kind;
    uint16_t round;
    uint64_t step;
    uint64_t begin, end; // ns of the device's clock
} kin_proto_event;

typedef struct kin_proto_events {
    int n_events;
    kin_proto_event event[KIN_PROTO_MAX_EVENTS];
} kin_proto_events;

// Head -> status client: the state of the cluster, as JSON in UTF-8 without a NUL; observe/status_json.h has its fields.
typedef struct kin_proto_report {
    uint32_t n_bytes; // 1 to KIN_FRAME_REPORT_BYTES
    const uint8_t *bytes;
} kin_proto_report;

// ---- parts of the model file

// The chunks of a model are numbered across all its files; each file starts a new chunk.
#define KIN_PROTO_NO_CHUNK UINT32_MAX

typedef struct kin_proto_hashes_wanted {
    kin_proto_hash model;
} kin_proto_hashes_wanted;

typedef struct kin_proto_file {
    uint64_t size;                    // >= 1
    char name[KIN_PROTO_MAX_STR + 1]; // a file name without folders
} kin_proto_file;

typedef struct kin_proto_hashes {
    uint32_t chunk_bytes;
    int n_files; // >= 1
    kin_proto_file file[KIN_PROTO_MAX_FILES];
    uint32_t first; // chunk of the first hash
    uint32_t n_hashes;
    const uint8_t *hashes; // [n_hashes, 32]
} kin_proto_hashes;

// Requests a part of a model, or of a page of the KV cache: then `model` is the page's name, and i_chunk a number that the answer
// repeats.
typedef struct kin_proto_get {
    kin_proto_hash model;
    uint32_t i_chunk;
    uint32_t offset; // within the chunk
    uint32_t length; // >= 1
} kin_proto_get;

typedef struct kin_proto_data {
    uint32_t i_chunk;
    uint32_t offset;
    uint32_t n_bytes; // 1 to KIN_FRAME_DATA_BYTES
    const uint8_t *bytes;
} kin_proto_data;

typedef struct kin_proto_lack {
    uint32_t i_chunk; // KIN_PROTO_NO_CHUNK: the sender has nothing of that model
} kin_proto_lack;

typedef struct kin_proto_have {
    kin_proto_hash model;
    kin_proto_id id; // device that has the chunks
    kin_proto_endpoint endpoint;
    uint32_t n_chunks;     // chunks of the model, >= 1
    const uint8_t *bitmap; // [(n_chunks + 7) / 8], chunk i is bit i % 8 of byte i / 8
} kin_proto_have;

enum { KIN_PROTO_MAX_KEPT = 1024 }; // names in one frame

// Device -> head: these pages of the KV cache are on the sender's disk. Head -> device: the device `id` is reached at `endpoint`
// and may have pages on its disk; the receiver should keep a copy of those that are named.
typedef struct kin_proto_kept {
    kin_proto_id id; // device that has the pages
    kin_proto_endpoint endpoint;
    uint32_t page_bytes;  // bytes of each file, 1 to KIN_PROTO_MAX_CHUNK_BYTES
    uint32_t n_names;     // 0 to KIN_PROTO_MAX_KEPT
    const uint8_t *names; // [n_names] hashes
} kin_proto_kept;

// ---- measurements

// Device -> head, before DEVICE: its own measurements. Any numbers are allowed: the planner rejects impossible ones
// (kin_facts_screen).
typedef struct kin_proto_profile {
    kin_device_facts facts;
} kin_proto_profile;

enum { KIN_PROTO_MAX_MEASURES = 40 }; // MEASUREs that may be pending at a device; a further one is answered at once

// Head -> device: measure the path to that member.
typedef struct kin_proto_measure {
    kin_proto_id id;
    uint32_t hidden_bytes;       // bytes of a hidden state; 1 to KIN_FRAME_ECHO_BYTES
    kin_proto_endpoint endpoint; // without addresses: the head, where this device reached it
} kin_proto_measure;

// Device -> head: the answer, one for each MEASURE. Any numbers are allowed, as in PROFILE.
typedef struct kin_proto_measured {
    kin_proto_id id;
    double rtt_s;                          // round trip of a small message
    double to_bytes_s, from_bytes_s;       // bytes per second from this device to the other, and back
    char reason[KIN_PROTO_MAX_REASON + 1]; // why it was not measured; empty: it was
} kin_proto_measured;

// In both directions. The answer has the same token and answer_bytes bytes, and its own answer_bytes is 0.
typedef struct kin_proto_echo {
    uint64_t token;
    uint32_t answer_bytes; // at most KIN_FRAME_ECHO_BYTES
    uint32_t n_bytes;      // at most KIN_FRAME_ECHO_BYTES
    const uint8_t *bytes;
} kin_proto_echo;

// ---- the codecs

#define KIN_PROTO_DECLARE(number, NAME, name, cap, links, epoch)                                                                 \
    size_t kin_proto_size_##name(const kin_proto_##name *m);                                                                     \
    size_t kin_proto_encode_##name(uint8_t *buf, size_t cap_bytes, const kin_proto_##name *m);                                   \
    int kin_proto_decode_##name(const uint8_t *payload, size_t n, kin_proto_##name *m, kin_err *err);
KIN_FRAME_TYPES(KIN_PROTO_DECLARE)
#undef KIN_PROTO_DECLARE

// Any message; about 35 KB.
typedef struct kin_proto_message {
    kin_frame_type type;
    union {
#define KIN_PROTO_MEMBER(number, NAME, name, cap, links, epoch) kin_proto_##name name;
        KIN_FRAME_TYPES(KIN_PROTO_MEMBER)
#undef KIN_PROTO_MEMBER
    };
} kin_proto_message;

// Decodes the payload of a frame of that type.
int kin_proto_decode(kin_frame_type type, const uint8_t *payload, size_t n, kin_proto_message *m, kin_err *err);

// Encodes header and payload. Returns the bytes of the frame; with buf NULL nothing is written.
size_t kin_proto_encode(uint8_t *buf, size_t cap, uint32_t epoch, const kin_proto_message *m);

// ---- long parts

// i32 arrays of STEP.
int32_t kin_proto_i32_at(const uint8_t *array, size_t i);
void kin_proto_i32_encode(uint8_t *to, const int32_t *from, size_t n);
void kin_proto_i32_decode(int32_t *to, const uint8_t *from, size_t n);

// Offsets of the long parts of a STEP in its payload. Parts that the step does not carry have no bytes.
typedef struct kin_proto_step_layout {
    size_t pos, seq, out, ops, tokens, activations;
    size_t activations_bytes;
    size_t size; // bytes of the payload
} kin_proto_step_layout;

kin_proto_step_layout kin_proto_step_lay_out(const kin_proto_step *m);

// For senders that send a frame in parts: encode the payload without the activations (layout.activations bytes), without the
// values (KIN_PROTO_SUM_HEAD bytes), or without the file's bytes (8 bytes).
size_t kin_proto_encode_step_head(uint8_t *buf, size_t cap, const kin_proto_step *m);
size_t kin_proto_encode_sum_head(uint8_t *buf, size_t cap, const kin_proto_sum *m);
size_t kin_proto_encode_data_head(uint8_t *buf, size_t cap, const kin_proto_data *m);

enum { KIN_PROTO_SUM_HEAD = 20 };

// Returns the largest payload of a step in a ring with these numbers. Above KIN_FRAME_CAP_STEP such a ring is not possible.
size_t kin_proto_step_size_max(uint32_t n_batch, uint32_t n_embd, kin_activation_type type);

// Returns the number of chunks of a model with these files. Models with more than KIN_PROTO_MAX_CHUNKS are not served.
uint64_t kin_proto_n_chunks(const kin_proto_hashes *m);

// True if the bitmap has this chunk.
bool kin_proto_have_chunk(const kin_proto_have *m, uint32_t i_chunk);
