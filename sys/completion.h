// A completion: one thread sends a request to another and waits until it is done.
//
//   asker: ask ─► generation ─► (posts the request) ─► wait(generation) ─► result
//   doer:  asked ─► generation ─► ... ─► done(generation, result)
//
// Generations increase. done(g) completes every request up to g, so a late answer to an earlier request never ends a later wait.
//
// Storage: the caller's. Threads: any; one asker at a time.
#pragma once

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

typedef struct kin_completion {
    pthread_mutex_t mutex; // protects the fields below
    pthread_cond_t changed;
    uint32_t asked, done;
    bool result;
} kin_completion;

void kin_completion_init(kin_completion *completion);
void kin_completion_fini(kin_completion *completion);

uint32_t kin_completion_ask(kin_completion *completion);
// Returns the last generation requested.
uint32_t kin_completion_asked(kin_completion *completion);
void kin_completion_done(kin_completion *completion, uint32_t generation, bool result);
// Blocks until the generation is done. Returns its result.
bool kin_completion_wait(kin_completion *completion, uint32_t generation);
