#include "pure/plan/simulate.h"

#include <math.h>

void kin_simulate_init(kin_simulation *p, double ring_bytes, double disk_bytes_s, double read_start_s) {
    p->ring_bytes = ring_bytes, p->disk_bytes_s = disk_bytes_s;
    p->read_end = read_start_s;
    p->n_read = p->n_released = 0;
}

int kin_simulate_blocks(const kin_model_facts *m, double heads, double ff,
                        kin_simulation_block blocks[KIN_SIMULATE_MAX_COMPUTE_BLOCKS]) {
    double layer = kin_facts_bytes_sum(m->layer_bytes), attn = m->attn_bytes > 0 ? m->attn_bytes : layer / 4, ffn = layer - attn;
    double expert_bytes = kin_facts_bytes_sum(m->expert_bytes), computed = layer + m->expert_share * expert_bytes;
    double attn_share = computed > 0 ? attn / computed : 1;
    blocks[0] = (kin_simulation_block){1, heads * attn, attn_share};
    if (expert_bytes > 0) {
        blocks[1] = (kin_simulation_block){1, ff * ffn, 1 - attn_share};
        blocks[2] = (kin_simulation_block){0};
        return 2;
    }
    blocks[1] = (kin_simulation_block){2, ff * 2 * ffn / 3, (1 - attn_share) * 2 / 3};
    blocks[2] = (kin_simulation_block){1, ff * ffn / 3, (1 - attn_share) / 3};
    return KIN_SIMULATE_MAX_WEIGHT_BLOCKS;
}

// Reads the next streamed weight block as early as disk and room allow. Returns when it has arrived.
static double read_weight_block(kin_simulation *p, double bytes) {
    double room = p->ring_bytes - bytes;
    for (unsigned i = p->n_read; i > 0 && i + KIN_SIMULATE_REMEMBERED > p->n_read + 1;) {
        room -= p->read_bytes[--i % KIN_SIMULATE_REMEMBERED];
        double left_s = p->released[i % KIN_SIMULATE_REMEMBERED];
        if (room >= 0 || isinf(left_s)) continue; // of the same block: the ring is large enough for it
        p->read_end = fmax(p->read_end, left_s);  // this block and all before it must have left
        break;
    }
    p->read_bytes[p->n_read % KIN_SIMULATE_REMEMBERED] = bytes;
    p->released[p->n_read++ % KIN_SIMULATE_REMEMBERED] = INFINITY;
    return p->read_end += bytes / p->disk_bytes_s;
}

double kin_simulate_compute(kin_simulation *p, double now, int n, const uint64_t *bytes, const bool *resident, double compute_s) {
    for (int i = 0; i < n; i++) {
        if (!resident[i]) now = fmax(now, read_weight_block(p, (double)bytes[i]));
    }
    now += compute_s;
    for (; p->n_released < p->n_read; p->n_released++) p->released[p->n_released % KIN_SIMULATE_REMEMBERED] = now;
    return now;
}
