// Facts as JSON: written facts read back as the same bits, errors in the input are reported with their place, and the example
// files are the clusters that the planning tests use. app/ is a program, not a library, so its files are compiled into the
// test.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include <math.h>
#include <unistd.h>

#include "observe/facts_fields.h"
#include "observe/facts_file.h"
#include "observe/facts_links.h"
#include "testkit/paper_clusters.h"
#include "testkit/plan_random.h"
#include "tests/place.h"

static const char *temporary_path(void) {
    static char path[64];
    snprintf(path, sizeof path, "/tmp/kin-facts-%d.json", (int)getpid());
    return path;
}

// ---- comparing

// tolerance 0: the same bits
static void same_number(double a, double b, double tolerance, const char *what) {
    if (tolerance == 0 ? memcmp(&a, &b, sizeof a) == 0 : fabs(a - b) <= tolerance * fmax(fabs(a), fabs(b))) return;
    fail_msg("%s: %.17g and %.17g", what, a, b);
}
#define same_number(...) FROM_TEST(same_number(__VA_ARGS__))

static void same_types(const double *a, const double *b, double tolerance, const char *what) {
    for (int q = 0; q < KIN_N_QUANT; q++) same_number(a[q], b[q], tolerance, what);
}

static void same_engine(const kin_engine_facts *a, const kin_engine_facts *b, double tolerance) {
    same_types(a->token_bytes_s, b->token_bytes_s, tolerance, "token rates");
    same_types(a->prompt_flop_s, b->prompt_flop_s, tolerance, "prompt rates");
    same_number(a->read_bytes_s, b->read_bytes_s, tolerance, "read_bytes_s");
    same_number(a->prompt_read_bytes_s, b->prompt_read_bytes_s, tolerance, "prompt_read_bytes_s");
    same_number(a->kv_bytes_s, b->kv_bytes_s, tolerance, "kv_bytes_s");
    for (int i = 0; i < KIN_FACTS_BATCHES; i++) same_types(a->batch_factor[i], b->batch_factor[i], tolerance, "batch_factor");
    for (int i = 0; i < KIN_FACTS_CACHED; i++) same_types(a->cached_factor[i], b->cached_factor[i], tolerance, "cached_factor");
    same_number(a->kv_copy_s, b->kv_copy_s, tolerance, "kv_copy_s");
    same_number(a->op_s, b->op_s, tolerance, "op_s");
}

static void same_device(const kin_device_facts *a, const kin_device_facts *b, double tolerance) {
    assert_string_equal(a->name, b->name);
    assert_int_equal(a->os, b->os);
    assert_int_equal(a->has_gpu, b->has_gpu);
    same_engine(&a->cpu, &b->cpu, tolerance);
    same_number(a->memory_bytes, b->memory_bytes, tolerance, "memory");
    same_number(a->swap_bytes, b->swap_bytes, tolerance, "swap");
    same_number(a->disk_bytes_s, b->disk_bytes_s, tolerance, "disk");
    same_number(a->disk_random_bytes_s, b->disk_random_bytes_s, tolerance, "random disk");
    same_number(a->window_s, b->window_s, tolerance, "window");
    assert_int_equal(a->no_slices, b->no_slices);
    if (!a->has_gpu) return;
    assert_int_equal(a->uma, b->uma);
    same_engine(&a->gpu, &b->gpu, tolerance);
    same_number(a->gpu_memory_bytes, b->gpu_memory_bytes, tolerance, "GPU memory");
    same_number(a->to_gpu_s, b->to_gpu_s, tolerance, "to_gpu_s");
    same_number(a->from_gpu_s, b->from_gpu_s, tolerance, "from_gpu_s");
    same_number(a->gpu_copy_bytes_s, b->gpu_copy_bytes_s, tolerance, "gpu_copy_bytes_s");
}
#define same_device(...) FROM_TEST(same_device(__VA_ARGS__))

