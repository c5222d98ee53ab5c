// Options of a device that joins (cluster/join.h). Plain data, borrowed by the run.
#pragma once

#include <stdatomic.h>
#include <stdint.h>

#include "model/gguf.h"
#include "net/key.h"
#include "pipeline/remote_engine.h"
#include "pure/proto/message.h"

#define KIN_JOIN_STANDBY_DISK UINT64_MAX

typedef struct kin_join_options {
    kin_proto_id id;
    uint64_t run; // number of this process: tells it from a copy of this machine (kin_proto_open)
    const char *name, *version;
    kin_key key;
    const char *head; // address; NULL: search for one
    uint16_t head_port;
    const char *listen;                             // numeric address; NULL: all
    uint16_t port;                                  // 0: any
    const char *advertise[KIN_PROTO_MAX_ADDRESSES]; // addresses at which others reach this device; none: the one the head sees
    int n_advertise;
    const char *model_path;    // NULL: no model file
    kin_proto_hash model_hash; // of that file
    kin_gguf *model; // that file, open since it was hashed; the loop's thread checks whether it has changed. NULL: not checked
    const char *cache_dir; // for fetched models and prepacked weights
    bool no_cache;         // no prepacked weights
    uint64_t cache_cap;
    uint64_t standby_disk; // bytes for standby weights (KIN_PROTO_FOR_STANDBY); KIN_JOIN_STANDBY_DISK: a tenth of the free space
    bool keeps_kv;         // stores pages of the KV cache in cache_dir, if the head asks for it
    uint64_t kv_cap;       // for all pages; 0: a twentieth of the disk
    uint64_t memory;       // most bytes to use; 0: what the machine can spare
    int n_threads;         // 0: one per core
    bool no_gpu;           // the GPU is not used
    // Computes instead of this process: model_path is then used for headers only, and no model is offered to the head. NULL: this
    // process computes.
    const kin_remote_engine *engine;
    // Measured profile of the device; its memory is read again each time. NULL: the head gets no profile.
    const kin_device_facts *facts;
    const char *cpu, *gpu; // their names, for display; NULL: not known, none
    uint32_t hang_ms;      // a step without progress for at least this long hangs, and the device leaves; 0: two minutes
    atomic_bool *stop;
    bool *has_other_key; // set to true if it ends because the head at `head` has another key. NULL: not wanted
    // Called when a head has accepted this device for the first time: the key is right. In the endpoint's thread; may be NULL.
    void (*accepted)(void *user);
    // status: what the device is doing, a line at each change; progress: long work. Called from several threads; packing threads
    // may call progress concurrently.
    void (*status)(void *user, const char *line);
    void (*progress)(void *user, const char *what, uint64_t done, uint64_t total, uint64_t rate);
    void *user;
} kin_join_options;
