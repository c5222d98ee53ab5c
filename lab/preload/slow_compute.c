// slow_compute: makes a program's computing with ggml (LD_PRELOAD) KIN_LAB_COMPUTES times as slow as on the undisturbed real
// processor, regardless of the load of the host: 3 or more, since lower values are too often late. A value with a '/' is the name
// of a file from which the factor is read at any moment. At its end the program appends a line to the file KIN_LAB_LATE: how many
// graphs it computed, and in seconds: their total time, by how much they were late, their undisturbed time, their real computing
// time, and that of parts whose undisturbed time was not known yet (or turned out to be less by a hundredth).
//
// Graphs are computed in parts of about PART_BYTES. A graph takes the given multiple of the sum of the undisturbed times of parts
// of the same shapes. The undisturbed time is the mean of the times up to DISTURBED times the least one; least times alone would
// depend on how long a part is and on how often it was seen. They are stored in the file KIN_LAB_TIMES-PROGRAM, which processes
// share. Parts are short, because neighbours rarely leave a long one alone. GPUs are not slowed down. Neither is a node with the
// name KIN_LAB_APART: there a group of devices waits for the others, and everything computed before it has taken its time when it
// begins.
//
// Devices share this machine's processors and memory. So they compute one after the other, as long as their pace leaves them time
// to wait: the device that has locked the file KIN_LAB_TURN computes.
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <ggml-backend.h>
#include <ggml.h>

typedef enum ggml_status compute_function(ggml_backend_t backend, struct ggml_cgraph *graph);

static const double PART_BYTES = 8 << 20; // size of a part, in bytes of weights
static const double FLOP_PER_BYTE = 2;    // arithmetic that counts like a byte of weights
static const double OP_BYTES = 24 << 10;  // additional bytes for each operation
static const uint64_t SPIN_NS = 60000;    // sleeps end up to this late; short, because devices that spin share the processors

static const double DISTURBED = 1.25;
static const uint64_t TURN_NS = 20000000; // how long a part whose time is not known waits for its turn

// A hash table in a file; shape 0: free.
enum { N_SHAPES = 1 << 13 };
typedef struct part_times {
    _Atomic uint64_t shape, least_ns;
    _Atomic uint64_t n, ns; // of undisturbed parts
} part_times;

static compute_function *real_compute, *real_compute_async;
static _Atomic double times_slower;
static int slower_file = -1; // file with the value of times_slower
static const char *apart;
static part_times *times_of_parts;
static pthread_mutex_t *turn; // NULL: devices do not wait for each other
static pthread_once_t opened = PTHREAD_ONCE_INIT;
static _Atomic uint64_t n_graphs, all_ns, late_ns, usual_ns, real_ns, learned_ns;
static _Thread_local int depth; // one function calls the other

// Maps `bytes` of a file that processes share; *is_new: it was empty.
static void *map_shared(const char *path, size_t bytes, bool *is_new) {
    const int file = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    struct stat st = {0};
    void *map = MAP_FAILED;
    if (file >= 0 && fstat(file, &st) == 0 && ftruncate(file, (off_t)bytes) == 0)
        map = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (map == MAP_FAILED) {
        fprintf(stderr, "slow_compute: '%s' is no file that can be written\n", path);
        _exit(1);
    }
    close(file);
    *is_new = st.st_size == 0;
    return map;
}

// Each program has its own times, because it may have its own ggml.
static void open_times(void) {
    const char *beginning = getenv("KIN_LAB_TIMES");
    bool is_new;
    char path[4096] = "";
    if (beginning) snprintf(path, sizeof path, "%s-%s", beginning, program_invocation_short_name);
    times_of_parts = map_shared(path, N_SHAPES * sizeof(part_times), &is_new);
}

// A process that dies or is stopped during its turn must not stop the others.
static void open_turn(void) {
    const char *path = getenv("KIN_LAB_TURN");
    if (!path) return;
    const int lock = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    bool is_new;
    flock(lock, LOCK_EX);
    turn = map_shared(path, sizeof *turn, &is_new);
    if (is_new) {
        pthread_mutexattr_t how;
        pthread_mutexattr_init(&how);
        pthread_mutexattr_setpshared(&how, PTHREAD_PROCESS_SHARED);
        pthread_mutexattr_setrobust(&how, PTHREAD_MUTEX_ROBUST);
        pthread_mutex_init(turn, &how);
        pthread_mutexattr_destroy(&how);
    }
    close(lock);
}

