#include "engine/micro_benchmark.h"

#include <stdlib.h>

#include "base/clock.h"
#include "base/median.h"
#include "model/kernel/ops.h"

enum { LEAST_RUNS = 3, MOST_RUNS = 1024 };

int kin_micro_benchmark_init(kin_micro_benchmark *g, const kin_device *device, size_t n_nodes, kin_err *err) {
    n_nodes *= 2; // plus their operands
    struct ggml_init_params params = {
        .mem_size = 2 * n_nodes * ggml_tensor_overhead() + ggml_graph_overhead_custom(n_nodes, false), .no_alloc = true};
    *g = (kin_micro_benchmark){.device = device, .galloc = ggml_gallocr_new(device->buft)};
    g->graph = (kin_graph){.ctx = ggml_init(params),
                           .kernels = device->kernels,
                           .compute = &device->compute,
                           .max_ops = device->kernels ? (int)n_nodes : 0};
    g->graph.ops = calloc((size_t)g->graph.max_ops + 1, kin_op_bytes());
    if (!g->graph.ctx || !g->galloc || !g->graph.ops) {
        kin_micro_benchmark_fini(g);
        return kin_err_set(err, "out of memory");
    }
    g->graph.gf = ggml_new_graph_custom(g->graph.ctx, n_nodes, false);
    return 0;
}

void kin_micro_benchmark_fini(kin_micro_benchmark *g) {
    if (g->galloc) ggml_gallocr_free(g->galloc);
    if (g->graph.ctx) ggml_free(g->graph.ctx);
    free(g->graph.ops);
    *g = (kin_micro_benchmark){0};
}

bool kin_micro_benchmark_possible(const kin_micro_benchmark *g) {
    for (int i = 0; i < ggml_graph_n_nodes(g->graph.gf); i++) {
        if (!ggml_backend_supports_op(g->device->backend, ggml_graph_node(g->graph.gf, i))) return false;
    }
    return true;
}

int kin_micro_benchmark_ready(kin_micro_benchmark *g, kin_err *err) {
    if (!ggml_gallocr_alloc_graph(g->galloc, g->graph.gf))
        return kin_err_set(err, "%s has no memory for the measurement", g->device->name);
    for (struct ggml_tensor *t = ggml_get_first_tensor(g->graph.ctx); t; t = ggml_get_next_tensor(g->graph.ctx, t)) {
        if (t->buffer && (t->flags & GGML_TENSOR_FLAG_INPUT)) ggml_backend_tensor_memset(t, 0, 0, ggml_nbytes(t));
    }
    return 0;
}

static bool is_moved(const kin_micro_benchmark *g, const struct ggml_tensor *t) {
    return t->buffer && (t->buffer == g->moved[0] || t->buffer == g->moved[1]);
}

static void move_on(kin_micro_benchmark *g) {
    if (g->n_places < 2) return;
    bool back = g->i_place + 1 == g->n_places;
    uint64_t bytes = back ? (uint64_t)g->i_place * g->move_bytes : g->move_bytes;
    g->i_place = back ? 0 : g->i_place + 1;
    for (struct ggml_tensor *t = ggml_get_first_tensor(g->graph.ctx); t; t = ggml_get_next_tensor(g->graph.ctx, t)) {
        if (is_moved(g, t)) t->data = back ? (uint8_t *)t->data - bytes : (uint8_t *)t->data + bytes;
    }
}

static int run_benchmark(kin_micro_benchmark *g, double *seconds, kin_err *err) {
    kin_time begun = kin_clock_now();
    enum ggml_status status = kin_ops_compute(&g->graph, g->device->backend);
    *seconds = kin_clock_ms(begun, kin_clock_now()) / 1e3;
    move_on(g);
    if (status == GGML_STATUS_ABORTED) return kin_err_set(err, "stopped");
    if (status == GGML_STATUS_SUCCESS) return 0;
    return kin_err_set(err, "%s failed to compute: %s", g->device->name, ggml_status_to_string(status));
}

int kin_micro_benchmark_time(kin_micro_benchmark *g, const kin_benchmark_options *options, double *seconds, kin_err *err) {
    double times[MOST_RUNS], first, sum = 0;
    int n = 0;
    if (run_benchmark(g, &first, err) != 0) return KIN_FAIL;
    // The first run also wakes threads and fetches pages; it counts only if it is long compared with that. A GPU's first run
    // never counts, because the driver compiles kernels in it.
    if (!g->device->is_gpu && first >= options->least_s) times[n++] = sum = first;
    while (n < MOST_RUNS && sum < options->least_s * (n < LEAST_RUNS ? LEAST_RUNS : 1)) {
        if (run_benchmark(g, &times[n], err) != 0) return KIN_FAIL;
        sum += times[n++];
    }
    *seconds = options->mean ? sum / n : kin_median(times, n);
    return 0;
}