static void same_model(const kin_model_facts *a, const kin_model_facts *b, double tolerance) {
    assert_int_equal(a->n_layer, b->n_layer);
    assert_int_equal(a->n_vocab, b->n_vocab);
    for (int il = 0; il < a->n_layer; il++) same_number(a->layer_share[il], b->layer_share[il], tolerance, "layer_share");
    for (int il = 0; il < a->n_layer; il++) same_number(a->kv_share[il], b->kv_share[il], tolerance, "kv_share");
    same_types(a->layer_bytes, b->layer_bytes, tolerance, "layer_bytes");
    same_types(a->layer_flops, b->layer_flops, tolerance, "layer_flops");
    same_types(a->expert_bytes, b->expert_bytes, tolerance, "expert_bytes");
    same_types(a->output_bytes, b->output_bytes, tolerance, "output_bytes");
    same_types(a->output_flops, b->output_flops, tolerance, "output_flops");
    const double numbers[][2] = {
        {a->hidden_bytes, b->hidden_bytes},
        {a->expert_share, b->expert_share},
        {a->expert_hits[0], b->expert_hits[0]},
        {a->expert_hits[1], b->expert_hits[1]},
        {a->expert_hits[2], b->expert_hits[2]},
        {a->attn_bytes, b->attn_bytes},
        {a->block_bytes, b->block_bytes},
        {a->weight_block_bytes, b->weight_block_bytes},
        {a->input_bytes, b->input_bytes},
        {a->layer_ops, b->layer_ops},
        {a->gpu_layer_ops, b->gpu_layer_ops},
        {a->cpu_only, b->cpu_only},
        {a->output_ops, b->output_ops},
        {a->layer_blocks, b->layer_blocks},
        {a->output_blocks, b->output_blocks},
        {a->kv_bytes, b->kv_bytes},
        {a->kv_held_bytes, b->kv_held_bytes},
        {a->gpu_kv_bytes, b->gpu_kv_bytes},
        {a->kv_reads, b->kv_reads},
        {a->cpu_buffer_bytes, b->cpu_buffer_bytes},
        {a->gpu_buffer_bytes, b->gpu_buffer_bytes},
    };
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) same_number(numbers[i][0], numbers[i][1], tolerance, "model");
}

static void same_facts(const kin_facts *a, const kin_facts *b, double tolerance) {
    assert_int_equal(a->n_device, b->n_device);
    same_model(&a->model, &b->model, tolerance);
    assert_memory_equal(&a->work, &b->work, sizeof a->work);
    for (int i = 0; i < a->n_device; i++) {
        same_device(&a->devices[i], &b->devices[i], tolerance);
        for (int to = 0; to < a->n_device; to++) {
            if (i == to) continue;
            same_number(a->links[i][to].rtt_s, b->links[i][to].rtt_s, tolerance, "rtt_s");
            same_number(a->links[i][to].bytes_s, b->links[i][to].bytes_s, tolerance, "bytes_s");
        }
    }
}
#define same_facts(...) FROM_TEST(same_facts(__VA_ARGS__))

// ---- round trips

static void write_and_read(const kin_facts *facts, kin_facts *back) {
    kin_err err;
    if (kin_facts_file_write(temporary_path(), facts, &err) != 0) fail_msg("%s", err.text);
    if (kin_facts_file_read(temporary_path(), back, &err) != 0) fail_msg("%s", err.text);
    unlink(temporary_path());
}
#define write_and_read(...) FROM_TEST(write_and_read(__VA_ARGS__))

// Adds what the generator leaves out: layer sizes, operation costs, and nonsense that JSON can express.
static void add_variety(kin_facts *f, kin_rng *rng) {
    kin_model_facts *m = &f->model;
    double sizes[KIN_FACTS_MAX_LAYERS];
    for (int il = 0; il < m->n_layer; il++) sizes[il] = 1 + kin_rng_unit(rng);
    if (kin_random_below(rng, 2)) kin_facts_set_shares(m, sizes);
    m->gpu_kv_bytes = kin_random_below(rng, 2) ? 1e4 * kin_rng_unit(rng) : 0;
    sizes[0] = 0;
    if (m->n_layer > 1 && kin_random_below(rng, 2)) kin_facts_set_kv(m, 100, sizes);
    m->layer_ops = kin_random_below(rng, 2) ? 20 * kin_rng_unit(rng) : 0;
    m->gpu_layer_ops = kin_random_below(rng, 2) ? 20 * kin_rng_unit(rng) : 0;
    m->cpu_only = kin_random_below(rng, 2);
    f->work.n_cached = kin_random_below(rng, 3);
    f->devices[0].cpu.op_s = 1e-5 * kin_rng_unit(rng);
    f->devices[0].cpu.token_bytes_s[KIN_QUANT_F16] = 0;
    f->devices[0].cpu.kv_bytes_s = 5e10 * kin_rng_unit(rng);
    for (int i = 0; i < KIN_FACTS_BATCHES; i++) {
        for (int q = kin_random_below(rng, 2); q < KIN_N_QUANT; q += 3) f->devices[0].cpu.batch_factor[i][q] = kin_rng_unit(rng);
    }
    for (int i = 0; i < KIN_FACTS_CACHED; i++) f->devices[0].cpu.cached_factor[i][KIN_QUANT_OTHER] = kin_rng_unit(rng);
    f->devices[f->n_device - 1].memory_bytes *= kin_random_below(rng, 3) - 1;
}

