// The sampler: cuts are exact, draws follow the probabilities, and a seed gives the same ids everywhere.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <float.h>
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "pure/grammar/grammar_compile.h"
#include "pure/sampling/constraint.h"
#include "pure/sampling/portable_exp.h"
#include "pure/sampling/sampler.h"
#include "testkit/small_vocab.h"
#include "tests/place.h"

enum { MAX_VOCAB = 1000 };

// Returns options with all stages off except the draw.
static kin_sampler_options plain(void) {
    kin_sampler_options options = kin_sampler_options_defaults();
    options.temperature = 1;
    options.top_k = 0;
    options.top_p = 1;
    options.min_p = 0;
    return options;
}

static kin_sampler *sampler_of(int32_t n_vocab, kin_sampler_options options) {
    kin_sampler *sampler;
    kin_err err = {""};
    kin_sampler_new(&sampler, n_vocab, &options, &err);
    assert_string_equal(err.text, "");
    return sampler;
}
#define sampler_of(...) FROM_TEST(sampler_of(__VA_ARGS__))

static int32_t sample(kin_sampler *sampler, const float *logits, int32_t n_vocab) {
    float copy[MAX_VOCAB];
    memcpy(copy, logits, (size_t)n_vocab * sizeof *copy);
    return kin_sampler_sample(sampler, copy);
}

// Counts how often each id is drawn in n draws, each with its own seed.
static void count(kin_sampler_options options, const float *logits, int32_t n_vocab, int n, int *counts) {
    kin_sampler *sampler = sampler_of(n_vocab, options);
    memset(counts, 0, (size_t)n_vocab * sizeof *counts);
    for (int i = 0; i < n; i++) {
        kin_sampler_reset(sampler, (uint64_t)i);
        int32_t id = sample(sampler, logits, n_vocab);
        assert_in_range(id, 0, n_vocab - 1);
        counts[id]++;
    }
    kin_sampler_free(sampler);
}
#define count(...) FROM_TEST(count(__VA_ARGS__))

// Returns a bit mask of the ids that can be drawn.
static unsigned support(kin_sampler_options options, const float *logits, int32_t n_vocab) {
    int counts[32];
    unsigned mask = 0;
    count(options, logits, n_vocab, 3000, counts);
    for (int32_t id = 0; id < n_vocab; id++) mask |= (unsigned)(counts[id] > 0) << id;
    return mask;
}
#define support(...) FROM_TEST(support(__VA_ARGS__))

static int32_t sample_once(kin_sampler_options options, const float *logits, int32_t n_vocab) {
    kin_sampler *sampler = sampler_of(n_vocab, options);
    int32_t id = sample(sampler, logits, n_vocab);
    kin_sampler_free(sampler);
    return id;
}
#define sample_once(...) FROM_TEST(sample_once(__VA_ARGS__))

// Logits of the probabilities 1/8, 1/2, 1/16, 1/4, 1/16.
enum { N = 5 };
static const float halves[N] = {-2.0794415f, -0.6931472f, -2.7725887f, -1.3862944f, -2.7725887f};

// ---- random numbers and exp

static void random_numbers_are_those_of_the_paper(void **state) {
    (void)state;
    static const uint64_t expected[] = {11520, 0, 1509978240, 1215971899390074240, 1216172134540287360, 607988272756665600};
    kin_rng rng = {{1, 2, 3, 4}};
    for (int i = 0; i < 6; i++) assert_true(kin_rng_u64(&rng) == expected[i]);

    static const uint64_t seeded[] = {6457827717110365317u, 3203168211198807973u, 9817491932198370423u, 4593380528125082431u};
    kin_rng_seed(&rng, 1234567);
    for (int i = 0; i < 4; i++) assert_true(rng.s[i] == seeded[i]);
}

static void unit_numbers_fill_their_interval_evenly(void **state) {
    (void)state;
    kin_rng rng;
    int buckets[16] = {0};
    kin_rng_seed(&rng, 0);
    for (int i = 0; i < 160000; i++) {
        double u = kin_rng_unit(&rng);
        assert_true(u >= 0 && u < 1);
        buckets[(int)(u * 16)]++;
    }
    for (int i = 0; i < 16; i++) assert_in_range(buckets[i], 9600, 10400); // 4 standard deviations
}

