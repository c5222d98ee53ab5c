#include "testkit/runner.h"

kin_runner_options kin_runner_options_defaults(void) {
    return (kin_runner_options){
        .device = kin_device_options_defaults(),
        .n_ctx = 256,
        .n_batch = 64,
        .kv_type = GGML_TYPE_F16,
        .flash = true,
    };
}

static int open_shard(kin_runner *r, const kin_runner_options *o, kin_err *err) {
    kin_shard_options so = kin_shard_options_defaults(&r->model);
    so.windows.at[0].n_gpu_layers = (int)(o->gpu_share * r->model.hp.n_layer);
    so.windows.at[0].n_cpu_moe = (int)(o->moe_share * so.windows.at[0].n_gpu_layers);
    so.n_ctx = o->n_ctx;
    so.n_batch = o->n_batch;
    so.kv_type = o->kv_type;
    so.flash = o->flash;
    so.cache_dir = o->cache_dir;
    so.kv_disk.dir = o->kv_dir;
    so.memory = o->memory;
    so.keeps_output = o->keeps_output;
    so.mode = o->mode;
    return kin_shard_open(&r->shard, &r->model, &r->devices, &so, err);
}

int kin_runner_open(kin_runner *r, const char *path, const kin_runner_options *o, kin_err *err) {
    *r = (kin_runner){0};
    if (kin_model_open(&r->model, path, err) != 0) return KIN_FAIL;
    kin_device_options device = o->device;
    device.gpu = device.gpu || o->gpu_share > 0;
    if (kin_devices_open(&r->devices, &device, err) != 0 || open_shard(r, o, err) != 0 ||
        kin_loopback_head_open(&r->alone, &r->model, r->shard, o->n_batch, err) != 0) {
        kin_runner_close(r);
        return KIN_FAIL;
    }
    r->head = r->alone.head;
    return 0;
}

void kin_runner_close(kin_runner *r) {
    kin_loopback_head_close(&r->alone);
    kin_shard_close(r->shard);
    kin_devices_close(&r->devices);
    kin_model_close(&r->model);
    *r = (kin_runner){0};
}
