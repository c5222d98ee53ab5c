#include "engine/shard_graphs.h"

#include "model/blocks.h"
#include "model/kernel/ops.h"
#include "model/streams.h"

// Numbers of variants: window 0, 1, ...; BLOCK + BLOCKS_STEP * layer + block; LAYERS + LAYERS_STEP * first + end.
enum {
    BLOCK = 1 << 10,
    BLOCKS_STEP = KIN_MAX_LAYER_COMPUTE_BLOCKS + 1,
    LAYERS = 1 << 26,
    LAYERS_STEP = 1 << 12,
};

int kin_variant_of_block(int il, int block) {
    return BLOCK + BLOCKS_STEP * il + block;
}

static struct ggml_tensor *build_block(kin_graph *g, struct ggml_tensor *x, int il, int block) {
    if (block == KIN_VARIANT_ROUTE) return kin_block_route(g, il, x);
    const kin_layer layer = kin_layer_of(g->hp, il);
    if (layer.has_no_attention || layer.has_no_ff) return kin_block_layer(g, il, x);
    if (block == 0) return kin_block_attention(g, il, x);
    if (layer.has_experts || g->hp->n_streams > 1) return kin_block_ffn(g, il, x);
    return block == 1 ? kin_block_ffn_in(g, il, x) : kin_block_ffn_out(g, il, x);
}

kin_layer_range kin_layers_in(const kin_window *window, kin_layer_range of, kin_layer_place place) {
    const int ends[] = {window->layer_begin, kin_window_gpu_begin(window), kin_window_gpu_whole_begin(window), window->layer_end};
    if (of.begin < ends[place]) of.begin = ends[place];
    if (of.end > ends[place + 1]) of.end = ends[place + 1];
    return of;
}

static kin_layer_range layers_of_device(const kin_layers_graphs *graphs, const kin_window *window, kin_layer_range of) {
    return kin_layers_in(window, of, graphs->on_gpu ? KIN_LAYER_ON_GPU : KIN_LAYER_ON_CPU);
}

kin_layer_range kin_layers_of_window(const kin_window *window) {
    return (kin_layer_range){window->layer_begin, window->layer_end};
}

static const kin_window *window_with(const kin_windows *windows, int il) {
    const kin_window *w = windows->at;
    while (il < w->layer_begin || il >= w->layer_end) w++;
    return w;
}

int kin_variant_of_layers(const kin_windows *windows, int i_window, kin_layer_range of) {
    const kin_window *w = &windows->at[i_window];
    return of.begin == w->layer_begin && of.end == w->layer_end ? i_window : LAYERS + LAYERS_STEP * of.begin + of.end;
}

struct ggml_tensor *kin_build_layers(const void *user, kin_graph *g, struct ggml_tensor *x, int variant) {
    const kin_layers_graphs *graphs = user;
    bool is_some = variant >= LAYERS;
    g->layers_end = 0;
    if (variant >= BLOCK && !is_some) return build_block(g, x, (variant - BLOCK) / BLOCKS_STEP, (variant - BLOCK) % BLOCKS_STEP);
    kin_layer_range of = {(variant - LAYERS) / LAYERS_STEP, (variant - LAYERS) % LAYERS_STEP};
    const kin_window *window = is_some ? window_with(graphs->windows, of.begin) : &graphs->windows->at[variant];
    of = layers_of_device(graphs, window, is_some ? of : kin_layers_of_window(window));
    g->layers_end = of.end;
    for (int il = of.begin; il < of.end; il++) x = kin_block_layer(g, il, x);
    return x;
}

struct ggml_tensor *kin_build_output(const void *user, kin_graph *g, struct ggml_tensor *x, int variant) {
    const kin_weights *weights = user;
    int n_tiles = kin_weights_n_tiles(weights);
    const bool is_plain = variant >= KIN_VARIANT_PLAIN + KIN_VARIANT_WHOLE;
    if (is_plain)
        variant -= KIN_VARIANT_PLAIN;
    else if (g->hp->n_streams > 1)
        x = kin_streams_of(g->hp)->end(g, kin_weights_stream_ends(weights), x); // [n_embd, n]
    if (!is_plain && kin_weights_output_norm(weights))
        x = kin_block_norm(g, x, kin_weights_output_norm(weights), kin_weights_output_norm_bias(weights)); // [n_embd, n]
    if (variant == KIN_VARIANT_HIDDEN) return x;
    if (variant != KIN_VARIANT_WHOLE) return kin_block_output(g, kin_weights_tile(weights, variant), x);
    if (n_tiles == 1) return kin_block_output(g, kin_weights_tile(weights, 0), x);

    struct ggml_tensor *logits = ggml_new_tensor_2d(g->ctx, GGML_TYPE_F32, g->hp->n_vocab, x->ne[1]);
    ggml_set_input(logits); // is allocated from the start
    size_t offset = 0;
    for (int i = 0; i < n_tiles; i++) {
        struct ggml_tensor *tile = kin_block_output(g, kin_weights_tile(weights, i), x); // [n_rows, n]
        struct ggml_tensor *to = ggml_view_2d(g->ctx, logits, tile->ne[0], tile->ne[1], logits->nb[1], offset);
        ggml_build_forward_expand(g->gf, g->kernels ? kin_op_copy(g, tile, to) : ggml_cpy(g->ctx, tile, to));
        offset += (size_t)tile->ne[0] * sizeof(float);
    }
    return logits;
}

int kin_layers_graphs_n(const kin_layers_graphs *graphs, int i_window) {
    const kin_window *window = &graphs->windows->at[i_window];
    const kin_layer_range of = layers_of_device(graphs, window, kin_layers_of_window(window));
    return of.end > of.begin ? of.end - of.begin : 0;
}

// True if a device has the fused attention operator for a layer's heads and the cache's type.
static bool supports_flash_of(const kin_layer *layer, enum ggml_type kv_type, const kin_device *device) {
    struct ggml_init_params params = {.mem_size = 8 * ggml_tensor_overhead(), .no_alloc = true};
    struct ggml_context *ctx = ggml_init(params);
    struct ggml_tensor *q = ggml_new_tensor_3d(ctx, GGML_TYPE_F32, layer->head_dim, 1, layer->n_head);
    struct ggml_tensor *k = ggml_new_tensor_3d(ctx, kv_type, layer->head_dim, 256, layer->n_head_kv);
    struct ggml_tensor *v = ggml_new_tensor_3d(ctx, kv_type, layer->v_dim, 256, layer->n_head_kv);
    struct ggml_tensor *mask = ggml_new_tensor_2d(ctx, GGML_TYPE_F16, 256, 1);
    const int block = (int)ggml_blck_size(kv_type);
    bool ok = layer->head_dim % block == 0 && layer->v_dim % block == 0 &&
              ggml_backend_dev_supports_op(device->dev, ggml_flash_attn_ext(ctx, q, k, v, mask, 1.0f, 0, 0));
    ggml_free(ctx);
    return ok;
}

bool kin_graphs_have_flash(const kin_hparams *hp, enum ggml_type kv_type, const kin_device *device) {
    for (int il = 0; il < hp->n_layer; il++) {
        const kin_layer layer = kin_layer_of(hp, il);
        if (!layer.is_recurrent && !layer.is_latent && !layer.is_compressed && !layer.has_no_attention &&
            !supports_flash_of(&layer, kv_type, device))
            return false;
    }
    return true;
}