static void exp_is_good_to_nine_digits(void **state) {
    (void)state;
    for (int i = 0; i < 1000000; i++) {
        double x = -660 * pow(i / 1e6, 3);
        assert_true(fabs(kin_portable_exp(x) / exp(x) - 1) < 1e-9);
    }
    assert_true(kin_portable_exp(0) == 1);
    assert_true(kin_portable_exp(-0.0) == 1);
    assert_true(kin_portable_exp(-700) == 0);
    assert_true(kin_portable_exp(-INFINITY) == 0);
}

static void exp_is_the_same_everywhere(void **state) {
    (void)state;
    assert_true(kin_portable_exp(-1) == 0x1.78b563613f35fp-2);
    assert_true(kin_portable_exp(-0.1) == 0x1.cf46d999abfe8p-1);
    assert_true(kin_portable_exp(-123.456) == 0x1.da9fb9e280e01p-179);
}

// ---- draws

static void draws_follow_the_probabilities(void **state) {
    (void)state;
    static const double p[N] = {1 / 8.0, 1 / 2.0, 1 / 16.0, 1 / 4.0, 1 / 16.0};
    enum { N_DRAWS = 100000 };
    int counts[N];
    double chi_square = 0;
    count(plain(), halves, N, N_DRAWS, counts);
    for (int i = 0; i < N; i++) chi_square += pow(counts[i] - N_DRAWS * p[i], 2) / (N_DRAWS * p[i]);
    assert_true(chi_square < 18.47); // 4 degrees of freedom: a correct sampler exceeds this once in a thousand times
}

static void temperature_bends_the_probabilities(void **state) {
    (void)state;
    static const double weights[N] = {1 / 64.0, 1 / 4.0, 1 / 256.0, 1 / 16.0, 1 / 256.0}; // squares, for temperature 1/2
    enum { N_DRAWS = 100000 };
    kin_sampler_options options = plain();
    options.temperature = 0.5f;
    int counts[N];
    double chi_square = 0, sum = 0;
    for (int i = 0; i < N; i++) sum += weights[i];
    count(options, halves, N, N_DRAWS, counts);
    for (int i = 0; i < N; i++) {
        double expected = N_DRAWS * weights[i] / sum;
        chi_square += pow(counts[i] - expected, 2) / expected;
    }
    assert_true(chi_square < 18.47);
}

// Stores in p the probabilities of the candidates of the last draw, and 0 for other ids. Returns their sum.
static double told_of(const kin_sampler *sampler, double *p, int32_t n_vocab) {
    double sum = 0;
    for (int32_t id = 0; id < n_vocab; id++) p[id] = 0;
    for (size_t i = 0; i < kin_sampler_n_drawn(sampler); i++) {
        double one;
        int32_t id = kin_sampler_drawn(sampler, i, &one);
        p[id] = one;
        sum += one;
    }
    return sum;
}

static void what_an_id_was_drawn_from_is_told(void **state) {
    (void)state;
    const float logits[] = {logf(1), logf(4), logf(2), logf(3)};
    double p[4];
    kin_sampler_options options = plain();
    for (int k = 0; k < 5; k++) {
        options.top_k = k;
        kin_sampler *sampler = sampler_of(4, options);
        sample(sampler, logits, 4);
        double sum_of_kept = k == 1 ? 4 : k == 2 ? 7 : k == 3 ? 9 : 10;
        assert_float_equal(told_of(sampler, p, 4), 1, 1e-9);
        assert_float_equal(p[1], 4 / sum_of_kept, 1e-6);
        assert_float_equal(p[3], k == 1 ? 0 : 3 / sum_of_kept, 1e-6);
        assert_float_equal(p[0], k == 0 || k == 4 ? 0.1 : 0, 1e-6);
        kin_sampler_free(sampler);
    }
    options.temperature = 0;
    kin_sampler *sampler = sampler_of(4, options);
    assert_int_equal(sample(sampler, logits, 4), 1);
    assert_float_equal(told_of(sampler, p, 4), 1, 0);
    assert_float_equal(p[1], 1, 0);
    const float nothing[] = {-INFINITY, -INFINITY, -INFINITY, -INFINITY};
    assert_int_equal(sample(sampler, nothing, 4), KIN_FAIL);
    assert_int_equal(kin_sampler_n_drawn(sampler), 0);
    kin_sampler_free(sampler);
}

