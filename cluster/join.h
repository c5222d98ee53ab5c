// Joining: a device that takes part in a ring, from looking for a head to computing its layers, until it is told to stop.
//
// Two threads: the caller's computes (it owns the instance, pipeline/engine_instance.h), the endpoint's has the links and the
// membership (pure/proto/member.h). What the plan needs of the model comes from a file of the device's own, or from the head and
// from other devices (fetch/fetch.h).
#pragma once

#include <stdatomic.h>
#include <stdint.h>

#include "model/gguf.h"
#include "net/key.h"
#include "pipeline/remote_engine.h"
#include "pure/proto/message.h"

#define KIN_JOIN_SPARE_DISK UINT64_MAX

typedef struct kin_join_options {
    kin_proto_id id;
    uint64_t run; // of this process: tells it from a copy of this machine (kin_proto_open)
    const char *name, *version;
    kin_key key;
    const char *head; // address; NULL: search for one
    uint16_t head_port;
    const char *listen;                             // numeric address, NULL: all
    uint16_t port;                                  // 0: any
    const char *advertise[KIN_PROTO_MAX_ADDRESSES]; // where others reach it; none: where the head sees it
    int n_advertise;
    const char *model_path;    // NULL: it has no file
    kin_proto_hash model_hash; // of that file
    kin_gguf *model;       // it, open since it was hashed: whether it has changed is looked at in the loop's thread. NULL: is not
    const char *cache_dir; // of fetched models and of prepacked weights
    bool no_cache;         // no prepacked weights
    uint64_t cache_cap;
    uint64_t spare_disk; // bytes to fetch for plans without one of the others; KIN_JOIN_SPARE_DISK: a tenth of what is free
    bool keeps_kv;       // pages of the KV cache in cache_dir, where the head asks for it
    uint64_t kv_cap;     // of all of them; 0: a twentieth of the disk
    uint64_t memory;     // most bytes to use; 0: what the machine can spare
    int n_threads;       // 0: one per core
    bool no_gpu;         // do not lend it
    // Computes in this process's place: model_path is then only looked at, and nothing is said to be here. NULL: it does itself.
    const kin_remote_engine *engine;
    // What was measured of it; its memory is looked up anew each time. NULL: the head gets no profile.
    const kin_device_facts *facts;
    const char *cpu, *gpu; // what they are called, for people; NULL: not known, none
    uint32_t hang_ms;      // a step that has not gone on for so long, at least, hangs: the device leaves; 0: two minutes
    atomic_bool *stop;
    bool *has_other_key; // set to true where it ends because the head at `head` has another key. NULL: not asked
    // A head has taken this device for the first time: the key is right. Called from the endpoint's thread; may be NULL.
    void (*accepted)(void *user);
    // What it is doing, a line each time that changes; and long work. Called from several threads; those that pack may call
    // progress at the same time.
    void (*status)(void *user, const char *line);
    void (*progress)(void *user, const char *what, uint64_t done, uint64_t total, uint64_t rate);
    void *user;
} kin_join_options;

// Returns 0 when `stop` was set; KIN_FAIL if it cannot begin, if a step hung and goes on after all, or if the head will never
// take this device: the one at `head` has another key, or a reason of its own.
int kin_join_run(const kin_join_options *options, kin_err *err);
