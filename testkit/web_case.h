// A test case for the engine in WebAssembly (web/): the native engine's results for a plan and its steps, in a file that
// tests/web computes again. The file has parts, each after its length in 4 bytes: the payload of a PLAN, then those of STEPs. Two
// rounds, half of the layers in each.
//
// Owner and thread: the test's or the benchmark's.
#pragma once

#include <stdint.h>
#include <stdio.h>

#include "engine/kv/blocks.h"
#include "pure/proto/message.h"

typedef struct kin_web_case kin_web_case;

typedef struct kin_web_case_options {
    const char *model_path; // borrowed for open
    kin_proto_kv_type kv_type;
    int n_layers; // the first n_layers; 0: all
    int n_ctx, n_batch, n_threads;
    FILE *given;    // the case; borrowed until close
    FILE *expected; // the native engine's results in the same form; NULL: not kept
} kin_web_case_options;

int kin_web_case_open(kin_web_case **out, const kin_web_case_options *options, kin_err *err);
void kin_web_case_close(kin_web_case *c); // NULL is allowed

// Runs a step of n tokens of a sequence from `pos` on, through both rounds, with random activations; only the last row is wanted.
// *ns: time that the native engine took.
int kin_web_case_step(kin_web_case *c, int32_t seq, int32_t pos, int n, const kin_kv_op *ops, int n_ops, uint64_t *ns,
                      kin_err *err);