static void facts_that_were_written_read_back_as_the_same_bits(void **state) {
    (void)state;
    static kin_facts facts, back;
    kin_rng rng;
    kin_rng_seed(&rng, 1);
    for (int i = 0; i < 400; i++) {
        kin_random_facts(&facts, &rng, i % 8 ? 6 : KIN_FACTS_MAX_DEVICES, i % 10 ? 80 : KIN_FACTS_MAX_LAYERS);
        add_variety(&facts, &rng);
        facts.devices[i % 6].no_slices = i % 2;
        write_and_read(&facts, &back);
        same_facts(&facts, &back, 0);
    }
}

// Covers every number of both structs, including those unknown to this test.
static void no_number_of_the_facts_is_forgotten(void **state) {
    (void)state;
    static kin_facts f, back;
    double *const numbers[] = {(double *)&f.model, (double *)&f.devices[0].cpu};
    const size_t n[] = {sizeof f.model / sizeof(double),
                        (sizeof f.devices[0] - offsetof(kin_device_facts, cpu)) / sizeof(double)};
    kin_paper_facts(&f, KIN_PAPER_A4, KIN_PAPER_8B, 1);
    for (int part = 0; part < 2; part++) {
        for (size_t i = 0; i < n[part]; i++) numbers[part][i] = (double)i + 1.5;
    }
    // What lies between these and the next double is padding. It is zero in the facts that were read, so it is cleared here.
    memset((char *)&f.model + offsetof(kin_model_facts, n_layer), 0, sizeof(double));
    memset((char *)&f.model + offsetof(kin_model_facts, n_vocab), 0, sizeof(double));
    memset((char *)&f.model + offsetof(kin_model_facts, checkpoint_gap), 0, sizeof(double));
    f.model.n_layer = KIN_FACTS_MAX_LAYERS;
    f.model.n_vocab = 7;
    f.model.checkpoint_gap = 512;
    write_and_read(&f, &back);
    assert_memory_equal(&f.model, &back.model, sizeof f.model);
    assert_memory_equal(&f.devices[0].cpu, &back.devices[0].cpu, n[1] * sizeof(double));
}

static void a_file_without_a_model_stays_without(void **state) {
    (void)state;
    static kin_facts facts, back;
    kin_paper_facts(&facts, KIN_PAPER_A4, KIN_PAPER_8B, 0);
    facts.model = (kin_model_facts){0};
    write_and_read(&facts, &back);
    same_facts(&facts, &back, 0);
    assert_int_equal(back.model.n_layer, 0);
}

static void a_device_alone_is_json_too(void **state) {
    (void)state;
    static kin_facts facts;
    kin_device_facts back;
    kin_err err;
    kin_paper_facts(&facts, KIN_PAPER_A4, KIN_PAPER_8B, 0);
    for (int i = 0; i < facts.n_device; i++) {
        json_t *json = kin_facts_file_device_to_json(&facts.devices[i]);
        assert_non_null(json);
        assert_int_equal(kin_facts_file_device_from_json(json, &back, &err), 0);
        same_device(&facts.devices[i], &back, 0);
        json_decref(json);
    }
}

static void a_device_without_a_gpu_keeps_nothing_of_one(void **state) {
    (void)state;
    static kin_facts facts;
    kin_paper_facts(&facts, KIN_PAPER_A4, KIN_PAPER_8B, 0);
    facts.devices[0].has_gpu = false;
    json_t *json = kin_facts_file_device_to_json(&facts.devices[0]);
    assert_null(json_object_get(json, "gpu"));
    json_decref(json);
}

static void any_number_reads_back_as_itself(void **state) {
    (void)state;
    kin_rng rng;
    kin_rng_seed(&rng, 3);
    for (int i = 0; i < 20000; i++) {
        double value = ldexp(kin_rng_unit(&rng) - 0.5, kin_random_below(&rng, 2000) - 1000);
        json_t *json = json_real(value);
        char *text = json_dumps(json, JSON_ENCODE_ANY);
        same_number(strtod(text, NULL), value, 0, text);
        json_t *back = json_loads(text, JSON_DECODE_ANY, NULL);
        same_number(json_number_value(back), value, 0, text);
        json_decref(back);
        json_decref(json);
        free(text);
    }
}

// ---- what a user may write

#define CPU "\"cpu\": {\"token_bytes_per_s\": 4e10, \"prompt_flop_per_s\": 1e11, \"read_bytes_per_s\": 4e10}"
#define GPU                                                                                                                      \
    "\"gpu\": {\"memory_bytes\": \"8G\", \"token_bytes_per_s\": 4e11, \"prompt_flop_per_s\": 1e12, \"read_bytes_per_s\": 1}"
