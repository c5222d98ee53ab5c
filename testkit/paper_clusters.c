#include "testkit/paper_clusters.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static const double GIB = 1024.0 * 1024 * 1024;

// ---- models: Q4_K_M, half of some tensors in Q6_K, or all in F32

typedef struct model_row {
    const char *name, *id;
    int n_layer, n_embd, n_ff, n_vocab, n_kv; // n_kv: width of keys
    bool f32;
} model_row;

static const model_row models[KIN_N_PAPER_MODEL] = {
    [KIN_PAPER_8B] = {"Llama 3 8B", "8b", 32, 4096, 14336, 128256, 1024, false},
    [KIN_PAPER_14B] = {"Llama 3 14B", "14b", 60, 4096, 14336, 128256, 1024, false}, // the 8B with more layers
    [KIN_PAPER_30B] = {"Llama 1 30B", "30b", 60, 6656, 17920, 32000, 6656, false},
    [KIN_PAPER_45B] = {"Llama 3 45B", "45b", 50, 8192, 28672, 128256, 1024, false}, // the 70B with fewer
    [KIN_PAPER_60B] = {"Llama 3 60B", "60b", 68, 8192, 28672, 128256, 1024, false},
    [KIN_PAPER_65B] = {"Llama 1 65B", "65b", 80, 8192, 22016, 32000, 8192, false},
    [KIN_PAPER_70B] = {"Llama 3 70B", "70b", 80, 8192, 28672, 128256, 1024, false},
    // Tables 9, 10 and 12
    [KIN_PAPER_QWEN_7B] = {"Qwen 2.5 7B", "qwen-7b", 28, 3584, 18944, 152064, 512, false},
    [KIN_PAPER_QWEN_14B] = {"Qwen 2.5 14B", "qwen-14b", 48, 5120, 13824, 152064, 1024, false},
    [KIN_PAPER_QWEN_32B] = {"Qwen 2.5 32B", "qwen-32b", 64, 5120, 27648, 152064, 1024, false},
    [KIN_PAPER_QWEN_72B] = {"Qwen 2.5 72B", "qwen-72b", 80, 8192, 29568, 152064, 1024, false},
    // TPI-LLM, Table 5
    [KIN_PAPER_F32_3B] = {"Llama 2 3B, F32", "f32-3b", 26, 3200, 8640, 32000, 3200, true},
    [KIN_PAPER_F32_7B] = {"Llama 2 7B, F32", "f32-7b", 32, 4096, 11008, 32000, 4096, true},
    [KIN_PAPER_F32_8B] = {"Llama 3.1 8B, F32", "f32-8b", 32, 4096, 14336, 128256, 1024, true},
    [KIN_PAPER_F32_13B] = {"Llama 2 13B, F32", "f32-13b", 40, 5120, 13824, 32000, 5120, true},
    [KIN_PAPER_F32_34B] = {"Yi 34B, F32", "f32-34b", 60, 7168, 20480, 64000, 1024, true},
    // the thesis, Table 7.3; part of n_ff stands for queries that are wider than the embedding
    [KIN_PAPER_THESIS_06B] = {"Qwen 3 0.6B, F32", "thesis-0.6b", 28, 1024, 3755, 151936, 1024, true},
    [KIN_PAPER_THESIS_4B] = {"Qwen 3 4B, F32", "thesis-4b", 36, 2560, 10752, 151936, 1024, true},
};

static const double Q4_K_BYTES = 4.5 / 8, Q6_K_BYTES = 6.5625 / 8; // per weight
static const double TILE_BYTES = 16 << 20;

