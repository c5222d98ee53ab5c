// Golden models: small models of random weights with exact logits, and the results of llama.cpp.
//
// They are in a folder beside the clone and are optional; the tables there are golden.tsv and golden-long.tsv (longer prompts),
// one row per model:
//   name, n_vocab, prompt ids, greedy ids, llama.cpp's median and maximum error
// NAME.gguf is the model. NAME.logits has its exact logits, f32, rows of n_vocab: weights dequantized, everything in float32, fed
// the prompt and then the ids that llama.cpp generates greedily. An error is the relative L2 distance of a row: about 2e-2 for
// quantized weights, which every fast kernel multiplies with rounded activations, and below 1e-3 for F16.
#pragma once

#include <stdint.h>

#include "testkit/runner.h"

enum { KIN_GOLDEN_MAX_IDS = 256, KIN_GOLDEN_MAX_MODELS = 64 };

typedef struct kin_golden {
    char name[64];
    int n_vocab;
    int n_prompt, n_ids; // ids: those of the prompt, then the greedy ones
    int32_t ids[KIN_GOLDEN_MAX_IDS];
    double error_median, error_max; // of llama.cpp itself, over the rows
} kin_golden;

// Reads DIR/golden.tsv and DIR/golden-long.tsv into models[KIN_GOLDEN_MAX_MODELS]. Returns their number, 0 if there is no table,
// or KIN_FAIL.
int kin_golden_load(const char *dir, kin_golden *models, kin_err *err);

typedef struct kin_golden_result {
    double error_median, error_max; // over the rows of prompt and greedy ids, fed together
    int n_above;                    // rows above the maximum allowed
    int n_other_experts;            // rows of a model with experts that are further off than rounding explains
    int n_generated;                // ids that were generated and compared
} kin_golden_result;

// Runs a model and checks the rules:
//   - the median error is at most 1.25 times llama.cpp's, the maximum at most 1.5 times;
//   - the largest logit is the exact one if the exact margin between the two largest is at least 0.1 of the row's
//     root mean square;
//   - greedy ids are llama.cpp's up to the first step whose exact margin is smaller than that.
// Experts are chosen by near-ties too, and another choice makes another row: its error is above 4 times the median. With experts,
// one row in ten may be such a row; its error may exceed the maximum, and its largest logit may differ. Fails with a sentence
// that names the broken rule.
int kin_golden_check(const char *dir, const kin_golden *golden, const kin_runner_options *options, kin_golden_result *result,
                     kin_err *err);

// The same for a head with that model and an empty KV cache.
int kin_golden_check_head(const char *dir, const kin_golden *golden, kin_head *head, const kin_model *model,
                          kin_golden_result *result, kin_err *err);