#define DEVICE(name) "{\"name\": \"" name "\", \"memory_bytes\": \"8G\", " CPU "}"
#define THREE "\"devices\": [" DEVICE("a") ", " DEVICE("b") ", " DEVICE("c") "]"
#define MODEL                                                                                                                    \
    "\"n_vocab\": 1000, \"hidden_bytes\": 64, \"layer_bytes\": {\"Q4_K\": 4e6}, \"layer_flops\": {\"Q4_K\": 1e7}, "              \
    "\"block_bytes\": 2e6, \"unit_bytes\": 1e6, \"input_bytes\": 1e6, \"output_bytes\": {\"Q6_K\": 1e6}, "                       \
    "\"output_flops\": {\"Q6_K\": 2e6}, \"kv_bytes\": 512"

static int read_text(const char *text, kin_facts *facts, kin_err *err) {
    FILE *file = fopen(temporary_path(), "w");
    assert_non_null(file);
    fputs(text, file);
    fclose(file);
    int rc = kin_facts_file_read(temporary_path(), facts, err);
    unlink(temporary_path());
    return rc;
}
#define read_text(...) FROM_TEST(read_text(__VA_ARGS__))

static void must_read(const char *text, kin_facts *facts) {
    kin_err err;
    if (read_text(text, facts, &err) != 0) fail_msg("%s", err.text);
}
#define must_read(...) FROM_TEST(must_read(__VA_ARGS__))

static void what_is_missing_has_defaults(void **state) {
    (void)state;
    static kin_facts f;
    must_read("{" THREE ", \"model\": {\"n_layer\": 3, " MODEL "}}", &f);
    assert_int_equal(f.n_device, 3);
    assert_int_equal(f.devices[1].os, KIN_OS_LINUX);
    assert_false(f.devices[1].has_gpu);
    assert_true(f.devices[1].disk_bytes_s == 0 && f.devices[1].window_s == 0 && f.devices[1].cpu.op_s == 0);
    assert_true(f.model.layer_share[2] == 1 && f.model.expert_share == 0);
    assert_true(f.work.n_ctx == 4096 && f.work.n_cached == 128 && f.work.n_prompt == 512 && f.work.n_batch == 512);
    assert_false(kin_facts_link_usable(&f.links[0][1]));
}

static void a_disk_without_a_random_rate_reads_as_fast_everywhere(void **state) {
    (void)state;
    static kin_facts f;
    must_read("{\"devices\": [{\"name\": \"a\", \"memory_bytes\": 1, \"disk_bytes_per_s\": 2e9, " CPU "}]}", &f);
    assert_true(f.devices[0].disk_random_bytes_s == 2e9);
}

static void sizes_may_have_letters(void **state) {
    (void)state;
    static kin_facts f;
    must_read("{\"devices\": [{\"name\": \"a\", \"memory_bytes\": \"1.5G\", \"swap_bytes\": 7, " CPU ", " GPU "}]}", &f);
    assert_true(f.devices[0].memory_bytes == 1.5 * 1024 * 1024 * 1024 && f.devices[0].swap_bytes == 7);
    assert_true(f.devices[0].has_gpu && f.devices[0].gpu_memory_bytes == 8.0 * 1024 * 1024 * 1024);
}

static void a_rate_may_be_one_number_or_one_for_each_type(void **state) {
    (void)state;
    static kin_facts f;
    must_read(
        "{\"devices\": [{\"name\": \"a\", \"memory_bytes\": 1, \"cpu\": {\"token_bytes_per_s\": {\"Q4_K\": 3, \"other\": 2},"
        " \"prompt_flop_per_s\": 5, \"read_bytes_per_s\": 1}}]}",
        &f);
    const kin_engine_facts *e = &f.devices[0].cpu;
    assert_true(e->token_bytes_s[KIN_QUANT_Q4_K] == 3 && e->token_bytes_s[KIN_QUANT_OTHER] == 2);
    assert_true(e->token_bytes_s[KIN_QUANT_F16] == 0);
    for (int q = 0; q < KIN_N_QUANT; q++) assert_true(e->prompt_flop_s[q] == 5);
}

