#include "model/streams.h"

#include <string.h>

static const kin_streams_mixer *const mixers[KIN_STREAMS_KINDS] = {
    [KIN_STREAMS_SINKHORN] = &kin_streams_sinkhorn,
    [KIN_STREAMS_SINKHORN_MEAN] = &kin_streams_sinkhorn_mean,
    [KIN_STREAMS_GATED] = &kin_streams_gated,
};

const kin_streams_mixer *kin_streams_of(const kin_hparams *hp) {
    return mixers[hp->streams];
}

void kin_streams_average(const kin_kernels *kernels, int n_streams, int64_t n, const float *x, float *y) {
    memset(y, 0, (size_t)n * sizeof *y);
    for (int s = 0; s < n_streams; s++) kernels->add_scaled(n, 1 / (float)n_streams, x + s * n, y);
}

bool kin_streams_end_at(const kin_hparams *hp, int i, kin_streams_end *out) {
    const kin_streams_mixer *mixer = kin_streams_of(hp);
    return mixer && i < KIN_STREAM_ENDS && mixer->end_at(hp, i, out);
}

bool kin_streams_draft_end_at(const kin_hparams *hp, int i, kin_streams_end *out) {
    const kin_streams_mixer *mixer = kin_streams_of(hp);
    return mixer && mixer->draft_end_at && mixer->draft_end_at(hp, i, out);
}
