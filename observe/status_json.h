// The state of a cluster as JSON, for people and programs (`kin status`).
//
//   head     name, version, port, state ("gathering", "short", "preparing", "serving"), doing, epoch, rounds, model, model_hash,
//            layers, context, sequences (being written, and since the start: sequences_total), prompt_tokens, tokens,
//            tokens_per_s, pages_bytes (KV pages for which copies were requested), uptime_s
//   devices  one for each known device, and one for the head; the ring's members first, in order:
//            name, role ("device", "head"), address, state ("greeted", "joined", "preparing", "waiting", "computing", "failed",
//            "lost", "left"), stage (place in the ring, from 1; 0: none), doing, last_error,
//            layers, gpu_layers, windows: [{round, layer_begin, layer_end, n_gpu}] (`windows_left_out`: number not listed),
//            memory_lent, memory_planned (0: what is free), memory_total, memory_free, kv_bytes, weights_bytes, compute_bytes,
//            resident_bytes, streamed_bytes, compute_share, wait_share, disk_share, rtt_ms (to the next member),
//            head_rtt_ms, bytes_in, bytes_out, steps, tokens, threads, cpu, gpu, os
//
// Bytes are integers. Shares and tokens_per_s are since the last report: one second, while a client is connected. The disk works
// concurrently with computing and waiting. Unknown values are omitted.
//
// Plain function; any thread. The strings and structs are borrowed for the call.
#pragma once

#include <stddef.h>

#include "pure/plan/window.h"
#include "pure/proto/membership.h"
#include "pure/proto/message.h"

// The last two STATUS; has_now and has_before tell which are valid. ready: of the last plan for which the member was ready, or
// zeros.
typedef struct kin_status_sample {
    bool has_now, has_before;
    bool is_fresh; // `now` came after the last question
    kin_proto_status now, before;
    kin_proto_ready ready;
    uint64_t rtt_ns; // of this link; 0: not known
} kin_status_sample;

typedef struct kin_status_json_head {
    const char *name, *version, *model, *doing;
    uint16_t port;
    kin_membership_state state;
    uint32_t epoch;
    int n_rounds, n_layer, n_ctx, n_sequences; // n_sequences: being written; one request may have several
    kin_proto_hash model_hash;
    uint64_t n_sequences_total, n_prompt, n_generated, pages_bytes;
    double tokens_per_s, uptime_s;
} kin_status_json_head;

typedef struct kin_status_json_member {
    const kin_membership_device *device; // NULL: the head
    const char *address;
    kin_status_sample sample;
    const kin_member_windows *windows; // NULL: none
    uint64_t memory_planned;
    int stage;
} kin_status_json_member;

typedef struct kin_status_json {
    kin_status_json_head head;
    int n_members;
    kin_status_json_member members[KIN_MEMBERSHIP_DEVICES + 1];
} kin_status_json;

// Returns at most n_max bytes, from malloc: omits windows if the text is longer, then what is for people only. NULL: out of
// memory.
char *kin_status_json_write(const kin_status_json *report, size_t n_max);
