// A session: what a command opens to run a model: the options that all commands share; model, devices, then shard or fleet, in
// order.
//
// Owner: the command. Thread: the computing one. After a failed call, call kin_session_close.
#pragma once

#include "base/clock.h"
#include "cluster/console.h"
#include "cluster/draft_words.h"
#include "cluster/fleet.h"
#include "engine/shard.h"
#include "model/model.h"
#include "observe/timeline.h"
#include "pipeline/draft_model.h"
#include "pipeline/loopback.h"
#include "pipeline/mtp_drafter.h"
#include "pure/tokenizer/tokenizer.h"
#include "pure/tokenizer/vocab.h"

typedef struct kin_session_options {
    const kin_console *console; // borrowed
    const char *model;          // NULL: the demo model
    int n_threads;              // 0: physical cores
    const char *gpu_layers;     // a number, "all", or "auto": whatever makes a token fastest. NULL: auto for a large model
    int n_cpu_moe;         // the first N of the GPU's layers have their experts on the CPU; without gpu_layers: of all layers
    bool cpu_moe;          // all of the GPU's layers have
    bool does_without_gpu; // without a GPU, the CPU computes those layers
    int n_ctx;             // 0: the n_ctx of kin_session_open
    int n_batch;
    int n_sequences;     // that run at once: windowed layers have room for their windows
    const char *kv_type; // "f16" or "q8_0"
    bool no_repack;
    const char *kernels; // "kin" or "ggml"; NULL: kin
    bool no_flash;
    bool no_cache;
    uint64_t memory;          // 0: what the machine can spare
    const char *weights;      // "stream", "mmap", "mmap+willneed", "window"
    int window, retain;       // for "window": see kin_sliding_window; 0: 2 blocks, and none retained
    const char *cache_dir;    // NULL: the user's cache directory
    uint64_t cache_size;      // 0: a fifth of the disk
    bool keeps_kv;            // the command reuses sequences: pages of the KV cache are stored on disk, beside the other caches
    bool no_kv_disk;          // the user disabled that
    uint64_t kv_disk_size;    // 0: a twentieth of the disk
    const char *profile;      // this machine's profile, a file; NULL: measured once, and stored
    bool predicts;            // the command wants predictions
    const char *hf;           // OWNER/REPO[:QUANT] of Hugging Face, another way to name the model; NULL: not given
    const char *mirror;       // base address in place of a registry's, if the model is fetched; NULL: none
    bool offline;             // nothing is fetched
    bool dry_run;             // no model runs here, and no device gets work
    int n_cached;             // KV cache length for predictions, in the middle of the command's work; 0: half the context
    int n_prompt;             // prompt length for predictions; 0: 128
    bool drafts;              // the command generates texts with drafts
    const char *draft;        // see kin_draft_words_read; NULL: auto
    int draft_min, draft_max; // drafted tokens of each sequence in a step: see kin_scheduler_options
    const char *timeline;     // file for a picture of the first tokens; NULL: none. For commands that call kin_session_mark
    bool records;             // makes a timeline even without a file
    kin_fleet_options fleet;
} kin_session_options;

kin_session_options kin_session_options_defaults(void);

typedef struct kin_session {
    const kin_console *console;
    kin_model model;
    const char *model_name;
    kin_vocab *vocab;
    kin_tokenizer *tokenizer; // NULL if the kind of vocabulary is not supported: `vocab_err` has the reason
    kin_err vocab_err;
    kin_devices devices;
    char cache_dir[1000], kv_dir[1000];
    kin_kv_disk kv_disk;  // dir NULL: no pages are stored
    uint64_t kv_context;  // hash of what pages depend on beside tokens
    char demo_path[1024]; // file of the demo model, if it is shared
    // Standalone: a shard with all layers. Clustered: a fleet, whose head and shard may change with every request.
    kin_loopback_head alone;
    bool clustered;
    kin_fleet fleet;
    kin_device_facts facts; // this machine's profile, if measured
    kin_planner *planner;   // NULL: no predictions; clustered: the fleet's
    kin_shard *shard;
    int n_gpu_layers, n_cpu_moe; // standalone only
    kin_head *head;
    kin_timeline *timeline; // NULL: none
    bool timeline_has_ended;
    int n_ctx;
    kin_kv_window window; // of windowed layers
    int checkpoint_gap;   // kin_kv_checkpoint_gap
    kin_draft_mode draft;
    kin_draft_model *draft_model; // NULL: none
    kin_mtp_drafter *mtp;         // NULL: none
    int draft_min, draft_max;
    double load_ms;
} kin_session;

