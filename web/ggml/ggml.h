// The part of ggml's interface that model/ and engine/ use with kin's own kernels, for WebAssembly, where ggml is not available:
// tensors, graphs of custom nodes, and memory for them. Names and meanings are ggml's; functions that graphs of kin's kernels
// never use call ggml_absent().
//
// Thread: the one that builds and computes graphs.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { GGML_MAX_NAME = 64, GGML_MAX_SRC = 10, GGML_N_TASKS_MAX = -1 };
enum { GGML_ROPE_TYPE_NORMAL = 0, GGML_ROPE_TYPE_NEOX = 2 };
enum { GGML_PREC_F32 = 10 };

enum ggml_type { // ggml's and GGUF's numbers
    GGML_TYPE_F32 = 0,
    GGML_TYPE_F16 = 1,
    GGML_TYPE_Q8_0 = 8,
    GGML_TYPE_I8 = 24,
    GGML_TYPE_I32 = 26,
    GGML_TYPE_I64 = 27,
    GGML_TYPE_COUNT = 43,
};

enum ggml_status {
    GGML_STATUS_SUCCESS = 0,
    GGML_STATUS_ALLOC_FAILED = -2,
    GGML_STATUS_ABORTED = 1,
};

typedef uint16_t ggml_fp16_t;

struct ggml_tensor;

struct ggml_type_traits {
    const char *type_name;
    int64_t blck_size;
    size_t type_size; // 0: no such type
    bool is_quantized;
    const void *to_float; // NULL: not a type of weights
};

typedef struct ggml_backend_buffer *ggml_backend_buffer_t;

enum ggml_op { // the last three are never made
    GGML_OP_NONE,
    GGML_OP_VIEW,
    GGML_OP_CUSTOM,
    GGML_OP_RESHAPE,
    GGML_OP_PERMUTE,
    GGML_OP_TRANSPOSE,
};

typedef void (*ggml_custom_op_t)(struct ggml_tensor *dst, int ith, int nth, void *userdata);

struct ggml_tensor {
    enum ggml_type type;
    ggml_backend_buffer_t buffer; // NULL: no memory yet
    int64_t ne[4];                // elements of each dimension, fastest first
    size_t nb[4];                 // stride in bytes of each dimension
    enum ggml_op op;
    bool is_input, is_output, in_graph, is_placed;
    int first, last; // range of graph nodes in which it needs its memory
    struct ggml_tensor *src[GGML_MAX_SRC];
    struct ggml_tensor *view_src; // tensor whose memory it shares
    size_t view_offs;
    void *data;
    void *extra;
    ggml_custom_op_t fun;
    void *userdata;
    struct ggml_tensor *next; // in its context
    const char *name;
};

struct ggml_init_params {
    size_t mem_size;
    void *mem_buffer; // NULL: the context's own
    bool no_alloc;    // always
};

struct ggml_context;
struct ggml_cgraph;

const struct ggml_type_traits *ggml_get_type_traits(enum ggml_type type);
const char *ggml_type_name(enum ggml_type type);
int64_t ggml_blck_size(enum ggml_type type);
bool ggml_is_quantized(enum ggml_type type);
size_t ggml_row_size(enum ggml_type type, int64_t ne);
size_t ggml_nbytes(const struct ggml_tensor *tensor);
const char *ggml_op_desc(const struct ggml_tensor *tensor);

struct ggml_context *ggml_init(struct ggml_init_params params);
void ggml_free(struct ggml_context *ctx);
size_t ggml_tensor_overhead(void);
struct ggml_tensor *ggml_get_first_tensor(const struct ggml_context *ctx);
struct ggml_tensor *ggml_get_next_tensor(const struct ggml_context *ctx, struct ggml_tensor *tensor);

struct ggml_tensor *ggml_new_tensor_1d(struct ggml_context *ctx, enum ggml_type type, int64_t ne0);
struct ggml_tensor *ggml_new_tensor_2d(struct ggml_context *ctx, enum ggml_type type, int64_t ne0, int64_t ne1);
struct ggml_tensor *ggml_new_tensor_3d(struct ggml_context *ctx, enum ggml_type type, int64_t ne0, int64_t ne1, int64_t ne2);
#define ggml_set_name(tensor, text) ((void)((tensor)->name = (text))) // a literal
void ggml_set_input(struct ggml_tensor *tensor);
void ggml_set_output(struct ggml_tensor *tensor);

struct ggml_tensor *ggml_view_2d(struct ggml_context *ctx, struct ggml_tensor *a, int64_t ne0, int64_t ne1, size_t nb1,
                                 size_t offset);
