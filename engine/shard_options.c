#include "engine/shard_options.h"

#include "model/border.h"
#include "model/kernel/ops.h"

kin_shard_options kin_shard_options_defaults(const kin_model *model) {
    return (kin_shard_options){
        .windows = kin_windows_one(0, model->hp.n_layer, 0),
        .n_ctx = model->hp.n_ctx_train < 4096 ? model->hp.n_ctx_train : 4096,
        .n_batch = 512,
        .n_steps = 1,
        .kv_type = GGML_TYPE_F16,
        .flash = true,
        .output = true,
    };
}

int kin_shard_check_kernels(const kin_model *model, const kin_shard_options *o, kin_err *why) {
    kin_hparams hp = kin_share_hparams(&o->share, model);
    if (o->ggml_kernels) return kin_err_set(why, "they are disabled by --kernels ggml");
    if (!o->flash) return kin_err_set(why, "they are disabled by --no-flash");
    return kin_ops_check(&hp, o->kv_type, why);
}

bool kin_shard_has_kernels(const kin_model *model, const kin_shard_options *o) {
    return kin_shard_check_kernels(model, o, NULL) == 0;
}

// Only kin's kernels read keys and values through a table of blocks.
kin_kv_options kin_shard_kv_options(const kin_model *model, const kin_shard_options *o) {
    kin_kv_options kv = {.windows = o->windows, .n_ctx = o->n_ctx, .type = o->kv_type};
    if (kin_shard_has_kernels(model, o)) kv.window = kin_kv_window_of(&model->hp, o->n_ctx, o->n_batch, o->n_sequences);
    return kv;
}

bool kin_shard_is_whole(const kin_model *model, const kin_shard_options *o) {
    return o->output && kin_share_is_whole(&o->share) && kin_windows_n_layers(&o->windows) == model->hp.n_layer;
}

// A lost layer can be recomputed from logged hidden states only if these are all of its input: not in a group, whose members
// share each layer; not with recurrent states or windows, which need what came before; not where tokens or other rows cross the
// border too.
bool kin_shard_has_borders(const kin_model *model, const kin_shard_options *o) {
    const kin_kv_options kv = kin_shard_kv_options(model, o);
    return kin_share_is_whole(&o->share) && !kin_hparams_has_states(&model->hp) && kin_hparams_token_layers(&model->hp) == 0 &&
           kin_border_is_plain(&model->hp) && kv.window.n_blocks == 0;
}