static void open_files(void) {
    open_times();
    open_turn();
}

// The file may change while the program runs; while it is being written it can be empty.
static void read_slower(void) {
    char text[32];
    const ssize_t n = slower_file >= 0 ? pread(slower_file, text, sizeof text - 1, 0) : 0;
    if (n <= 0) return;
    text[n] = '\0';
    times_slower = atof(text);
}

__attribute__((constructor)) static void begin(void) {
    const char *slower = getenv("KIN_LAB_COMPUTES");
    *(void **)&real_compute = dlsym(RTLD_NEXT, "ggml_backend_graph_compute");
    *(void **)&real_compute_async = dlsym(RTLD_NEXT, "ggml_backend_graph_compute_async");
    if (slower && strchr(slower, '/'))
        slower_file = open(slower, O_RDONLY | O_CLOEXEC);
    else
        times_slower = slower ? atof(slower) : 0;
    read_slower();
    apart = getenv("KIN_LAB_APART");
    prctl(PR_SET_TIMERSLACK, 1UL); // for this thread and all that it starts; otherwise sleeps end up to 50 us later
}

__attribute__((destructor)) static void write_late(void) {
    const char *path = getenv("KIN_LAB_LATE");
    FILE *f = path && n_graphs > 0 ? fopen(path, "a") : NULL;
    if (!f) return;
    fprintf(f, "%llu", (unsigned long long)n_graphs);
    const uint64_t ns[] = {all_ns, late_ns, usual_ns, real_ns, learned_ns};
    for (size_t i = 0; i < sizeof ns / sizeof ns[0]; i++) fprintf(f, ",%.3f", (double)ns[i] * 1e-9);
    fputc('\n', f);
    fclose(f);
}

static uint64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000ull + (uint64_t)t.tv_nsec;
}

static void wait_until(uint64_t ns) {
    if (now_ns() + SPIN_NS < ns) {
        const uint64_t wake_ns = ns - SPIN_NS;
        const struct timespec t = {(time_t)(wake_ns / 1000000000ull), (long)(wake_ns % 1000000000ull)};
        clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL);
    }
    while (now_ns() < ns) {
    }
}

// ---- parts

static bool computes(const struct ggml_tensor *t) {
    switch (t->op) {
    case GGML_OP_NONE:
    case GGML_OP_RESHAPE:
    case GGML_OP_VIEW:
    case GGML_OP_PERMUTE:
    case GGML_OP_TRANSPOSE: return false;
    default: return true;
    }
}

// Returns the cost of an operation, in bytes of weights.
static double cost(const struct ggml_tensor *t) {
    double bytes = 0, flops = 0;
    const struct ggml_tensor *a = t->src[0], *b = t->src[1], *c = t->src[2];
    switch (t->op) {
    case GGML_OP_MUL_MAT:
    case GGML_OP_MUL_MAT_ID:
        bytes = (double)ggml_nbytes(a);
        flops = 2.0 * (double)a->ne[0] * (double)ggml_nelements(t);
        if (t->op == GGML_OP_MUL_MAT_ID && ggml_nelements(c) < a->ne[2]) bytes *= (double)ggml_nelements(c) / (double)a->ne[2];
        break;
    case GGML_OP_FLASH_ATTN_EXT:
        bytes = (double)(ggml_nbytes(b) + ggml_nbytes(c));
        flops = 2.0 * (double)(b->ne[0] * b->ne[1] + c->ne[0] * c->ne[1]) * (double)(a->ne[1] * a->ne[2]); // tokens, heads
        break;
    case GGML_OP_CUSTOM: // kin's products: the weights are the largest tensor that a node reads
        for (int k = 0; k < GGML_MAX_SRC && t->src[k]; k++)
            bytes = ggml_nbytes(t->src[k]) > bytes ? (double)ggml_nbytes(t->src[k]) : bytes;
        flops = 2.0 * bytes * (double)t->ne[1];
        break;
    default: break;
    }
    return OP_BYTES + (flops > FLOP_PER_BYTE * bytes ? flops / FLOP_PER_BYTE : bytes);
}

