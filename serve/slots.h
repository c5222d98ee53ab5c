// What is done with a slot, /slots/ID?action=...: a text's place in llama-server. kin has none. A request's id_slot is a tag of
// its text: `erase` takes the texts of a tag out of the prefix cache when they have ended, `save` writes the last one's tokens to
// a file, `restore` has them computed, or found on the disks of the KV cache, so that a prompt that begins with them goes on
// there.
//
// Thread: the loop's.
#pragma once

#include <uv.h>

#include "serve/http_exchange.h"
#include "serve/service.h"

typedef struct kin_slots_world {
    uv_loop_t *loop;
    kin_service *service;
    const char *save_path; // the folder of the files; NULL: save and restore are refused
    int n_vocab, n_ctx;
    int *n_open; // counts what is under way
} kin_slots_world;

void kin_slots_begin(const kin_slots_world *world, kin_http_exchange *x);
void kin_slots_take(kin_job_event *event); // KIN_TEXTS_ERASED, KIN_TEXT_READ, and those of jobs that restore
