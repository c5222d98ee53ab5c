#include "pipeline/step_timing.h"

#include <stddef.h>

#include "base/median.h"

void kin_step_timing_begin(kin_step_timing *p, kin_time now) {
    p->token = (kin_token_times){0};
    p->begun = now;
}

void kin_step_timing_enter(kin_step_timing *p, kin_time now, const kin_stream_stats *stream) {
    p->entered = now;
    p->wait_ns = stream->wait_ns;
}

void kin_step_timing_leave(kin_step_timing *p, kin_time now, const kin_stream_stats *stream) {
    uint64_t all_ns = now - p->entered, stall_ns = stream->wait_ns - p->wait_ns;
    if (stall_ns > all_ns) stall_ns = all_ns;
    p->token.stall_ns += stall_ns;
    p->token.compute_ns += all_ns - stall_ns;
}

void kin_step_timing_end(kin_step_timing *p, kin_time now, const kin_stream_stats *stream, bool is_token) {
    if (is_token && p->has_mark) {
        p->token.total_ns = now - p->begun;
        p->token.disk_ns = stream->busy_ns - p->mark_ns;
        p->token.disk_bytes = stream->read_bytes - p->mark_read_bytes;
        p->kept[p->at] = p->token;
        p->at = (p->at + 1) % KIN_STEP_TIMING_KEPT;
        if (p->n < KIN_STEP_TIMING_KEPT) p->n++;
    }
    p->has_mark = true;
    p->mark_ns = stream->busy_ns;
    p->mark_read_bytes = stream->read_bytes;
}

static uint64_t median_at(const kin_step_timing *p, size_t offset) {
    double values[KIN_STEP_TIMING_KEPT];
    for (int i = 0; i < p->n; i++) values[i] = (double)*(const uint64_t *)((const char *)&p->kept[i] + offset);
    return (uint64_t)kin_median(values, p->n);
}

kin_token_times kin_step_timing_median(const kin_step_timing *p) {
    if (p->n < KIN_STEP_TIMING_LEAST) return (kin_token_times){0};
    return (kin_token_times){.compute_ns = median_at(p, offsetof(kin_token_times, compute_ns)),
                             .stall_ns = median_at(p, offsetof(kin_token_times, stall_ns)),
                             .disk_ns = median_at(p, offsetof(kin_token_times, disk_ns)),
                             .disk_bytes = median_at(p, offsetof(kin_token_times, disk_bytes)),
                             .total_ns = median_at(p, offsetof(kin_token_times, total_ns))};
}