// Opens only the vocabulary; the file may hold nothing else. Weights and hyper-parameters are not checked.
int kin_session_open_vocab(kin_session *s, const kin_session_options *o, kin_err *err);

// Opens the model and its vocabulary only.
int kin_session_open_model(kin_session *s, const kin_session_options *o, kin_err *err);

// Opens the rest, for a context of n_ctx tokens (o->n_ctx takes precedence; without it, at most what the model was trained for).
int kin_session_open(kin_session *s, const kin_session_options *o, int n_ctx, kin_err *err);

// Fails if the model's files have changed since they were opened; the message names the file and the remedy. Call from the
// computing thread.
int kin_session_check_files(const kin_session *s, kin_err *err);

// Begins and ends a request: in between, `head` and `shard` are valid. Clustered, begin waits until the ring is up.
int kin_session_begin(kin_session *s, kin_err *err);
void kin_session_end(kin_session *s);

// Calls kin_cluster_set_meanwhile for an open session. Standalone there is no wait.
void kin_session_set_meanwhile(kin_session *s, void (*meanwhile)(void *user), void *user);

// Any thread: during a request, wakes the computing thread from waiting for the ring, so that it checks for other work
// (kin_head_receive). No effect standalone.
void kin_session_wake(const kin_session *s);

// During a request: true if there is a better plan, for another device or because times have changed. It becomes active between
// this request and the next one.
bool kin_session_yields(const kin_session *s);

// For a session with dry_run: returns devices, links, model and work, after `fleet.n_devices` devices have joined, or none has
// joined for a while.
int kin_session_find_devices(kin_session *s, const kin_session_options *o, kin_facts *facts, kin_err *err);

// Finds the best division of n_sequences sequences into steps at once, at most `most`, by the active plan. False: not known.
bool kin_session_batching(const kin_session *s, int n_sequences, int n_cached, int most, kin_batching *out);

// Returns the tokens of a prompt's chunk that are worth reading streamed weights for, by the active plan
// (kin_prompt_chunk_worth); 0: not known.
int kin_session_chunk_worth(const kin_session *s);

// During a request, between tokens: returns the prediction, corrected by the last tokens. False: not known.
bool kin_session_expects(kin_session *s, kin_expectation *out);

// During a request: marks the end of the prompt, then the end of each token. Marks beyond the timeline's tokens have no effect.
void kin_session_mark(kin_session *s);

// Before the request's end: completes the timeline with the events of all members, and draws it if there is a file for it. Does
// nothing without a timeline, or at a second call.
int kin_session_end_timeline(kin_session *s, const kin_session_options *o, kin_err *err);

// Returns the facts of the open model, with these options, and the context and batch of `work`.
int kin_session_model_facts(const kin_session *s, const kin_session_options *o, const kin_work_facts *work,
                            kin_model_facts *facts, kin_err *err);

// Returns what the draft blocks that o->draft names take of the head's memory, with the context and batch of `work`. s: the open
// model. Fails as opening them does.
int kin_session_draft_blocks_bytes(const kin_session *s, const kin_session_options *o, const kin_work_facts *work,
                                   uint64_t *bytes, kin_err *err);

// Writes XDG_CACHE_HOME/kin, ~/.cache/kin or ~/Library/Caches/kin to buf; NULL without a home directory.
const char *kin_session_default_cache(char *buf, size_t n);

void kin_session_close(kin_session *s);

// Tokenizes a text into a new array of *n tokens that the caller frees. parse_special: "<|im_end|>" becomes that token.
int kin_session_encode(const kin_session *s, const char *text, size_t len, bool parse_special, int32_t **ids, int *n,
                       kin_err *err);