static void set_model(kin_facts *f, const model_row *row) {
    double embd = row->n_embd, ff = embd * row->n_ff, attn = 2 * embd * embd + 2 * embd * row->n_kv, output = embd * row->n_vocab;
    double n_large = 0.5 * (embd * row->n_kv + ff), n_small = attn + 3 * ff - n_large; // half of attn_v and ffn_down
    const kin_quant small = row->f32 ? KIN_QUANT_F32 : KIN_QUANT_Q4_K, large = row->f32 ? KIN_QUANT_F32 : KIN_QUANT_Q6_K;
    const double small_bytes = row->f32 ? 4 : Q4_K_BYTES, large_bytes = row->f32 ? 4 : Q6_K_BYTES;
    kin_model_facts *m = &f->model;
    *m = (kin_model_facts){.n_layer = row->n_layer, .n_vocab = row->n_vocab, .hidden_bytes = 4 * embd};
    m->layer_bytes[small] = n_small * small_bytes;
    m->layer_bytes[large] += n_large * large_bytes;
    m->layer_flops[small] = 2 * n_small;
    m->layer_flops[large] += 2 * n_large;
    m->output_bytes[large] = output * large_bytes;
    m->output_flops[large] = 2 * output;
    m->input_bytes = output * small_bytes;
    m->attn_bytes = attn * small_bytes + 0.5 * embd * row->n_kv * (large_bytes - small_bytes);
    m->block_bytes = 2 * ff * small_bytes; // gate and up; attention and down, even in Q6_K, are smaller
    m->layer_blocks = 3;
    m->output_blocks = ceil(m->output_bytes[large] / TILE_BYTES);
    m->weight_block_bytes =
        (row->n_layer * kin_facts_layer_bytes(m) + m->output_bytes[large]) / (4 * row->n_layer + m->output_blocks);
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
    double rtt_ms, link_mb_s; // of the way to the centre of a star; 0: the cluster's link
} device_row;

