#include "model/families/sinkhorn.h"

#include "model/streams.h"

void kin_sinkhorn_read(kin_hparams *hp, kin_meta *k, kin_streams_kind kind) {
    hp->n_streams = kin_meta_int(k, "hyper_connection.count", KIN_KEY_REQUIRED, 2, KIN_STREAMS_MAX);
    hp->streams = kind;
    hp->sinkhorn.n_iterations = kin_meta_int(k, "hyper_connection.sinkhorn_iterations", KIN_KEY_REQUIRED, 1, 1000);
    hp->sinkhorn.eps = kin_meta_float(k, "hyper_connection.epsilon", KIN_KEY_REQUIRED, 0, 1);
    if (!k->failed && (int64_t)hp->n_streams * hp->n_embd > 1 << 20)
        kin_meta_fail(k, "%d residual streams of %d numbers are too many", hp->n_streams, hp->n_embd);
}

void kin_sinkhorn_read_limits(kin_layer *layer, kin_meta *k, int i_block) {
    const float limit = kin_meta_float_at(k, "swiglu_clamp_exp", i_block, 0, 0, 1e6f);
    const float shared = kin_meta_float_at(k, "swiglu_clamp_shexp", i_block, limit, 0, 1e6f);
    layer->limit_exps = limit < 1e-6f ? 0 : limit;
    layer->limit_shared = shared < 1e-6f ? 0 : shared;
}
