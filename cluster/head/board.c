#include "cluster/head/board.h"

#include <stdio.h>

void kin_cluster_board_init(kin_cluster_board *b) {
    *b = (kin_cluster_board){.wrong_epoch = 0};
    uv_mutex_init(&b->mutex);
    uv_cond_init(&b->changed);
}

void kin_cluster_board_fini(kin_cluster_board *b) {
    uv_cond_destroy(&b->changed);
    uv_mutex_destroy(&b->mutex);
}

// ---- the loop's thread

kin_cluster_snapshot *kin_cluster_board_lock(kin_cluster_board *b) {
    uv_mutex_lock(&b->mutex);
    return &b->snapshot;
}

void kin_cluster_board_publish(kin_cluster_board *b) {
    b->snapshot.version++;
    uv_cond_broadcast(&b->changed);
    uv_mutex_unlock(&b->mutex);
}

void kin_cluster_board_set_broken(kin_cluster_board *b, const char *why) {
    uv_mutex_lock(&b->mutex);
    snprintf(b->snapshot.broken, sizeof b->snapshot.broken, "%s", why);
    uv_mutex_unlock(&b->mutex);
}

void kin_cluster_board_wake(kin_cluster_board *b) {
    uv_mutex_lock(&b->mutex);
    uv_cond_broadcast(&b->changed);
    uv_mutex_unlock(&b->mutex);
}

uint32_t kin_cluster_board_read_wrong(kin_cluster_board *b, kin_err *why) {
    uv_mutex_lock(&b->mutex);
    *why = b->wrong;
    uint32_t epoch = b->wrong_epoch;
    uv_mutex_unlock(&b->mutex);
    return epoch;
}

// ---- the computing thread

void kin_cluster_board_read(kin_cluster_board *b, kin_cluster_snapshot *out) {
    uv_mutex_lock(&b->mutex);
    *out = b->snapshot;
    uv_mutex_unlock(&b->mutex);
}

bool kin_cluster_board_wait(kin_cluster_board *b, kin_cluster_snapshot *seen, uint64_t ns) {
    uv_mutex_lock(&b->mutex);
    if (b->snapshot.version == seen->version) uv_cond_timedwait(&b->changed, &b->mutex, ns);
    bool is_newer = b->snapshot.version != seen->version;
    *seen = b->snapshot;
    uv_mutex_unlock(&b->mutex);
    return is_newer;
}

void kin_cluster_board_read_broken(kin_cluster_board *b, kin_err *why) {
    uv_mutex_lock(&b->mutex);
    kin_err_set(why, "%s", b->snapshot.broken[0] ? b->snapshot.broken : "the ring is broken");
    uv_mutex_unlock(&b->mutex);
}

void kin_cluster_board_set_wrong(kin_cluster_board *b, uint32_t epoch, const char *why) {
    uv_mutex_lock(&b->mutex);
    kin_err_set(&b->wrong, "%s", why);
    b->wrong_epoch = epoch;
    uv_mutex_unlock(&b->mutex);
}