// clang-format off
static const device_row table_3[] = {
    {"D3", KIN_OS_LINUX,   45, 300, 9.7, 400, 10000, 11, false, 3.0, 0, 0}, // i9, 16 cores, 2080 Ti
    {"D2", KIN_OS_LINUX,   40, 200, 4.1, 300,  8000,  8, false, 3.0, 0, 0}, // i9, 8 cores, 3070
    {"D1", KIN_OS_MACOS,   55, 150, 2.4,   0,     0,  0, false, 0.7, 0, 0}, // M1; its GPU is not in the paper's figures
    {"D4", KIN_OS_ANDROID, 15,  50, 1.9,   0,     0,  0, false, 1.4, 0, 0}, // Kirin 9000
    {"D5", KIN_OS_ANDROID, 18,  60, 5.1,   0,     0,  0, false, 2.0, 0, 0}, // Dimensity 8100
    {"D6", KIN_OS_MACOS,   14,  40, 6.8,   0,     0,  0, false, 0.4, 0, 0}, // i5, 4 cores
};
static const device_row table_a4[] = {
    {"laptop",   KIN_OS_LINUX,   40, 250, 23, 250, 7000,  6, false, 2.0, 0, 0}, // 3060
    {"host PC",  KIN_OS_LINUX,   35, 200,  5, 280, 6000, 11, false, 2.0, 0, 0}, // 1080 Ti
    {"Mac Mini", KIN_OS_MACOS,   50, 150, 10,  60, 2500,  7, true,  2.0, 0, 0},
    {"phone",    KIN_OS_ANDROID, 15,  50,  7,   0,    0,  0, false, 1.5, 0, 0}, // Redmi
};
static const device_row table_11[] = {
    {"D2", KIN_OS_LINUX, 40, 300,  8, 600, 20000, 24, false, 1.23, 0, 0}, // 3090
    {"D0", KIN_OS_LINUX, 40, 250, 32, 200, 12000,  8, false, 0.56, 0, 0}, // 4060 Ti
    {"D1", KIN_OS_LINUX, 30, 150, 32,   0,     0,  0, false, 1.89, 0, 0},
    {"D3", KIN_OS_LINUX, 40, 300, 16,   0,     0,  0, false, 2.64, 0, 0},
    {"D4", KIN_OS_LINUX, 35, 250, 16, 280,  5900, 11, false, 0.32, 0, 0}, // 1080 Ti
    {"D5", KIN_OS_LINUX, 35, 200, 24, 280,  6000, 11, false, 1.57, 0, 0}, // 1080 Ti
    {"D6", KIN_OS_LINUX, 35, 250, 32, 400, 10000, 11, false, 2.67, 0, 0}, // 2080 Ti
    {"D7", KIN_OS_MACOS, 60, 200, 16,  70,  2500, 11, true,  2.36, 0, 0},
    {"D8", KIN_OS_LINUX, 30, 140, 32,   0,     0,  0, false, 3.33, 0, 0},
    {"D9", KIN_OS_MACOS, 50, 150, 16,  55,  2400, 11, true,  3.88, 0, 0},
};
// D3 as Table 4's rows for llama.cpp show it (docs/REPRODUCTION.md): its page cache and its CPU's rate
static const device_row table_3_seen[] = {
    {"D3", KIN_OS_LINUX,   54, 300,  16, 400, 10000, 11, false, 3.0, 0, 0},
    {"D2", KIN_OS_LINUX,   40, 200, 4.1, 300,  8000,  8, false, 3.0, 0, 0},
    {"D1", KIN_OS_MACOS,   55, 150, 2.4,   0,     0,  0, false, 0.7, 0, 0},
    {"D4", KIN_OS_ANDROID, 15,  50, 1.9,   0,     0,  0, false, 1.4, 0, 0},
};
static const device_row equal_cpus[] = { // section 4.2, Figure 2
    {"d1", KIN_OS_LINUX, 20, 200, 8, 0, 0, 0, false, 2.0, 0, 0},
    {"d2", KIN_OS_LINUX, 20, 200, 8, 0, 0, 0, false, 2.0, 0, 0},
    {"d3", KIN_OS_LINUX, 20, 200, 8, 0, 0, 0, false, 2.0, 0, 0},
    {"d4", KIN_OS_LINUX, 20, 200, 8, 0, 0, 0, false, 2.0, 0, 0},
};
static const device_row table_a5[] = { // containers on a server with a 4090; Docker's bridge
    {"c1", KIN_OS_LINUX, 30, 300, 4, 800, 40000, 5, false, 2.0, 0, 0},
    {"c2", KIN_OS_LINUX, 30, 300, 4, 800, 40000, 5, false, 2.0, 0, 0},
    {"c3", KIN_OS_LINUX, 30, 300, 4, 800, 40000, 5, false, 2.0, 0, 0},
    {"c4", KIN_OS_LINUX, 30, 300, 4, 800, 40000, 5, false, 2.0, 0, 0},
};
static const device_row table_a9[] = { // two of them have a 4090, of which they may use 11 GiB
    {"d1", KIN_OS_LINUX, 30, 300, 8, 800, 40000, 11, false, 0.6, 0, 0},
    {"d2", KIN_OS_LINUX, 30, 300, 8, 800, 40000, 11, false, 0.6, 0, 0},
    {"d3", KIN_OS_LINUX, 30, 300, 8,   0,     0,  0, false, 0.6, 0, 0},
    {"d4", KIN_OS_LINUX, 30, 300, 8,   0,     0,  0, false, 0.6, 0, 0},
};
static const device_row table_a10[] = { // total RAM: all of it "does not occur" to be too little
    {"host PC",  KIN_OS_LINUX,   35, 200, 16, 280, 6000, 11, false, 2.0, 0, 0}, // 1080 Ti
    {"laptop",   KIN_OS_LINUX,   40, 250, 32, 250, 7000,  6, false, 2.0, 0, 0}, // 3060
    {"Mac Mini", KIN_OS_MACOS,   50, 150, 16,  60, 2500, 11, true,  2.0, 0, 0},
    {"phone",    KIN_OS_ANDROID, 15,  50, 16,   0,    0,  0, false, 1.5, 0, 0}, // Redmi
};
static const device_row table_a11[] = { // "medium-mem", with A.15
    {"PC 3090",    KIN_OS_LINUX, 40, 300, 16, 600, 20000, 24, false, 2.0, 0, 0},
    {"PC 2080 Ti", KIN_OS_LINUX, 35, 250, 32, 400, 10000, 11, false, 2.0, 0, 0},
    {"PC 1080 Ti", KIN_OS_LINUX, 35, 200, 24, 280,  6000, 11, false, 2.0, 0, 0},
    {"PC 4060 Ti", KIN_OS_LINUX, 40, 250, 32, 200, 12000,  8, false, 2.0, 0, 0},
    {"Mac mini",   KIN_OS_MACOS, 50, 150, 16,  60,  2500, 11, true,  2.0, 0, 0},
};
// Macs: three fifths of their memory are taken as available, as nothing is printed.
static const device_row table_a14[] = {
    {"M3 Pro",    KIN_OS_MACOS,   110, 300, 11, 130, 5000, 9, true,  3.0, 0, 0},
    {"M1 Pro",    KIN_OS_MACOS,   100, 250,  5, 130, 4000, 4, true,  2.5, 0, 0},
    {"laptop",    KIN_OS_LINUX,    40, 250,  4,   0,    0, 0, false, 2.0, 0, 0},
    {"Honor Pad", KIN_OS_ANDROID,  18,  60,  5,   0,    0, 0, false, 2.0, 0, 0},
};
static const device_row table_a15[] = { // "low-mem", with A.13 and A.17: the laptop's 4090 is used
    {"laptop",    KIN_OS_LINUX,    40, 250,  4, 500, 25000, 16, false, 2.0, 0, 0},
    {"M3 Pro",    KIN_OS_MACOS,   110, 300, 11, 130,  5000,  9, true,  3.0, 0, 0},
    {"M1 Pro",    KIN_OS_MACOS,   100, 250,  5, 130,  4000,  4, true,  2.5, 0, 0},
    {"Honor Pad", KIN_OS_ANDROID,  18,  60,  5,   0,     0,  0, false, 2.0, 0, 0},
};
// Rates from Table 7.2's tokens per second. The server has room for embedding and output alone.
static const device_row table_thesis[] = {
    {"server", KIN_OS_LINUX, 147, 5000,   2, 0, 0, 0, false, 0, 0.1, 110},
    {"Aidos",  KIN_OS_LINUX, 147, 5000,  14, 0, 0, 0, false, 0, 0.64, 117},
    {"Thor",   KIN_OS_LINUX, 126, 1000, 110, 0, 0, 0, false, 0, 1.87, 32.4},
    {"Pgx",    KIN_OS_LINUX,  63,  800, 108, 0, 0, 0, false, 0, 1.58, 37.5},
    {"Agx",    KIN_OS_LINUX,  47,  400,  55, 0, 0, 0, false, 0, 1.97, 31.9},
    {"Nano",   KIN_OS_LINUX,  24,  200,   6, 0, 0, 0, false, 0, 2.52, 31.3},
};
static const device_row tpi_laptops[] = { // TPI-LLM, Table 7; half of their memory is taken as available
    {"Mac Pro", KIN_OS_MACOS, 55, 150, 4, 0, 0, 0, false, 2.0, 5, 64},
    {"Mac Air", KIN_OS_MACOS, 25,  60, 4, 0, 0, 0, false, 1.0, 7, 40},
    {"Dell 1",  KIN_OS_LINUX, 40, 150, 8, 0, 0, 0, false, 2.0, 3, 76},
    {"Dell 2",  KIN_OS_LINUX, 40, 150, 8, 0, 0, 0, false, 2.0, 3, 76},
};
// clang-format on