static void temperature_0_takes_the_largest_and_of_equals_the_first(void **state) {
    (void)state;
    kin_sampler_options options = plain();
    options.temperature = 0;
    assert_int_equal(sample_once(options, halves, N), 1);
    static const float equal[] = {-1, 3, 2, 3, 3};
    assert_int_equal(sample_once(options, equal, N), 1);
}

// ---- cuts

static void top_k_keeps_the_k_largest(void **state) {
    (void)state;
    static const unsigned expected[] = {0x1f, 0x02, 0x0a, 0x0b, 0x0f, 0x1f, 0x1f}; // of the equal ids 2 and 4 the first
    for (int32_t k = 0; k <= 6; k++) {
        kin_sampler_options options = plain();
        options.top_k = k;
        assert_int_equal(support(options, halves, N), expected[k]);
    }
}

static void top_p_keeps_the_fewest_that_reach_p(void **state) {
    (void)state;
    static const struct {
        float p;
        unsigned mask;
    } expected[] = {{0.01f, 0x02}, {0.49f, 0x02}, {0.51f, 0x0a}, {0.74f, 0x0a},
                    {0.76f, 0x0b}, {0.88f, 0x0f}, {0.95f, 0x1f}, {1, 0x1f}};
    for (size_t i = 0; i < sizeof expected / sizeof *expected; i++) {
        kin_sampler_options options = plain();
        options.top_p = expected[i].p;
        assert_int_equal(support(options, halves, N), expected[i].mask);
        options.temperature = 50; // top-p uses the probabilities of temperature 1
        assert_int_equal(support(options, halves, N), expected[i].mask);
    }
}

static void top_p_takes_its_share_of_what_top_k_left(void **state) {
    (void)state;
    kin_sampler_options options = plain();
    options.top_k = 2; // 2/3 and 1/3
    options.top_p = 0.66f;
    assert_int_equal(support(options, halves, N), 0x02);
    options.top_p = 0.67f;
    assert_int_equal(support(options, halves, N), 0x0a);
}

static void min_p_keeps_what_is_near_the_best(void **state) {
    (void)state;
    static const struct {
        float p;
        unsigned mask;
    } expected[] = {{0, 0x1f},     {0.12f, 0x1f}, {0.13f, 0x0b}, {0.24f, 0x0b},
                    {0.26f, 0x0a}, {0.49f, 0x0a}, {0.51f, 0x02}, {1, 0x02}};
    for (size_t i = 0; i < sizeof expected / sizeof *expected; i++) {
        kin_sampler_options options = plain();
        options.min_p = expected[i].p;
        assert_int_equal(support(options, halves, N), expected[i].mask);
    }
}

// Sorting by top-k and by top-p's heap gives the same ids in the same order, and so the same draws.
static void cuts_agree_however_they_sort(void **state) {
    (void)state;
    kin_rng rng;
    kin_rng_seed(&rng, 5);
    for (int round = 0; round < 200; round++) {
        float logits[MAX_VOCAB];
        for (int i = 0; i < MAX_VOCAB; i++) logits[i] = (float)(int)(kin_rng_unit(&rng) * 20); // many equal ones
        logits[MAX_VOCAB - 1] = -1000; // so unlikely that top-k can omit it without effect
        kin_sampler_options options = plain();
        options.seed = (uint64_t)round;
        options.top_p = (float)(0.01 + 0.98 * kin_rng_unit(&rng));
        int32_t by_heap = sample_once(options, logits, MAX_VOCAB);
        options.top_k = MAX_VOCAB - 1;
        assert_int_equal(sample_once(options, logits, MAX_VOCAB), by_heap);
    }
}

// ---- bias and penalties

static void bias_is_added_and_can_forbid(void **state) {
    (void)state;
    static const kin_logit_bias bias[] = {{1, -INFINITY}, {4, 100}};
    kin_sampler_options options = plain();
    options.bias = bias;
    options.n_bias = 1;
    assert_int_equal(support(options, halves, N), 0x1d);
    options.n_bias = 2;
    assert_int_equal(support(options, halves, N), 0x10);
}

static void suppressed_tokens_are_never_sampled_whatever_their_bias(void **state) {
    (void)state;
    static const kin_logit_bias bias[] = {{4, 100}};
    static const int32_t suppressed[] = {4, 0};
    kin_sampler_options options = plain();
    options.suppressed = suppressed;
    options.n_suppressed = 2;
    assert_int_equal(support(options, halves, N), 0x0e);
    options.bias = bias;
    options.n_bias = 1;
    assert_int_equal(support(options, halves, N), 0x0e);
}