static uint64_t mix(uint64_t hash, int64_t value) {
    return (hash ^ (uint64_t)value) * 0x100000001b3ull; // FNV-1a, eight bytes at a time
}

// Packed weights have a buffer with another name.
static uint64_t mix_tensor(uint64_t hash, const struct ggml_tensor *t) {
    hash = mix(hash, t->type);
    for (const char *c = t->buffer ? ggml_backend_buffer_name(t->buffer) : ""; *c; c++) hash = mix(hash, *c);
    for (int k = 0; k < GGML_MAX_DIMS; k++) hash = mix(hash, t->ne[k]);
    return hash;
}

// Adds a node; the same operations on tensors of the same types and sizes give the same number.
static uint64_t mix_node(uint64_t hash, const struct ggml_tensor *t) {
    hash = mix_tensor(mix(hash, t->op), t);
    for (int k = 0; k < GGML_MAX_SRC && t->src[k]; k++) hash = mix_tensor(hash, t->src[k]);
    return hash ? hash : 1;
}

static part_times *times_of(uint64_t shape) {
    for (uint64_t i = shape; i < shape + N_SHAPES; i++) {
        part_times *t = &times_of_parts[i % N_SHAPES];
        uint64_t found = 0;
        if (atomic_compare_exchange_strong(&t->shape, &found, shape) || found == shape) return t;
    }
    fprintf(stderr, "slow_compute: KIN_LAB_TIMES is full\n");
    _exit(1);
}

// Returns 0 if it is not known.
static uint64_t usual_time(const part_times *t) {
    const uint64_t n = t->n, ns = t->ns;
    return n > 0 ? ns / n : 0;
}

// Processes that do this at the same moment may lose a time, or count it twice. When a least time is much less than the previous
// one, the mean restarts, because the times before were disturbed.
static void learn(part_times *t, uint64_t took) {
    const uint64_t least = t->least_ns;
    if (least == 0 || (double)took < 0.99 * (double)least) learned_ns += took;
    if (least == 0 || took < least) t->least_ns = took;
    if (least == 0 || (double)took * DISTURBED < (double)least) t->n = t->ns = 0;
    if (least > 0 && (double)took > DISTURBED * (double)least) return;
    t->ns += took;
    t->n++;
}

// Weights that came from a disk in between must not count as computing.
static long n_faults(void) {
    struct rusage r;
    getrusage(RUSAGE_SELF, &r);
    return r.ru_majflt;
}

static bool stands_apart(const struct ggml_tensor *t) {
    return apart && strcmp(ggml_get_name(t), apart) == 0;
}

// The time of a graph on the slow processor.
typedef struct pace {
    uint64_t begun; // start of what follows a node that stood apart
    uint64_t usual; // undisturbed time since then
} pace;

// Waits until everything computed since the last node that stood apart has taken its time.
static void end_stretch(pace *p) {
    const uint64_t takes = (uint64_t)(times_slower * (double)p->usual), due = p->begun + takes, done = now_ns();
    all_ns += takes;
    usual_ns += p->usual;
    if (done > due) late_ns += done - due;
    wait_until(due);
}

// False if the device has to compute now, or is late.
static bool sleep_instead(const pace *p, uint64_t usual) {
    if (!turn) return false;
    const uint64_t latest =
        usual == 0 ? now_ns() + TURN_NS : p->begun + (uint64_t)(times_slower * (double)(p->usual + usual)) - usual;
    const struct timespec until = {(time_t)(latest / 1000000000ull), (long)(latest % 1000000000ull)};
    const int error = pthread_mutex_clocklock(turn, CLOCK_MONOTONIC, &until);
    if (error == EOWNERDEAD) pthread_mutex_consistent(turn);
    return error == 0 || error == EOWNERDEAD;
}