typedef struct cluster_row {
    const char *name, *id;
    const device_row *devices;
    int n_device;
    double memory_share; // fraction of the table's GiB that is available for the model
    double rtt_s, bytes_s;
} cluster_row;

#define DEVICES(table) table, sizeof table / sizeof *table
static const cluster_row clusters[KIN_N_PAPER_CLUSTER] = {
    // 3 to 7 ms one way, 320 to 610 Mbit/s
    [KIN_PAPER_TABLE_3] = {"Table 3", "table3", DEVICES(table_3), 1, 10e-3, 55e6},
    [KIN_PAPER_A4] = {"A.4", "a4", DEVICES(table_a4), 1, 10e-3, 55e6},
    // total RAM; "high-latency Wi-Fi"
    [KIN_PAPER_TABLE_11] = {"Table 11", "table11", DEVICES(table_11), 0.8, 20e-3, 55e6},
    [KIN_PAPER_TABLE_3_SEEN] = {"Table 3, D3 as seen", "table3-seen", DEVICES(table_3_seen), 1, 10e-3, 55e6},
    [KIN_PAPER_EQUAL_CPUS] = {"Figure 2", "figure2", DEVICES(equal_cpus), 0.9, 1e-3, 110e6},
    [KIN_PAPER_A5] = {"A.5", "a5", DEVICES(table_a5), 1, 0.1e-3, 1e9},
    [KIN_PAPER_A9] = {"A.9", "a9", DEVICES(table_a9), 0.9, 1e-3, 110e6},
    [KIN_PAPER_A10] = {"A.10", "a10", DEVICES(table_a10), 0.8, 10e-3, 55e6},
    [KIN_PAPER_A11] = {"A.11, medium", "a11", DEVICES(table_a11), 0.8, 10e-3, 55e6},
    [KIN_PAPER_A14] = {"A.14", "a14", DEVICES(table_a14), 1, 10e-3, 55e6},
    [KIN_PAPER_A15] = {"A.15, low", "a15", DEVICES(table_a15), 1, 10e-3, 55e6},
    [KIN_PAPER_THESIS] = {"Thesis", "thesis", DEVICES(table_thesis), 1, 0, 0},
    [KIN_PAPER_LAPTOPS] = {"TPI-LLM's laptops", "laptops", DEVICES(tpi_laptops), 1, 0, 0},
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

// The way between two devices of a star leads through its centre.
static kin_link_facts link_between(const cluster_row *row, int from, int to) {
    const device_row *a = &row->devices[from], *b = &row->devices[to];
    if (row->bytes_s > 0) return (kin_link_facts){row->rtt_s, row->bytes_s};
    return (kin_link_facts){(a->rtt_ms + b->rtt_ms) * 1e-3, fmin(a->link_mb_s, b->link_mb_s) * 1e6};
}

const char *kin_paper_cluster_name(kin_paper_cluster cluster) {
    return clusters[cluster].name;
}

const char *kin_paper_model_name(kin_paper_model model) {
    return models[model].name;
}

const char *kin_paper_cluster_id(kin_paper_cluster cluster) {
    return clusters[cluster].id;
}

const char *kin_paper_model_id(kin_paper_model model) {
    return models[model].id;
}

void kin_paper_facts(kin_facts *f, kin_paper_cluster cluster, kin_paper_model model, int n_device) {
    const cluster_row *row = &clusters[cluster];
    *f = (kin_facts){.n_device = n_device > 0 ? n_device : row->n_device};
    set_model(f, &models[model]);
    for (int i = 0; i < f->n_device; i++) {
        set_device(&f->devices[i], &row->devices[i], row->memory_share);
        for (int to = 0; to < f->n_device; to++) f->links[i][to] = link_between(row, i, to);
    }
}

int kin_paper_device(const kin_facts *f, const char *name) {
    for (int i = 0; i < f->n_device; i++) {
        if (strcmp(f->devices[i].name, name) == 0) return i;
    }
    return -1;
}
