#include "testkit/paper_clusters.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static const double GIB = 1024.0 * 1024 * 1024;

// ---- models: Q4_K_M, a quarter or half of some tensors in Q6_K

typedef struct model_row {
    const char *name;
    int n_layer, n_embd, n_ff, n_vocab, n_kv; // n_kv: width of keys
} model_row;

static const model_row models[KIN_N_PAPER_MODEL] = {
    [KIN_PAPER_8B] = {"Llama 3 8B", 32, 4096, 14336, 128256, 1024},
    [KIN_PAPER_14B] = {"Llama 3 14B", 60, 4096, 14336, 128256, 1024}, // the 8B with more layers
    [KIN_PAPER_30B] = {"Llama 1 30B", 60, 6656, 17920, 32000, 6656},
    [KIN_PAPER_45B] = {"Llama 3 45B", 50, 8192, 28672, 128256, 1024}, // the 70B with fewer
    [KIN_PAPER_60B] = {"Llama 3 60B", 68, 8192, 28672, 128256, 1024},
    [KIN_PAPER_65B] = {"Llama 1 65B", 80, 8192, 22016, 32000, 8192},
    [KIN_PAPER_70B] = {"Llama 3 70B", 80, 8192, 28672, 128256, 1024},
};

static const double Q4_K_BYTES = 4.5 / 8, Q6_K_BYTES = 6.5625 / 8; // per weight
static const double TILE_BYTES = 16 << 20;

static void set_model(kin_facts *f, const model_row *row) {
    double embd = row->n_embd, ff = embd * row->n_ff, attn = 2 * embd * embd + 2 * embd * row->n_kv;
    double q6 = 0.5 * (embd * row->n_kv + ff), q4 = attn + 3 * ff - q6; // half of attn_v and ffn_down
    kin_model_facts *m = &f->model;
    *m = (kin_model_facts){.n_layer = row->n_layer, .n_vocab = row->n_vocab, .hidden_bytes = 4 * embd};
    m->layer_bytes[KIN_QUANT_Q4_K] = q4 * Q4_K_BYTES;
    m->layer_bytes[KIN_QUANT_Q6_K] = q6 * Q6_K_BYTES;
    m->layer_flops[KIN_QUANT_Q4_K] = 2 * q4;
    m->layer_flops[KIN_QUANT_Q6_K] = 2 * q6;
    m->output_bytes[KIN_QUANT_Q6_K] = embd * row->n_vocab * Q6_K_BYTES;
    m->output_flops[KIN_QUANT_Q6_K] = 2 * embd * row->n_vocab;
    m->input_bytes = embd * row->n_vocab * Q4_K_BYTES;
    m->attn_bytes = attn * Q4_K_BYTES + 0.5 * embd * row->n_kv * (Q6_K_BYTES - Q4_K_BYTES);
    m->block_bytes = 2 * ff * Q4_K_BYTES; // gate and up; attention and down, even in Q6_K, are smaller
    m->layer_blocks = 3;
    m->output_blocks = ceil(m->output_bytes[KIN_QUANT_Q6_K] / TILE_BYTES);
    m->weight_block_bytes =
        (row->n_layer * kin_facts_layer_bytes(m) + m->output_bytes[KIN_QUANT_Q6_K]) / (4 * row->n_layer + m->output_blocks);
    m->kv_bytes = 2 * 2 * row->n_kv;
    m->cpu_buffer_bytes = 0.3 * GIB;
    m->gpu_buffer_bytes = 1.5 * GIB; // so that the 3090, 4060 Ti and 2080 Ti hold 46, 13 and 19 layers of the 70B, as in A.19.2
    kin_facts_set_shares(m, NULL);
    f->work = (kin_work_facts){.n_ctx = 1024, .n_cached = 128, .n_prompt = 16, .n_batch = 512};
}

// ---- devices

typedef struct device_row {
    const char *name;
    kin_os os;
    double cpu_gb_s, cpu_gflop_s, memory_gib;
    double gpu_gb_s, gpu_gflop_s, gpu_gib; // 0: no GPU
    bool uma;
    double disk_gb_s;
} device_row;