static void pairs_are_unlike_the_default_both_ways_or_one_way(void **state) {
    (void)state;
    static kin_facts f;
    must_read("{" THREE ", \"links\": {\"default\": {\"rtt_s\": 0.01, \"bytes_per_s\": 5e7}, \"pairs\": ["
              "{\"from\": \"a\", \"to\": \"b\", \"rtt_s\": 0.02}, "
              "{\"from\": \"c\", \"to\": \"a\", \"bytes_per_s\": 0, \"one_way\": true}]}}",
              &f);
    assert_true(f.links[0][1].rtt_s == 0.02 && f.links[0][1].bytes_s == 5e7 && f.links[1][0].rtt_s == 0.02);
    assert_true(f.links[2][0].bytes_s == 0 && f.links[2][0].rtt_s == 0.01 && f.links[0][2].bytes_s == 5e7);
    assert_true(f.links[1][2].rtt_s == 0.01 && f.links[2][1].bytes_s == 5e7);
}

static void about_is_for_people(void **state) {
    (void)state;
    static kin_facts f;
    must_read("{\"about\": \"x\", \"devices\": [{\"about\": \"y\", \"name\": \"a\", \"memory_bytes\": 1, " CPU "}], "
              "\"model\": {\"about\": \"z\", \"n_layer\": 1, " MODEL "}}",
              &f);
    assert_int_equal(f.model.n_layer, 1);
}

// ---- malformed input

#define ONE(members) "{\"devices\": [{\"name\": \"a\", \"memory_bytes\": 1, " members "}]}"
#define LINKS(links) "{" THREE ", \"links\": " links "}"
#define WITH_MODEL(members) "{" THREE ", \"model\": {" members "}}"

