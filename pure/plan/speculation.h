// Speculation: how many drafted tokens a step verifies, so that texts come fastest.
//
// A step of r rows, one for each text that is written, takes T(r). With k drafted tokens more it takes T(r + k), and gives
//
//     E = r + sum over drafted tokens of (the chance that it and those before it in its text are right)
//
// tokens. The k likeliest drafted tokens are the best k, since a chance never exceeds that of the token before; the best k has
// the largest E / T(r + k). None are verified where that is less than 5 % above r / T(r).
//
// T is what steps took lately (seconds, of any kind of machine: computing, disks, hops), between measured numbers of rows in
// proportion, beyond them as on a CPU with kin's kernels. Chances are learnt for each source and grade. What is not worth it is
// tried again, more and more rarely; a step without drafts is measured now and then, for comparison.
//
// With `always` set, all drafted tokens that fit are verified: for tests and measurements.
//
// Plain data. Owner and thread: the scheduler's.
#pragma once

#include <stdbool.h>

#include "base/err.h"
#include "pure/text/draft.h"

enum {
    KIN_SPECULATION_MAX_ROWS = KIN_DRAFT_MAX + 1,
    KIN_SPECULATION_MAX_TEXTS = KIN_SPECULATION_MAX_ROWS,
    KIN_SPECULATION_SAMPLES = 5
};

typedef struct kin_speculation {
    struct {
        double took_s[KIN_SPECULATION_SAMPLES]; // cyclic: of the last steps with so many rows
        int n;                                  // of these, in all
        uint64_t step;                          // when the last one was
    } times[KIN_SPECULATION_MAX_ROWS + 1];
    struct {
        double chance;
        int n; // tokens it was learnt from, up to a limit
    } grades[KIN_DRAFT_N_SOURCES][KIN_DRAFT_GRADES];
    uint64_t step;       // steps so far
    uint64_t next_probe; // step after which one token is verified although it is not worth it
    uint64_t probe_gap;  // steps between two of these
    bool is_probe;       // the last choice was one
    bool always;
} kin_speculation;

void kin_speculation_init(kin_speculation *speculation);

// Whether a step of n_rows rows should have drafts at all; if not, no source needs to be asked.
bool kin_speculation_wants(const kin_speculation *speculation, int n_rows);

// How many tokens of each of n drafts join a step of n_rows rows: taken [n]. At most n_free in all.
void kin_speculation_choose(kin_speculation *speculation, int n_rows, int n_free, const kin_draft *const *drafts, int n,
                            int *taken);

// A step of n_rows rows, drafted ones included, took so long.
void kin_speculation_learn_time(kin_speculation *speculation, int n_rows, double took_s);

// Steps are computed by other machines from now on, or by as many others: what was measured says nothing any more.
void kin_speculation_forget_times(kin_speculation *speculation);

// A token whose predecessors were right was right, or not.
void kin_speculation_learn_token(kin_speculation *speculation, kin_draft_source_kind kind, int grade, bool accepted);