struct ggml_tensor *ggml_custom_4d(struct ggml_context *ctx, enum ggml_type type, int64_t ne0, int64_t ne1, int64_t ne2,
                                   int64_t ne3, struct ggml_tensor **args, int n_args, ggml_custom_op_t fun, int n_tasks,
                                   void *userdata);
struct ggml_tensor *ggml_custom_inplace(struct ggml_context *ctx, struct ggml_tensor *a, struct ggml_tensor **args, int n_args,
                                        ggml_custom_op_t fun, int n_tasks, void *userdata);

struct ggml_cgraph *ggml_new_graph_custom(struct ggml_context *ctx, size_t n_nodes, bool grads);
size_t ggml_graph_overhead_custom(size_t n_nodes, bool grads);
void ggml_build_forward_expand(struct ggml_cgraph *graph, struct ggml_tensor *tensor);
int ggml_graph_n_nodes(struct ggml_cgraph *graph);
struct ggml_tensor *ggml_graph_node(struct ggml_cgraph *graph, int i);
struct ggml_tensor **ggml_graph_nodes(struct ggml_cgraph *graph);

// Ends the module: the caller should have refused the model (kin_weights_open does).
struct ggml_tensor *ggml_absent(const char *op, ...);

#define ggml_add(...) ggml_absent("add", __VA_ARGS__)
#define ggml_add_id(...) ggml_absent("add_id", __VA_ARGS__)
#define ggml_argsort_top_k(...) ggml_absent("argsort_top_k", __VA_ARGS__)
#define ggml_cast(...) ggml_absent("cast", __VA_ARGS__)
#define ggml_gelu(...) ggml_absent("gelu", __VA_ARGS__)
#define ggml_get_rows(...) ggml_absent("get_rows", __VA_ARGS__)
#define ggml_clamp(...) ggml_absent("clamp", __VA_ARGS__)
#define ggml_concat(...) ggml_absent("concat", __VA_ARGS__)
#define ggml_cont(...) ggml_absent("cont", __VA_ARGS__)
#define ggml_cpy(...) ggml_absent("cpy", __VA_ARGS__)
#define ggml_div(...) ggml_absent("div", __VA_ARGS__)
#define ggml_geglu_split(...) ggml_absent("geglu_split", __VA_ARGS__)
#define ggml_mul(...) ggml_absent("mul", __VA_ARGS__)
#define ggml_mul_mat(...) ggml_absent("mul_mat", __VA_ARGS__)
#define ggml_mul_mat_id(...) ggml_absent("mul_mat_id", __VA_ARGS__)
#define ggml_permute(...) ggml_absent("permute", __VA_ARGS__)
#define ggml_prec_set_acc(...) ((void)ggml_absent("prec_set_acc", __VA_ARGS__))
#define ggml_reshape_1d(...) ggml_absent("reshape_1d", __VA_ARGS__)
#define ggml_reshape_2d(...) ggml_absent("reshape_2d", __VA_ARGS__)
#define ggml_reshape_3d(...) ggml_absent("reshape_3d", __VA_ARGS__)
#define ggml_softplus(...) ggml_absent("softplus", __VA_ARGS__)
#define ggml_silu(...) ggml_absent("silu", __VA_ARGS__)
#define ggml_norm(...) ggml_absent("norm", __VA_ARGS__)
#define ggml_rms_norm(...) ggml_absent("rms_norm", __VA_ARGS__)
#define ggml_rope_ext(...) ggml_absent("rope_ext", __VA_ARGS__)
#define ggml_scale(...) ggml_absent("scale", __VA_ARGS__)
#define ggml_set_rows(...) ggml_absent("set_rows", __VA_ARGS__)
#define ggml_sigmoid(...) ggml_absent("sigmoid", __VA_ARGS__)
#define ggml_soft_max(...) ggml_absent("soft_max", __VA_ARGS__)
#define ggml_soft_max_add_sinks(...) ((void)ggml_absent("soft_max_add_sinks", __VA_ARGS__))
#define ggml_soft_max_ext(...) ggml_absent("soft_max_ext", __VA_ARGS__)
#define ggml_sum_rows(...) ggml_absent("sum_rows", __VA_ARGS__)
#define ggml_swiglu_oai(...) ggml_absent("swiglu_oai", __VA_ARGS__)
#define ggml_swiglu_split(...) ggml_absent("swiglu_split", __VA_ARGS__)
#define ggml_tanh(...) ggml_absent("tanh", __VA_ARGS__)
#define ggml_view_3d(...) ggml_absent("view_3d", __VA_ARGS__)
// Used only to ask whether a device supports it.
#define ggml_flash_attn_ext(ctx, q, k, v, mask, ...) ((void)(ctx), (void)(k), (void)(v), (void)(mask), (q))
#define ggml_flash_attn_ext_add_sinks(node, sinks) ((void)(node), (void)(sinks))
