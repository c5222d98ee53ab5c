// A lane of libuv's pool, for long work that must not occupy all of the pool's threads. One piece of work runs at a time; the
// others wait in order.
//
// Owner: the server. Thread: the loop's, but for `run`. A kin_lane_work must stay at its address until `done` or kin_lane_remove.
#pragma once

#include <stdbool.h>
#include <uv.h>

typedef struct kin_lane kin_lane;
typedef struct kin_lane_work kin_lane_work;

struct kin_lane_work {
    void (*run)(kin_lane_work *work);              // in the pool
    void (*done)(kin_lane_work *work, int status); // afterwards; status as that of uv_after_work_cb
    void *user;
    // Set by the lane.
    kin_lane *lane;
    kin_lane_work *next;
    uv_work_t work;
};

struct kin_lane {
    uv_loop_t *loop;
    int n_most; // works that may wait
    int n_waiting;
    bool is_running;
    kin_lane_work *first, **end; // waiting
};

void kin_lane_init(kin_lane *lane, uv_loop_t *loop, int n_most);
// Returns false if too many works wait already, or without memory.
bool kin_lane_queue(kin_lane *lane, kin_lane_work *work);
// Runs work in the pool: in the lane if it is long, which then must have room, otherwise beside it.
void kin_lane_run(kin_lane *lane, kin_lane_work *work, bool is_long);
// Returns true if the work waited; it has left the lane, and `done` is not called.
bool kin_lane_remove(kin_lane *lane, kin_lane_work *work);