static const struct {
    const char *text, *sentence; // the message after the path
} wrong[] = {
    // the file
    {"", ", line 1: '[' or '{' expected near end of file"},
    {"{\n\"devices\": [\n", ", line 3: ']' expected near end of file"},
    {"{\"devices\": [], \"devices\": []}", ", line 1: duplicate object key near '\"devices\"'"},
    {"{\"devices\": [1e999]}", ", line 1: real number overflow near '1e999'"},
    {"[]", ": must be an object, {...}"},
    {"{}", ": \"devices\" is missing"},
    {"{\"device\": []}", ": \"device\" is unknown here"},
    {"{\"about\": 1, \"devices\": []}", ": \"about\": must be a string"},
    // devices
    {"{\"devices\": {}}", ": \"devices\": must be a list, [...]"},
    {"{\"devices\": []}", ": \"devices\": 0 devices, must be 1 to 32"},
    {"{\"devices\": [7]}", ": device 1: must be an object, {...}"},
    {"{\"devices\": [{\"memory_bytes\": 1, " CPU "}]}", ": device 1: \"name\" is missing"},
    {"{\"devices\": [{\"name\": \"\", \"memory_bytes\": 1, " CPU "}]}", ": device 1: \"name\": must be a name"},
    {"{\"devices\": [{\"name\": \"\\u001b[2J\", \"memory_bytes\": 1, " CPU "}]}",
     ": device 1: \"name\": must be a name without control characters"},
    {"{\"devices\": [{\"name\": 3, \"memory_bytes\": 1, " CPU "}]}", ": device 1: \"name\": must be a name"},
    {"{\"devices\": [{\"name\": \"123456789012345678901234567890123456789012345678\", \"memory_bytes\": 1, " CPU "}]}",
     ": device 1: \"name\": '1234567890123456789012345678901234567890...' is "
     "longer than 47 bytes"},
    {"{\"devices\": [" DEVICE("a") ", " DEVICE("b") ", " DEVICE("a") "]}", ": device 3: duplicate name 'a'"},
    {"{\"devices\": [{\"name\": \"a\", " CPU "}]}", ": device 1 ('a'): \"memory_bytes\" is missing"},
    {"{\"devices\": [{\"name\": \"a\", \"memory_bytes\": 1}]}", ": device 1 ('a'): \"cpu\" is missing"},
    {ONE("\"cpu\": 3"), ": device 1 ('a'): \"cpu\": must be an object, {...}"},
    {ONE("\"cpu\": {}"), ": device 1 ('a'): \"cpu\": \"token_bytes_per_s\" is missing"},
    {ONE(CPU ", \"speed\": 1"), ": device 1 ('a'): \"speed\" is unknown here"},
    {ONE(CPU ", \"swap_bytes\": \"8 apples\""),
     ": device 1 ('a'): \"swap_bytes\": '8 apples' is not a size (write for example 512M or 1.5G)"},
    {ONE(CPU ", \"swap_bytes\": true"), ": device 1 ('a'): \"swap_bytes\": must be a size"},
    {ONE(CPU ", \"disk_bytes_per_s\": \"3G\""), ": device 1 ('a'): \"disk_bytes_per_s\": must be a number"},
    {ONE(CPU ", \"os\": \"plan9\""),
     ": device 1 ('a'): \"os\": must be \"linux\", \"macos\", \"android\", \"browser\", \"browser-gpu\" or \"other\""},
    {ONE(CPU ", \"os\": 1"),
     ": device 1 ('a'): \"os\": must be \"linux\", \"macos\", \"android\", \"browser\", \"browser-gpu\" or \"other\""},
    {ONE(CPU ", \"gpu\": []"), ": device 1 ('a'): \"gpu\": must be an object, {...}"},
    {ONE(CPU ", \"gpu\": {\"memory_bytes\": 1, \"cores\": 3}"), ": device 1 ('a'): \"gpu\": \"cores\" is unknown here"},
    {ONE(CPU ", \"gpu\": {\"shares_memory\": 1, \"memory_bytes\": 1}"),
     ": device 1 ('a'): \"gpu\": \"shares_memory\": must be true or false"},
    {ONE("\"cpu\": {\"token_bytes_per_s\": \"fast\"}"),
     ": device 1 ('a'): \"cpu\": \"token_bytes_per_s\": must be a number, or an object with one for each type, {\"Q4_K\": 45e9}"},
    {ONE("\"cpu\": {\"token_bytes_per_s\": {\"Q9\": 1}}"),
     ": device 1 ('a'): \"cpu\": \"token_bytes_per_s\": \"Q9\" is not a weight type (such as F16, Q8_0, Q4_K or \"other\")"},
    {ONE("\"cpu\": {\"token_bytes_per_s\": {\"Q4_K\": null}}"),
     ": device 1 ('a'): \"cpu\": \"token_bytes_per_s\": \"Q4_K\": must be a number"},
    // links
    {LINKS("[]"), ": \"links\": must be an object, {...}"},
    {LINKS("{\"all\": 1}"), ": \"links\": \"all\" is unknown here"},
    {LINKS("{\"default\": 1}"), ": \"links\": \"default\": must be an object, {...}"},
    {LINKS("{\"default\": {\"rtt_s\": 1}}"), ": \"links\": \"default\": \"bytes_per_s\" is missing"},
    {LINKS("{\"pairs\": {}}"), ": \"links\": \"pairs\": must be a list, [...]"},
    {LINKS("{\"pairs\": [1]}"), ": \"links\": pair 1: must be an object, {...}"},
    {LINKS("{\"pairs\": [{\"from\": \"a\"}]}"), ": \"links\": pair 1: \"to\" is missing"},
    {LINKS("{\"pairs\": [{\"from\": \"a\", \"to\": \"z\"}]}"), ": \"links\": pair 1: unknown device 'z'"},
    {LINKS("{\"pairs\": [{\"from\": \"z\", \"to\": \"a\"}]}"), ": \"links\": pair 1: unknown device 'z'"},
    {LINKS("{\"pairs\": [{\"from\": \"b\", \"to\": \"b\"}]}"), ": \"links\": pair 1: 'b' has a link to itself"},
    {LINKS("{\"pairs\": [{\"from\": \"a\", \"to\": \"b\", \"one_way\": 1}]}"),
     ": \"links\": pair 1: \"one_way\": must be true or false"},
    // the model and the work
    {WITH_MODEL(MODEL), ": \"model\": \"n_layer\" is missing"},
    {WITH_MODEL("\"n_layer\": 2.5, " MODEL), ": \"model\": \"n_layer\": must be a whole number"},
    {WITH_MODEL("\"n_layer\": 3000000000, " MODEL), ": \"model\": \"n_layer\": 3000000000 is too large"},
    {WITH_MODEL("\"n_layer\": 257, " MODEL), ": \"model\": \"n_layer\": 257 layers, must be 1 to 256"},
    {WITH_MODEL("\"n_layer\": -1, " MODEL), ": \"model\": \"n_layer\": -1 layers, must be 1 to 256"},
    {WITH_MODEL("\"n_layer\": 2, \"layer_share\": [1], " MODEL), ": \"model\": \"layer_share\": 1 numbers for 2 layers"},
    {WITH_MODEL("\"n_layer\": 2, \"layer_share\": [1, \"1\"], " MODEL),
     ": \"model\": \"layer_share\": element 2 is not a number"},
    {WITH_MODEL("\"n_layer\": 2, \"kv_share\": [1], " MODEL), ": \"model\": \"kv_share\": 1 numbers for 2 layers"},
    {WITH_MODEL("\"n_layer\": 2, \"layer_share\": 1, " MODEL), ": \"model\": \"layer_share\": must be a list, [...]"},
    {WITH_MODEL("\"n_layer\": 2, \"expert_bytes\": 1, " MODEL),
     ": \"model\": \"expert_bytes\": must be an object with a number for each weight type, {\"Q4_K\": 1e9}"},
    {"{" THREE ", \"model\": []}", ": \"model\": must be an object, {...}"},
    {"{" THREE ", \"work\": 1}", ": \"work\": must be an object, {...}"},
    {"{" THREE ", \"work\": {\"n_ctx\": \"4096\"}}", ": \"work\": \"n_ctx\": must be a whole number"},
    {"{" THREE ", \"work\": {\"tokens\": 1}}", ": \"work\": \"tokens\" is unknown here"},
};

