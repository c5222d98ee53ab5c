// Drafted tokens in steps, and their results.
//
// Owner and thread: the scheduler's.
#pragma once

#include "pipeline/scheduling.h"

// Adds drafts to a step that has nothing but sequences' last tokens, if that makes generation faster. Prompts leave no spare
// rows.
int kin_scheduler_add_drafts(kin_scheduler *s, kin_flight *f, kin_err *err);

// True if hidden states of the step are wanted for drafts: one of its sequences has drafts.
bool kin_scheduler_wants_hidden(const kin_scheduler *s, const kin_flight *f);

// Passes on the hidden states of n tokens of the sequence, the first of which is the step's token `at` and has the position pos.
// Without states, or drafts that need them, it does nothing.
void kin_scheduler_give_hidden(kin_scheduler *s, const kin_generation *g, int at, int pos, int n);

// Runs one pass of the draft model while the ring computes (kin_head_meanwhile). user: the scheduler.
bool kin_scheduler_draft_ahead(void *user, double free_s);

// Fills a step with the token drafted after those in flight, if the source still proposes the ones in flight.
int kin_scheduler_add_ahead(kin_scheduler *s, kin_flight *f, kin_err *err);

// Returns which drafted token after token i (-1: the sequence's last one) equals id; -1: none.
int kin_scheduler_find_drafted(kin_scheduler *s, const kin_draft *d, int i, int32_t id);

// Compares the sampled token id with the next step in flight. A step that has that token is kept; any other is dropped, with all
// later ones.
void kin_scheduler_follow_ahead(kin_scheduler *s, kin_generation *g, int32_t id);

void kin_scheduler_count_drafts(kin_scheduler *s, const kin_generation *g, kin_draft_counts more);

// Records the time of a step of a sequence that is in several steps at once.
void kin_scheduler_measure_chain(kin_scheduler *s, double took_s);