// clang-format off
static const device_row table_3[] = {
    {"D3", KIN_OS_LINUX,   45, 300, 9.7, 400, 10000, 11, false, 3.0}, // i9, 16 cores, 2080 Ti
    {"D2", KIN_OS_LINUX,   40, 200, 4.1, 300,  8000,  8, false, 3.0}, // i9, 8 cores, 3070
    {"D1", KIN_OS_MACOS,   55, 150, 2.4,   0,     0,  0, false, 0.7}, // M1; its GPU is not in the paper's figures
    {"D4", KIN_OS_ANDROID, 15,  50, 1.9,   0,     0,  0, false, 1.4}, // Kirin 9000
    {"D5", KIN_OS_ANDROID, 18,  60, 5.1,   0,     0,  0, false, 2.0}, // Dimensity 8100
    {"D6", KIN_OS_MACOS,   14,  40, 6.8,   0,     0,  0, false, 0.4}, // i5, 4 cores
};
static const device_row table_a4[] = {
    {"laptop",   KIN_OS_LINUX,   40, 250, 23, 250, 7000,  6, false, 2.0}, // 3060
    {"host PC",  KIN_OS_LINUX,   35, 200,  5, 280, 6000, 11, false, 2.0}, // 1080 Ti
    {"Mac Mini", KIN_OS_MACOS,   50, 150, 10,  60, 2500,  7, true,  2.0},
    {"phone",    KIN_OS_ANDROID, 15,  50,  7,   0,    0,  0, false, 1.5}, // Redmi
};
static const device_row table_11[] = {
    {"D2", KIN_OS_LINUX, 40, 300,  8, 600, 20000, 24, false, 1.23}, // 3090
    {"D0", KIN_OS_LINUX, 40, 250, 32, 200, 12000,  8, false, 0.56}, // 4060 Ti
    {"D1", KIN_OS_LINUX, 30, 150, 32,   0,     0,  0, false, 1.89},
    {"D3", KIN_OS_LINUX, 40, 300, 16,   0,     0,  0, false, 2.64},
    {"D4", KIN_OS_LINUX, 35, 250, 16, 280,  5900, 11, false, 0.32}, // 1080 Ti
    {"D5", KIN_OS_LINUX, 35, 200, 24, 280,  6000, 11, false, 1.57}, // 1080 Ti
    {"D6", KIN_OS_LINUX, 35, 250, 32, 400, 10000, 11, false, 2.67}, // 2080 Ti
    {"D7", KIN_OS_MACOS, 60, 200, 16,  70,  2500, 11, true,  2.36},
    {"D8", KIN_OS_LINUX, 30, 140, 32,   0,     0,  0, false, 3.33},
    {"D9", KIN_OS_MACOS, 50, 150, 16,  55,  2400, 11, true,  3.88},
};
// clang-format on

typedef struct cluster_row {
    const char *name;
    const device_row *devices;
    int n_device;
    double memory_share; // fraction of the table's GiB that is available for the model
    double rtt_s, bytes_s;
} cluster_row;

static const cluster_row clusters[KIN_N_PAPER_CLUSTER] = {
    // 3 to 7 ms one way, 320 to 610 Mbit/s
    [KIN_PAPER_TABLE_3] = {"Table 3", table_3, 6, 1, 10e-3, 55e6},
    [KIN_PAPER_A4] = {"A.4", table_a4, 4, 1, 10e-3, 55e6},
    // total RAM; "high-latency Wi-Fi"
    [KIN_PAPER_TABLE_11] = {"Table 11", table_11, 10, 0.8, 20e-3, 55e6},
};

static void set_engine(kin_engine_facts *e, double gb_s, double gflop_s) {
    for (int q = 0; q < KIN_N_QUANT; q++) e->token_bytes_s[q] = gb_s * 1e9, e->prompt_flop_s[q] = gflop_s * 1e9;
    e->read_bytes_s = gb_s * 1e9;
    e->kv_copy_s = 5e-6;
}

static void set_device(kin_device_facts *d, const device_row *row, double memory_share) {
    *d = (kin_device_facts){.os = row->os, .has_gpu = row->gpu_gib > 0, .uma = row->uma};
    snprintf(d->name, sizeof d->name, "%s", row->name);
    set_engine(&d->cpu, row->cpu_gb_s, row->cpu_gflop_s);
    set_engine(&d->gpu, row->gpu_gb_s, row->gpu_gflop_s);
    d->memory_bytes = memory_share * row->memory_gib * GIB;
    d->gpu_memory_bytes = row->gpu_gib * GIB;
    d->disk_bytes_s = d->disk_random_bytes_s = row->disk_gb_s * 1e9;
    d->to_gpu_s = d->from_gpu_s = 30e-6;
    d->gpu_copy_bytes_s = 5e9;
    d->window_s = 100e-6;
}

const char *kin_paper_cluster_name(kin_paper_cluster cluster) {
    return clusters[cluster].name;
}

const char *kin_paper_model_name(kin_paper_model model) {
    return models[model].name;
}

void kin_paper_facts(kin_facts *f, kin_paper_cluster cluster, kin_paper_model model, int n_device) {
    const cluster_row *row = &clusters[cluster];
    *f = (kin_facts){.n_device = n_device > 0 ? n_device : row->n_device};
    set_model(f, &models[model]);
    for (int i = 0; i < f->n_device; i++) {
        set_device(&f->devices[i], &row->devices[i], row->memory_share);
        for (int to = 0; to < f->n_device; to++) f->links[i][to] = (kin_link_facts){row->rtt_s, row->bytes_s};
    }
}

int kin_paper_device(const kin_facts *f, const char *name) {
    for (int i = 0; i < f->n_device; i++) {
        if (strcmp(f->devices[i].name, name) == 0) return i;
    }
    return -1;
}
