#include "testkit/equal_devices.h"

#include <stddef.h>

void kin_equal_devices(kin_facts *f, int n, double rtt_s) {
    *f = (kin_facts){.n_device = n, .work = {.n_ctx = 1024, .n_cached = 128, .n_prompt = 128, .n_batch = 128}};
    for (int i = 0; i < n; i++) {
        kin_device_facts *d = &f->devices[i];
        d->name[0] = (char)('a' + i);
        for (int q = 0; q < KIN_N_QUANT; q++) {
            d->cpu.token_bytes_s[q] = 45e9;
            d->cpu.prompt_flop_s[q] = 2e11;
        }
        d->cpu.read_bytes_s = d->cpu.kv_bytes_s = d->cpu.prompt_read_bytes_s = 2e10;
        d->memory_bytes = 16e9;
        d->disk_bytes_s = d->disk_random_bytes_s = 1e9;
        for (int k = 0; k < n; k++) f->links[i][k] = (kin_link_facts){rtt_s, 1.25e8};
    }
    kin_model_facts *m = &f->model;
    *m = (kin_model_facts){.n_layer = 32, .n_vocab = 128256, .hidden_bytes = 4 * 4096, .kv_bytes = 4096, .kv_reads = 4};
    m->layer_bytes[KIN_QUANT_Q4_K] = 124e6;
    m->layer_flops[KIN_QUANT_Q4_K] = 4.36e8;
    m->attn_bytes = 24e6;
    m->output_bytes[KIN_QUANT_Q4_K] = 295e6;
    m->output_flops[KIN_QUANT_Q4_K] = 1e9;
    m->block_bytes = 33e6;
    m->weight_block_bytes = 33e6;
    m->input_bytes = 295e6;
    m->share_heads = 8;
    m->share_ff = 56;
    kin_facts_set_shares(m, NULL);
}
