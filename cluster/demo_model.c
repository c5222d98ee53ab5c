#include "cluster/demo_model.h"

#include "base/embed.h"

KIN_EMBED(kin_demo_model, KIN_DEMO_MODEL)

const uint8_t *kin_demo_model_bytes(void) {
    return kin_demo_model_begin;
}

size_t kin_demo_model_size(void) {
    return (size_t)(kin_demo_model_end - kin_demo_model_begin);
}