static void penalties_follow_their_formula(void **state) {
    (void)state;
    kin_sampler_options options = plain();
    options.temperature = 0;
    options.penalty_last_n = 4;
    options.penalty_repeat = 2;
    options.penalty_frequency = 0.25f;
    options.penalty_presence = 0.5f;
    kin_sampler *sampler = sampler_of(N, options);
    static const int32_t accepted[] = {3, 0, 1, 1, 0}; // 3 is no longer in the window
    for (int i = 0; i < 5; i++) kin_sampler_accept(sampler, accepted[i]);
    float logits[N] = {8, -3, 1, 2, 0};
    assert_int_equal(kin_sampler_sample(sampler, logits), 0);
    assert_true(logits[0] == 8 / 2.0f - (2 * 0.25f + 0.5f));
    assert_true(logits[1] == -3 * 2.0f - (2 * 0.25f + 0.5f));
    assert_true(logits[2] == 1 && logits[3] == 2 && logits[4] == 0);

    kin_sampler_reset(sampler, 0);
    float again[N] = {8, -3, 1, 2, 0};
    kin_sampler_sample(sampler, again);
    assert_true(again[0] == 8 && again[1] == -3);
    kin_sampler_free(sampler);
}

static void penalties_look_back_on_the_last_n_only(void **state) {
    (void)state;
    kin_sampler_options options = plain();
    options.temperature = 0;
    options.penalty_last_n = 3;
    options.penalty_presence = 10;
    kin_sampler *sampler = sampler_of(N, options);
    static const float logits[N] = {4, 3, 2, 1, 0};
    for (int32_t i = 0; i < 100; i++) { // expects the best id that is not among the last three
        int32_t id = sample(sampler, logits, N);
        assert_int_equal(id, i % 4);
        kin_sampler_accept(sampler, id);
    }
    kin_sampler_free(sampler);
}

static void no_window_means_no_penalties(void **state) {
    (void)state;
    kin_sampler_options options = plain();
    options.temperature = 0;
    options.penalty_last_n = 0;
    options.penalty_presence = 10;
    kin_sampler *sampler = sampler_of(N, options);
    kin_sampler_accept(sampler, 1);
    assert_int_equal(sample(sampler, halves, N), 1);
    kin_sampler_free(sampler);
}

// ---- seeds

static void same_seed_gives_the_same_ids_everywhere(void **state) {
    (void)state;
    static const int32_t expected[] = {963, 494, 346, 198, 482, 951, 309, 556, 272, 62,  988, 210, 840, 852, 914, 87,
                                       25,  408, 877, 519, 284, 568, 99,  593, 815, 704, 420, 655, 445, 531, 383, 50};
    float logits[MAX_VOCAB];
    for (int i = 0; i < MAX_VOCAB; i++) logits[i] = (float)(i * 7919 % MAX_VOCAB) / 100;
    kin_sampler_options options = kin_sampler_options_defaults();
    options.seed = 42;
    options.penalty_repeat = 1.1f;
    options.penalty_frequency = 0.1f;
    kin_sampler *sampler = sampler_of(MAX_VOCAB, options);
    for (size_t i = 0; i < sizeof expected / sizeof *expected; i++) {
        int32_t id = sample(sampler, logits, MAX_VOCAB);
        assert_int_equal(id, expected[i]);
        kin_sampler_accept(sampler, id);
    }
    kin_sampler_free(sampler);
}

static void reset_begins_the_stream_again(void **state) {
    (void)state;
    kin_sampler *sampler = sampler_of(N, plain());
    int32_t first[50];
    kin_sampler_reset(sampler, 9);
    for (int i = 0; i < 50; i++) first[i] = sample(sampler, halves, N);
    kin_sampler_reset(sampler, 9);
    for (int i = 0; i < 50; i++) assert_int_equal(sample(sampler, halves, N), first[i]);
    kin_sampler_free(sampler);
}

// ---- extreme logits

static kin_sampler_options mode(int i) {
    kin_sampler_options options = plain();
    if (i == 0) options.temperature = 0;
    if (i == 1) options = kin_sampler_options_defaults();
    if (i == 2) options.top_k = 2;
    if (i == 3) options.top_p = 0.5f;
    if (i == 4) options.min_p = 0.5f;
    if (i == 5) options.temperature = FLT_MIN;
    if (i == 6) options.temperature = FLT_MAX;
    return options;
}
enum { N_MODES = 8 };

