#include "model/streams.h"

static const kin_streams_mixer *const mixers[KIN_STREAMS_KINDS] = {
    [KIN_STREAMS_SINKHORN] = &kin_streams_sinkhorn,
    [KIN_STREAMS_GATED] = &kin_streams_gated,
};

const kin_streams_mixer *kin_streams_of(const kin_hparams *hp) {
    return mixers[hp->streams];
}

bool kin_streams_end_at(const kin_hparams *hp, int i, kin_streams_end *out) {
    const kin_streams_mixer *mixer = kin_streams_of(hp);
    return mixer && i < KIN_STREAM_ENDS && mixer->end_at(hp, i, out);
}

bool kin_streams_draft_end_at(const kin_hparams *hp, int i, kin_streams_end *out) {
    const kin_streams_mixer *mixer = kin_streams_of(hp);
    return mixer && mixer->draft_end_at && mixer->draft_end_at(hp, i, out);
}
