// A completion: one thread asks another for something, and waits until it is done.
//
//   asker: ask ─► generation ─► (posts the request) ─► wait(generation) ─► result
//   doer:  asked ─► generation ─► ... ─► done(generation, result)
//
// Generations grow. done(g) completes every request up to g, so an earlier answer never ends a later wait.
//
// Caller's storage. Threads: any; one asker at a time.
#pragma once

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

typedef struct kin_completion {
    pthread_mutex_t mutex; // over the rest
    pthread_cond_t changed;
    uint32_t asked, done;
    bool result;
} kin_completion;

void kin_completion_init(kin_completion *completion);
void kin_completion_fini(kin_completion *completion);

uint32_t kin_completion_ask(kin_completion *completion);
// The last generation asked for.
uint32_t kin_completion_asked(kin_completion *completion);
void kin_completion_done(kin_completion *completion, uint32_t generation, bool result);
// Blocks. Returns the result.
bool kin_completion_wait(kin_completion *completion, uint32_t generation);
