// Actions on slots, /slots/ID?action=... In llama-server a slot is the place of one sequence. kin has no slots: a request's
// id_slot is a tag of its sequence. `erase` removes the ended sequences of a tag from the prefix cache. `save` writes the tokens
// of the last one to a file. `restore` has them computed, or loaded from the KV cache's disks, so that a prompt that begins with
// them continues there.
//
// Thread: the loop's.
#pragma once

#include <uv.h>

#include "serve/http/http_exchange.h"
#include "serve/service.h"

typedef struct kin_slots_shared {
    uv_loop_t *loop;
    kin_service *service;
    const char *save_path; // the folder of the files; NULL: save and restore are refused
    int n_vocab, n_ctx;
    int *n_open; // counts actions in progress
} kin_slots_shared;

void kin_slots_begin(const kin_slots_shared *shared, kin_http_exchange *x);
void kin_slots_handle(kin_job_event *event); // KIN_SEQUENCES_ERASED, KIN_SEQUENCE_READ, and events of jobs that restore
