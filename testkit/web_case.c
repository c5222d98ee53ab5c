#include "testkit/web_case.h"

#include <stdlib.h>

#include "base/bytes.h"
#include "base/rng.h"
#include "pipeline/engine_instance.h"

struct kin_web_case {
    kin_web_case_options o;
    kin_engine_instance *engine;
    kin_message_pool *pool;
    kin_steps steps;
    kin_rng rng;
    uint64_t step;
    float *x;           // f32 [n_batch, n_embd]
    int32_t *pos, *seq; // [n_batch]
};

static int write_part(FILE *f, const uint8_t *bytes, size_t n, kin_err *err) {
    uint8_t length[4];
    kin_put_u32(length, (uint32_t)n);
    if (!f || (fwrite(length, 1, 4, f) == 4 && fwrite(bytes, 1, n, f) == n)) return 0;
    return kin_err_set(err, "a case cannot be written");
}

static kin_proto_plan plan_of(const kin_model *m, const kin_web_case_options *o) {
    int end = o->n_layers ? o->n_layers : m->hp.n_layer, middle = end / 2;
    return (kin_proto_plan){
        .n_files = 1,
        .file_size = {kin_gguf_file_size(m->gguf, 0)},
        .n_ctx = (uint32_t)o->n_ctx,
        .n_batch = (uint32_t)o->n_batch,
        .n_seq = 4,
        .kv_type = o->kv_type,
        .wire_type = KIN_ACTIVATION_F32,
        .flags = KIN_PROTO_PLAN_FLASH | KIN_PROTO_PLAN_REPACK,
        .n_rounds = 2,
        .n_windows = 2,
        .window = {{.round = 0, .layer_begin = 0, .layer_end = (uint16_t)middle},
                   {.round = 1, .layer_begin = (uint16_t)middle, .layer_end = (uint16_t)end}},
    };
}

static int open_case(kin_web_case *c, kin_err *err) {
    static atomic_bool stop;
    kin_model model;
    if (kin_model_open(&model, c->o.model_path, err) != 0) return KIN_FAIL;
    kin_proto_plan plan = plan_of(&model, &c->o);
    size_t n = (size_t)c->o.n_batch;
    c->steps = kin_engine_instance_steps(&plan, &model.hp);
    c->x = malloc(n * (size_t)c->steps.n_embd * sizeof *c->x);
    c->pos = malloc(n * sizeof *c->pos);
    c->seq = malloc(n * sizeof *c->seq);
    kin_model_close(&model);
    kin_rng_seed(&c->rng, 7);
    if (!c->x || !c->pos || !c->seq) return kin_err_set(err, "out of memory");
    if (kin_message_pool_open(&c->pool, 4, err) != 0) return KIN_FAIL;
    const kin_engine_instance_options eo = {
        .model_path = c->o.model_path, .n_threads = c->o.n_threads, .pool = c->pool, .stop = &stop};
    if (kin_engine_instance_open(&c->engine, &plan, &eo, err) != 0) return KIN_FAIL;
    uint8_t bytes[KIN_FRAME_CAP_SMALL];
    return write_part(c->o.given, bytes, kin_proto_encode_plan(bytes, sizeof bytes, &plan), err);
}

int kin_web_case_open(kin_web_case **out, const kin_web_case_options *options, kin_err *err) {
    *out = NULL;
    kin_web_case *c = calloc(1, sizeof *c);
    if (!c) return kin_err_set(err, "out of memory");
    c->o = *options;
    if (open_case(c, err) != 0) {
        kin_web_case_close(c);
        return KIN_FAIL;
    }
    *out = c;
    return 0;
}

void kin_web_case_close(kin_web_case *c) {
    if (!c) return;
    kin_engine_instance_close(c->engine);
    kin_message_pool_close(c->pool);
    free(c->seq);
    free(c->pos);
    free(c->x);
    free(c);
}

// The output of the first round is the input of the second.
static int check_result(kin_web_case *c, const kin_message_buffer *b, kin_err *err) {
    kin_proto_step said;
    if (write_part(c->o.expected, b->payload, b->frame.length, err) != 0) return KIN_FAIL;
    if (kin_steps_check(&c->steps, b, &said, err) != 0) return KIN_FAIL;
    kin_activations_decode(c->x, said.activations, (size_t)said.n_rows * (size_t)c->steps.n_embd, c->steps.type);
    return 0;
}

int kin_web_case_step(kin_web_case *c, int32_t seq, int32_t pos, int n, const kin_kv_op *ops, int n_ops, uint64_t *ns,
                      kin_err *err) {
    const int32_t out = n - 1;
    for (int i = 0; i < n; i++) {
        c->pos[i] = pos + i;
        c->seq[i] = seq;
    }
    for (int i = 0; i < n * c->steps.n_embd; i++) c->x[i] = (float)(4 * kin_rng_unit(&c->rng) - 2);
    const kin_batch batch = {.n_tokens = n, .pos = c->pos, .seq = c->seq, .out = &out, .n_out = 1, .ops = ops, .n_ops = n_ops};
    kin_worker *worker = kin_engine_instance_worker(c->engine);
    uint64_t before = kin_worker_get_stats(worker).compute_ns;
    c->step++;
    for (int round = 0; round < 2; round++) {
        const kin_hop hop = {.step = c->step, .round = round, .n_rows = n};
        kin_message_buffer *b = kin_steps_pack(&c->steps, c->pool, 1, &hop, &batch, c->x);
        if (!b) return kin_err_set(err, "out of memory");
        int rc = write_part(c->o.given, b->payload, b->frame.length, err);
        if (kin_worker_handle(worker, &b, err) != 0) return KIN_FAIL;
        if (rc == 0) rc = check_result(c, b, err);
        kin_message_pool_give(c->pool, b);
        if (rc != 0) return KIN_FAIL;
    }
    *ns = kin_worker_get_stats(worker).compute_ns - before;
    return 0;
}