static void what_cannot_be_understood_is_refused_with_its_place(void **state) {
    (void)state;
    static kin_facts f;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        kin_err err = {""};
        char sentence[512];
        snprintf(sentence, sizeof sentence, "%s%s", temporary_path(), wrong[i].sentence);
        if (read_text(wrong[i].text, &f, &err) == 0) fail_msg("was read: %s", wrong[i].text);
        assert_string_equal(err.text, sentence);
    }
}

static void a_file_that_is_not_there_is_named(void **state) {
    (void)state;
    static kin_facts f;
    kin_err err;
    assert_int_equal(kin_facts_file_read("/nowhere/facts.json", &f, &err), KIN_FAIL);
    assert_non_null(strstr(err.text, "/nowhere/facts.json: "));
    kin_paper_facts(&f, KIN_PAPER_A4, KIN_PAPER_8B, 0);
    assert_int_equal(kin_facts_file_write("/nowhere/facts.json", &f, &err), KIN_FAIL);
    assert_string_equal(err.text, "/nowhere/facts.json: No such file or directory");
}

static void a_full_disk_is_an_error(void **state) {
    (void)state;
    static kin_facts f;
    kin_err err;
    if (access("/dev/full", W_OK) != 0) skip();
    kin_paper_facts(&f, KIN_PAPER_A4, KIN_PAPER_8B, 0);
    assert_int_equal(kin_facts_file_write("/dev/full", &f, &err), KIN_FAIL);
    assert_non_null(strstr(err.text, "cannot write /dev/full"));
}

static void must_not_write(const kin_facts *f, const char *sentence) {
    kin_err err = {""};
    assert_int_equal(kin_facts_file_write(temporary_path(), f, &err), KIN_FAIL);
    if (!strstr(err.text, sentence)) fail_msg("'%s' is not in: %s", sentence, err.text);
    assert_int_not_equal(access(temporary_path(), F_OK), 0);
}
#define must_not_write(...) FROM_TEST(must_not_write(__VA_ARGS__))

static void what_json_cannot_say_is_not_written(void **state) {
    (void)state;
    static kin_facts good, f;
    kin_paper_facts(&good, KIN_PAPER_A4, KIN_PAPER_8B, 0);
    f = good, f.devices[1].memory_bytes = NAN;
    must_not_write(&f, "device 2: \"memory_bytes\" cannot be written as JSON");
    assert_null(kin_facts_file_device_to_json(&f.devices[1]));
    f = good, f.devices[0].gpu.op_s = INFINITY;
    must_not_write(&f, "device 1: \"gpu\": \"op_s\" cannot be written as JSON");
    f = good, f.devices[2].cpu.prompt_flop_s[3] = NAN;
    must_not_write(&f, "device 3: \"cpu\": \"prompt_flop_per_s\" cannot be written as JSON");
    f = good, f.devices[3].name[0] = '\xff';
    must_not_write(&f, "device 4: \"name\" cannot be written as JSON");
    f = good, f.links[0][2].rtt_s = NAN;
    must_not_write(&f, "\"links\": 'laptop' to 'Mac Mini': \"rtt_s\" cannot be written as JSON");
    f = good, f.model.layer_bytes[0] = NAN;
    must_not_write(&f, "\"model\": \"layer_bytes\" cannot be written as JSON");
    f = good, f.model.kv_share[7] = NAN;
    must_not_write(&f, "\"model\": \"kv_share\" cannot be written as JSON");
    f = good, f.model.layer_share[7] = NAN;
    must_not_write(&f, "\"model\": \"layer_share\" cannot be written as JSON");
}

// ---- nonsense in value

