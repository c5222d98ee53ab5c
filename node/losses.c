#include "node/losses.h"

bool kin_losses_add(kin_losses *l, uint64_t progress) {
    if (progress > l->progress) l->n = 0;
    l->progress = progress;
    if (++l->n <= KIN_LOSSES_MOST) return true;
    l->n = 0;
    return false;
}