static enum ggml_status compute_timed(compute_function *real, ggml_backend_t backend, struct ggml_cgraph *part, uint64_t shape,
                                      pace *p) {
    part_times *times = times_of(shape);
    const bool has_turn = sleep_instead(p, usual_time(times));
    const long faults = n_faults();
    const uint64_t begun = now_ns();
    const enum ggml_status status = real(backend, part);
    const uint64_t took = now_ns() - begun;
    if (has_turn) pthread_mutex_unlock(turn);
    if (status == GGML_STATUS_SUCCESS && n_faults() == faults && (has_turn || !turn)) learn(times, took);
    const uint64_t usual = usual_time(times);
    p->usual += usual ? usual : took;
    real_ns += took;
    return status;
}

// Computes from node `i` on; returns the first node of the next part.
static int compute_part(compute_function *real, ggml_backend_t backend, struct ggml_cgraph *graph, int i,
                        struct ggml_context *ctx, pace *p, enum ggml_status *status) {
    const int n = ggml_graph_n_nodes(graph);
    uint64_t shape = 0xcbf29ce484222325ull;
    double bytes = 0;
    ggml_reset(ctx);
    struct ggml_cgraph *part = ggml_new_graph_custom(ctx, (size_t)(n - i), false);
    for (; i < n && bytes < PART_BYTES && !stands_apart(ggml_graph_node(graph, i)); i++) {
        struct ggml_tensor *t = ggml_graph_node(graph, i);
        ggml_graph_add_node(part, t);
        if (!computes(t)) continue;
        shape = mix_node(shape, t);
        bytes += cost(t);
    }
    *status = compute_timed(real, backend, part, shape, p);
    return i;
}

static enum ggml_status compute_apart(compute_function *real, ggml_backend_t backend, struct ggml_tensor *t,
                                      struct ggml_context *ctx, pace *p) {
    end_stretch(p);
    ggml_reset(ctx);
    struct ggml_cgraph *part = ggml_new_graph_custom(ctx, 1, false);
    ggml_graph_add_node(part, t);
    const enum ggml_status status = real(backend, part);
    *p = (pace){.begun = now_ns()};
    return status;
}

static enum ggml_status compute_in_parts(compute_function *real, ggml_backend_t backend, struct ggml_cgraph *graph) {
    const int n = ggml_graph_n_nodes(graph);
    const struct ggml_init_params own = {.mem_size = ggml_graph_overhead_custom((size_t)n + 1, false), .no_alloc = true};
    struct ggml_context *ctx = ggml_init(own);
    enum ggml_status status = ctx ? GGML_STATUS_SUCCESS : GGML_STATUS_ALLOC_FAILED;
    pace p = {.begun = now_ns()};
    for (int i = 0; i < n && status == GGML_STATUS_SUCCESS;) {
        struct ggml_tensor *t = ggml_graph_node(graph, i);
        if (stands_apart(t))
            status = compute_apart(real, backend, t, ctx, &p), i++;
        else
            i = compute_part(real, backend, graph, i, ctx, &p, &status);
    }
    ggml_free(ctx);
    end_stretch(&p);
    return status;
}

// ---- the functions that it stands for

static enum ggml_status compute(compute_function *real, ggml_backend_t backend, struct ggml_cgraph *graph) {
    const bool on_cpu = ggml_backend_dev_type(ggml_backend_get_device(backend)) == GGML_BACKEND_DEVICE_TYPE_CPU;
    if (times_slower <= 0 || depth > 0 || !on_cpu) return real(backend, graph);
    pthread_once(&opened, open_files);
    read_slower();
    depth++;
    const enum ggml_status status = compute_in_parts(real, backend, graph);
    depth--;
    n_graphs++;
    return status;
}

enum ggml_status ggml_backend_graph_compute(ggml_backend_t backend, struct ggml_cgraph *graph) {
    return compute(real_compute, backend, graph);
}

enum ggml_status ggml_backend_graph_compute_async(ggml_backend_t backend, struct ggml_cgraph *graph) {
    return compute(real_compute_async, backend, graph);
}

// For graphs that kin's own threads compute: engine/device.c looks for this function. `real` is kin's.
enum ggml_status kin_lab_compute(compute_function *real, ggml_backend_t backend, struct ggml_cgraph *graph);
enum ggml_status kin_lab_compute(compute_function *real, ggml_backend_t backend, struct ggml_cgraph *graph) {
    return compute(real, backend, graph);
}
