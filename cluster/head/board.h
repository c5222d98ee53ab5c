// A board between the two threads of a cluster: the loop's thread publishes a snapshot of the epoch, and the computing thread
// waits for changes of it and reports what was wrong with the last member's messages.
//
// Owner: kin_cluster. Threads: as named below; the mutex guards all fields.
#pragma once

#include <uv.h>

#include "cluster/head/snapshot.h"

typedef struct kin_cluster_board {
    uv_mutex_t mutex;
    uv_cond_t changed;
    kin_cluster_snapshot snapshot;
    kin_err wrong; // why the last member's message was invalid, and in which epoch
    uint32_t wrong_epoch;
} kin_cluster_board;

void kin_cluster_board_init(kin_cluster_board *board);
void kin_cluster_board_fini(kin_cluster_board *board);

// The loop's thread: begins to change the snapshot, and publishes it.
kin_cluster_snapshot *kin_cluster_board_lock(kin_cluster_board *board);
void kin_cluster_board_publish(kin_cluster_board *board);
void kin_cluster_board_set_broken(kin_cluster_board *board, const char *why); // without waking the other thread
void kin_cluster_board_wake(kin_cluster_board *board);                        // so that it checks whether to stop
// Returns the epoch in which a message was invalid, and why.
uint32_t kin_cluster_board_read_wrong(kin_cluster_board *board, kin_err *why);

// The computing thread.
void kin_cluster_board_read(kin_cluster_board *board, kin_cluster_snapshot *out);
// Waits until the snapshot is newer than *seen, at most `ns`, and updates *seen. False: it is not newer.
bool kin_cluster_board_wait(kin_cluster_board *board, kin_cluster_snapshot *seen, uint64_t ns);
void kin_cluster_board_read_broken(kin_cluster_board *board, kin_err *why);
void kin_cluster_board_set_wrong(kin_cluster_board *board, uint32_t epoch, const char *why);