static void what_is_not_a_number_is_never_taken(void **state) {
    (void)state;
    static const float logits[N] = {NAN, -INFINITY, -FLT_MAX, NAN, -INFINITY};
    for (int i = 0; i < N_MODES; i++) assert_int_equal(support(mode(i), logits, N), 0x04);
}

static void nothing_to_take_is_said(void **state) {
    (void)state;
    static const float logits[N] = {NAN, -INFINITY, -INFINITY, NAN, -INFINITY};
    for (int i = 0; i < N_MODES; i++) assert_int_equal(sample_once(mode(i), logits, N), KIN_FAIL);
}

static void huge_logits_do_not_overflow(void **state) {
    (void)state;
    static const float logits[N] = {-FLT_MAX, FLT_MAX, 0, 1, -INFINITY};
    for (int i = 0; i < N_MODES; i++) {
        if (i != 6) assert_int_equal(support(mode(i), logits, N), 0x02); // mode 6: at temperature FLT_MAX all are about equal
    }
    static const float infinite[N] = {3, INFINITY, -INFINITY, INFINITY, NAN};
    for (int i = 1; i < N_MODES; i++) {
        if (i != 3) assert_int_equal(support(mode(i), infinite, N), 0x0a);
    }
    assert_int_equal(support(mode(0), infinite, N), 0x02);
    assert_int_equal(support(mode(3), infinite, N), 0x02); // top-p 0.5 of two equal probabilities keeps one
}

static void vocabulary_of_one_works(void **state) {
    (void)state;
    static const float logits[1] = {-3};
    for (int i = 0; i < N_MODES; i++) assert_int_equal(sample_once(mode(i), logits, 1), 0);
}

// ---- options

static void expect_refused(kin_sampler_options options, const char *sentence) {
    kin_sampler *sampler;
    kin_err err = {""};
    assert_int_equal(kin_sampler_new(&sampler, N, &options, &err), KIN_FAIL);
    assert_null(sampler);
    assert_string_equal(err.text, sentence);
}
#define expect_refused(...) FROM_TEST(expect_refused(__VA_ARGS__))

#define EXPECT_REFUSED(field, value, sentence)                                                                                   \
    do {                                                                                                                         \
        kin_sampler_options options_ = kin_sampler_options_defaults();                                                           \
        options_.field = value;                                                                                                  \
        expect_refused(options_, sentence);                                                                                      \
    } while (0)

static void options_out_of_range_are_named(void **state) {
    (void)state;
    EXPECT_REFUSED(temperature, -1, "sampler: temperature is -1, must be 0 or more");
    EXPECT_REFUSED(temperature, INFINITY, "sampler: temperature is inf, must be 0 or more");
    EXPECT_REFUSED(top_k, -1, "sampler: top-k is -1, must be 0 (off) or more");
    EXPECT_REFUSED(top_p, 0, "sampler: top-p is 0, must be above 0 and at most 1");
    EXPECT_REFUSED(top_p, 1.5f, "sampler: top-p is 1.5, must be above 0 and at most 1");
    EXPECT_REFUSED(min_p, -0.5f, "sampler: min-p is -0.5, must be between 0 and 1");
    EXPECT_REFUSED(penalty_last_n, -1, "sampler: penalties look back on -1 tokens, must be 0 to 65536");
    EXPECT_REFUSED(penalty_last_n, 65537, "sampler: penalties look back on 65537 tokens, must be 0 to 65536");
    EXPECT_REFUSED(penalty_repeat, 0, "sampler: repetition penalty is 0, must be above 0");
    EXPECT_REFUSED(penalty_frequency, INFINITY, "sampler: frequency penalty is not a number");
    EXPECT_REFUSED(penalty_presence, NAN, "sampler: presence penalty is not a number");
    kin_sampler_options options = kin_sampler_options_defaults();
    options.bias = &(kin_logit_bias){N, 1};
    options.n_bias = 1;
    expect_refused(options, "sampler: bias for token 5, but there are 5 tokens");
    options.bias = &(kin_logit_bias){2, NAN};
    expect_refused(options, "sampler: the bias of token 2 is not a number");
    options = kin_sampler_options_defaults();
    options.suppressed = &(int32_t){N};
    options.n_suppressed = 1;
    expect_refused(options, "sampler: token 5 of 5 is suppressed");

    kin_sampler *sampler;
    assert_int_equal(kin_sampler_new(&sampler, 0, &options, NULL), KIN_FAIL);
    kin_sampler_free(NULL);
}

