#include "cluster/head/plans.h"

#include <stdlib.h>
#include <string.h>

int kin_cluster_plans_open(kin_cluster_plans *p, const kin_cluster_options *options, kin_err *err) {
    *p = (kin_cluster_plans){.o = options,
                             .active = calloc(1, sizeof *p->active),
                             .next = calloc(1, sizeof *p->next),
                             .asked = calloc(1, sizeof *p->asked),
                             .message = calloc(1, sizeof *p->message)};
    return p->active && p->next && p->asked && p->message ? 0 : kin_err_set(err, "out of memory");
}

void kin_cluster_plans_close(kin_cluster_plans *p) {
    free(p->active);
    free(p->next);
    free(p->asked);
    free(p->message);
}

const kin_assignment *kin_cluster_plans_answer(const kin_cluster_plans *p, uint32_t question) {
    return p->next->question == question ? p->next : p->asked;
}

static void swap(kin_assignment **a, kin_assignment **b) {
    kin_assignment *before = *a;
    *a = *b;
    *b = before;
}

void kin_cluster_plans_activate(kin_cluster_plans *p, uint32_t question) {
    swap(&p->active, p->next->question == question ? &p->next : &p->asked);
}

void kin_cluster_plans_keep_next(kin_cluster_plans *p) {
    swap(&p->next, &p->asked);
}

void kin_cluster_plans_fill(const kin_cluster_plans *p, const kin_assignment *of, int i, kin_proto_plan *plan) {
    const kin_shard_options *so = &p->o->shard;
    const kin_device_options *devices = &p->o->devices->options;
    memset(plan, 0, sizeof *plan);
    memcpy(plan->model.bytes, p->o->manifest->hash, sizeof plan->model.bytes);
    plan->n_files = p->o->manifest->n_files;
    for (int k = 0; k < plan->n_files; k++) plan->file_size[k] = p->o->manifest->files[k].size;
    plan->n_ctx = (uint32_t)so->n_ctx;
    plan->n_batch = (uint32_t)(so->n_batch < so->n_ctx ? so->n_batch : so->n_ctx);
    plan->n_seq = (uint16_t)(so->n_ctx < KIN_CLUSTER_SEQUENCES - 1 ? so->n_ctx : KIN_CLUSTER_SEQUENCES - 1);
    plan->kv_type = so->kv_type == GGML_TYPE_Q8_0 ? KIN_PROTO_KV_Q8_0 : KIN_PROTO_KV_F16;
    plan->wire_type = p->o->wire_type;
    plan->flags = (so->flash ? KIN_PROTO_PLAN_FLASH : 0) | (devices->repack ? KIN_PROTO_PLAN_REPACK : 0) |
                  (devices->ggml_kernels ? KIN_PROTO_PLAN_GGML : 0) | (p->o->timeline ? KIN_PROTO_PLAN_TIMELINE : 0);
    if (kin_kv_window_of(&p->o->model->hp, so->n_ctx, (int)plan->n_batch, so->n_sequences).n_blocks > 0) {
        plan->flags |= KIN_PROTO_PLAN_WINDOWS;
        plan->n_sequences = (uint16_t)so->n_sequences;
    }
    plan->mode = so->mode == KIN_STREAM_MMAP       ? KIN_PROTO_MMAP
                 : so->mode == KIN_STREAM_WILLNEED ? KIN_PROTO_WILLNEED
                 : so->sliding.n_blocks > 0        ? KIN_PROTO_WINDOW
                                                   : KIN_PROTO_STREAM;
    plan->sliding_blocks = (uint16_t)so->sliding.n_blocks;
    plan->sliding_retain = (uint16_t)so->sliding.retain;
    plan->n_threads = (uint16_t)p->o->n_threads_hint;
    kin_assignment_fill(of, i, plan);
}