static void values_are_the_screens_to_judge(void **state) {
    (void)state;
    static kin_facts f;
    char reasons[KIN_FACTS_MAX_DEVICES][KIN_FACTS_MAX_REASON];
    kin_device_set usable;
    kin_err err;
    must_read("{\"devices\": [" DEVICE("a") ", " DEVICE(
                  "b") ", "
                       "{\"name\": \"negative\", \"memory_bytes\": -1, " CPU "}, "
                       "{\"name\": \"petabyte\", \"memory_bytes\": 1e15, " CPU "}, "
                       "{\"name\": \"zero\", \"memory_bytes\": \"8G\", \"cpu\": "
                       "{\"token_bytes_per_s\": 0, \"prompt_flop_per_s\": 1e11, \"read_bytes_per_s\": 4e10}}], "
                       "\"links\": {\"default\": {\"rtt_s\": 0.01, \"bytes_per_s\": 5e7}}, \"model\": {\"n_layer\": 3, " MODEL
                       "}}",
              &f);
    assert_int_equal(kin_facts_screen(&f, &usable, reasons, &err), 0);
    assert_int_equal(usable, kin_device_bit(0) | kin_device_bit(1));
    assert_string_equal(reasons[2], "memory is negative (-1)");
    assert_non_null(strstr(reasons[3], "memory is too large (1e+15;"));
    assert_string_equal(reasons[4], "CPU: the rate for Q4_K weights is missing");
}

// ---- the examples

static void the_examples_are_the_papers_clusters(void **state) {
    (void)state;
    static const struct {
        const char *name;
        kin_paper_cluster cluster;
        kin_paper_model model;
        int n_device;
    } examples[] = {
        {"a4-8b", KIN_PAPER_A4, KIN_PAPER_8B, 0},
        {"a4-70b", KIN_PAPER_A4, KIN_PAPER_70B, 0},
        {"table3-70b", KIN_PAPER_TABLE_3, KIN_PAPER_70B, 4},
        {"table11-70b", KIN_PAPER_TABLE_11, KIN_PAPER_70B, 0},
        {"table3-six-70b", KIN_PAPER_TABLE_3, KIN_PAPER_70B, 6},
        {"table3-seen-70b", KIN_PAPER_TABLE_3_SEEN, KIN_PAPER_70B, 0},
        {"a5-70b", KIN_PAPER_A5, KIN_PAPER_70B, 0},
        {"a9-70b", KIN_PAPER_A9, KIN_PAPER_70B, 0},
        {"a10-70b", KIN_PAPER_A10, KIN_PAPER_70B, 0},
        {"a11-70b", KIN_PAPER_A11, KIN_PAPER_70B, 0},
        {"a14-70b", KIN_PAPER_A14, KIN_PAPER_70B, 0},
        {"a15-70b", KIN_PAPER_A15, KIN_PAPER_70B, 0},
        {"laptops-7b", KIN_PAPER_LAPTOPS, KIN_PAPER_F32_7B, 0},
        {"thesis-4b", KIN_PAPER_THESIS, KIN_PAPER_THESIS_4B, 0},
    };
    static kin_facts paper, read;
    for (size_t i = 0; i < sizeof examples / sizeof *examples; i++) {
        char path[512];
        kin_err err;
        snprintf(path, sizeof path, "%s/assets/facts/%s.json", KIN_SOURCE_DIR, examples[i].name);
        if (kin_facts_file_read(path, &read, &err) != 0) fail_msg("%s", err.text);
        kin_paper_facts(&paper, examples[i].cluster, examples[i].model, examples[i].n_device);
        same_facts(&paper, &read, 1e-9); // "9.7G" is rounded to whole bytes
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(facts_that_were_written_read_back_as_the_same_bits),
        cmocka_unit_test(no_number_of_the_facts_is_forgotten),
        cmocka_unit_test(a_file_without_a_model_stays_without),
        cmocka_unit_test(a_device_alone_is_json_too),
        cmocka_unit_test(a_device_without_a_gpu_keeps_nothing_of_one),
        cmocka_unit_test(any_number_reads_back_as_itself),
        cmocka_unit_test(what_is_missing_has_defaults),
        cmocka_unit_test(a_disk_without_a_random_rate_reads_as_fast_everywhere),
        cmocka_unit_test(sizes_may_have_letters),
        cmocka_unit_test(a_rate_may_be_one_number_or_one_for_each_type),
        cmocka_unit_test(pairs_are_unlike_the_default_both_ways_or_one_way),
        cmocka_unit_test(about_is_for_people),
        cmocka_unit_test(what_cannot_be_understood_is_refused_with_its_place),
        cmocka_unit_test(a_file_that_is_not_there_is_named),
        cmocka_unit_test(a_full_disk_is_an_error),
        cmocka_unit_test(what_json_cannot_say_is_not_written),
        cmocka_unit_test(values_are_the_screens_to_judge),
        cmocka_unit_test(the_examples_are_the_papers_clusters),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
