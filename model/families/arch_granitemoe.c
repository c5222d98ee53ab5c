// granitemoe: Granite 3 with experts, and, if the file has it, a shared expert.
#include "model/families/granite.h"

static void read_granitemoe_keys(kin_hparams *hp, kin_meta *k) {
    kin_granite_read(hp, k);
    hp->has_no_rope = false;
    hp->n_ff_exp = hp->n_ff;
    hp->n_ff_shared = kin_meta_int(k, "expert_shared_feed_forward_length", 0, 0, 1 << 20);
}

static kin_weight_set require_granitemoe_weights(const kin_hparams *hp, const kin_layer *layer) {
    (void)layer;
    return hp->n_ff_shared > 0 ? KIN_WEIGHT_SET(KIN_WEIGHTS_ATTENTION, KIN_WEIGHTS_EXPERTS, KIN_WEIGHTS_SHARED)
                               : KIN_WEIGHT_SET(KIN_WEIGHTS_ATTENTION, KIN_WEIGHTS_EXPERTS);
}

const kin_arch kin_arch_granitemoe = {
    .name = "granitemoe",
    .title = "Granite 3 with experts (1B-A400M, 3B-A800M)",
    .read = read_granitemoe_keys,
    .required = require_granitemoe_weights,
};