// ---- under a constraint

typedef struct constrained {
    kin_vocab *vocab;
    kin_token_trie *trie;
    kin_grammar *grammar;
    kin_matcher *matcher;
    kin_constraint *c;
} constrained;

// Uses the small vocabulary, where token SMALL_SPM_BYTES + b is the byte b.
static constrained constrain(const char *gbnf, const char *marker) {
    constrained k = {.vocab = small_vocab(small_spm_spec())};
    assert_int_equal(kin_token_trie_new(&k.trie, k.vocab, NULL), 0);
    assert_int_equal(kin_grammar_compile(&k.grammar, gbnf, strlen(gbnf), NULL), 0);
    assert_int_equal(kin_matcher_new(&k.matcher, k.grammar, k.trie, NULL), 0);
    assert_int_equal(kin_constraint_new(&k.c, k.matcher, (kin_str){marker, strlen(marker)}, NULL), 0);
    return k;
}
#define constrain(...) FROM_TEST(constrain(__VA_ARGS__))

static void release(constrained *k) {
    kin_constraint_free(k->c);
    kin_matcher_free(k->matcher);
    kin_grammar_free(k->grammar);
    kin_token_trie_free(k->trie);
    kin_vocab_free(k->vocab);
}

static int32_t byte_token(char c) {
    return SMALL_SPM_BYTES + (uint8_t)c;
}

// Sets logits with these probabilities: x 8/16, a 4/16, b 2/16, c 1/16, y 1/16.
static void few_letters(float *logits) {
    for (int32_t id = 0; id < SMALL_SPM_N; id++) logits[id] = -INFINITY;
    logits[byte_token('x')] = 0;
    logits[byte_token('a')] = -0.6931472f;
    logits[byte_token('b')] = -1.3862944f;
    logits[byte_token('c')] = logits[byte_token('y')] = -2.0794415f;
}

static void without_cuts_a_constraint_gives_the_masked_distribution(void **state) {
    (void)state;
    constrained k = constrain("root ::= [abc]", "");
    kin_sampler *sampler = sampler_of(SMALL_SPM_N, plain());
    int counts[256] = {0};
    enum { N_DRAWS = 14000 };
    for (int i = 0; i < N_DRAWS; i++) {
        float logits[SMALL_SPM_N];
        few_letters(logits);
        int32_t id = kin_sampler_sample_constrained(sampler, logits, k.c);
        counts[id - SMALL_SPM_BYTES]++;
    }
    assert_in_range(counts['a'], 7700, 8300); // 4/7 of 14000, 5 standard deviations
    assert_in_range(counts['b'], 3740, 4260); // 2/7
    assert_in_range(counts['c'], 1800, 2200); // 1/7
    kin_sampler_free(sampler);
    release(&k);
}

static void a_refused_token_does_not_shift_the_numbers_of_later_ones(void **state) {
    (void)state;
    constrained k = constrain("root ::= [abc]", "");
    for (uint64_t seed = 0; seed < 50; seed++) {
        kin_sampler_options options = plain();
        options.seed = seed;
        kin_sampler *free_one = sampler_of(SMALL_SPM_N, options), *bound = sampler_of(SMALL_SPM_N, options);
        for (int i = 0; i < 4; i++) {
            float logits[SMALL_SPM_N], same[SMALL_SPM_N];
            few_letters(logits);
            few_letters(same);
            int32_t wanted = kin_sampler_sample(free_one, same);
            int32_t id = kin_sampler_sample_constrained(bound, logits, i % 2 ? NULL : k.c);
            if (i % 2 || kin_constraint_allows(k.c, wanted)) assert_int_equal(id, wanted);
            assert_true(i % 2 || kin_constraint_allows(k.c, id));
        }
        kin_sampler_free(bound);
        kin_sampler_free(free_one);
    }
    release(&k);
}

static void greedy_takes_the_likeliest_that_is_allowed(void **state) {
    (void)state;
    constrained k = constrain("root ::= [bcy]", "");
    float logits[SMALL_SPM_N];
    kin_sampler_options options = plain();
    options.temperature = 0;
    kin_sampler *sampler = sampler_of(SMALL_SPM_N, options);
    few_letters(logits);
    assert_int_equal(kin_sampler_sample_constrained(sampler, logits, k.c), byte_token('b'));
    for (int32_t id = 0; id < SMALL_SPM_N; id++) logits[id] = id == byte_token('x') ? 0 : -INFINITY;
    assert_int_equal(kin_sampler_sample_constrained(sampler, logits, k.c), KIN_FAIL);
    kin_sampler_free(sampler);
    release(&k);
}

static void a_marker_turns_the_grammar_on_wherever_it_ends(void **state) {
    (void)state;
    constrained k = constrain("root ::= \"x\" \"y\"?", "abab");
    const char *text = "zababa"; // the marker ends before the last letter
    for (const char *c = text; *c; c++) {
        bool is_on = c == text + 5;
        assert_int_equal(kin_constraint_allows(k.c, byte_token(*c)), !is_on);
        assert_true(is_on || kin_constraint_allows(k.c, SMALL_SPM_CONTROL));
        if (!is_on) assert_int_equal(kin_constraint_accept(k.c, byte_token(*c), NULL), 0);
    }
    assert_false(kin_constraint_is_complete(k.c));
    assert_int_equal(kin_constraint_accept(k.c, byte_token('x'), NULL), 0);
    assert_int_equal(kin_constraint_accept(k.c, byte_token('y'), NULL), 0);
    assert_true(kin_constraint_is_complete(k.c));
    assert_int_equal(kin_constraint_reset(k.c, NULL), 0);
    assert_true(kin_constraint_allows(k.c, byte_token('q')));
    release(&k);

    k = constrain("root ::= \"b\"", "a"); // the marker ends inside the tokens "aa" and "ab"; the grammar restricts the rest
    assert_false(kin_constraint_allows(k.c, SMALL_SPM_AA));
    assert_true(kin_constraint_allows(k.c, SMALL_SPM_AB));
    const uint64_t *set = kin_constraint_mask(k.c);
    for (int32_t id = 0; id < SMALL_SPM_N; id++) assert_int_equal(kin_token_set_has(set, id), id != SMALL_SPM_AA);
    assert_int_equal(kin_constraint_accept(k.c, SMALL_SPM_AB, NULL), 0);
    assert_true(kin_constraint_is_complete(k.c));
    release(&k);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_numbers_are_those_of_the_paper),
        cmocka_unit_test(unit_numbers_fill_their_interval_evenly),
        cmocka_unit_test(exp_is_good_to_nine_digits),
        cmocka_unit_test(exp_is_the_same_everywhere),
        cmocka_unit_test(draws_follow_the_probabilities),
        cmocka_unit_test(temperature_bends_the_probabilities),
        cmocka_unit_test(what_an_id_was_drawn_from_is_told),
        cmocka_unit_test(temperature_0_takes_the_largest_and_of_equals_the_first),
        cmocka_unit_test(top_k_keeps_the_k_largest),
        cmocka_unit_test(top_p_keeps_the_fewest_that_reach_p),
        cmocka_unit_test(top_p_takes_its_share_of_what_top_k_left),
        cmocka_unit_test(min_p_keeps_what_is_near_the_best),
        cmocka_unit_test(cuts_agree_however_they_sort),
        cmocka_unit_test(bias_is_added_and_can_forbid),
        cmocka_unit_test(suppressed_tokens_are_never_sampled_whatever_their_bias),
        cmocka_unit_test(penalties_follow_their_formula),
        cmocka_unit_test(penalties_look_back_on_the_last_n_only),
        cmocka_unit_test(no_window_means_no_penalties),
        cmocka_unit_test(same_seed_gives_the_same_ids_everywhere),
        cmocka_unit_test(reset_begins_the_stream_again),
        cmocka_unit_test(what_is_not_a_number_is_never_taken),
        cmocka_unit_test(nothing_to_take_is_said),
        cmocka_unit_test(huge_logits_do_not_overflow),
        cmocka_unit_test(vocabulary_of_one_works),
        cmocka_unit_test(options_out_of_range_are_named),
        cmocka_unit_test(without_cuts_a_constraint_gives_the_masked_distribution),
        cmocka_unit_test(a_refused_token_does_not_shift_the_numbers_of_later_ones),
        cmocka_unit_test(greedy_takes_the_likeliest_that_is_allowed),
        cmocka_unit_test(a_marker_turns_the_grammar_on_wherever_it_ends),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
