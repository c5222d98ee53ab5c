// What a command opens to run a model: the options that all commands share; model, devices, then shard or fleet, opened in order.
//
// Owner: the command. Thread: the computing one. After a call that failed, kin_session_close.
#pragma once

#include "base/clock.h"
#include "engine/shard.h"
#include "model/model.h"
#include "node/console.h"
#include "node/fleet.h"
#include "observe/timeline.h"
#include "pipeline/draft_model.h"
#include "pipeline/loopback.h"
#include "pure/text/tokenizer.h"
#include "pure/text/vocab.h"

typedef enum kin_draft_mode {
    KIN_DRAFT_AUTO, // n-gram lookup, and a draft model if there is one, where they do not change the text
    KIN_DRAFT_OFF,
    KIN_DRAFT_ALSO_INEXACT, // ... and where ggml's kernels or a GPU compute
} kin_draft_mode;

// What --draft says: "auto", "off", "ngram", FILE, "auto,FILE" or "ngram,FILE". *file points into it; NULL: no draft model.
int kin_draft_words_read(const char *words, kin_draft_mode *mode, const char **file, kin_err *err);

typedef struct kin_session_options {
    const kin_console *console; // borrowed
    const char *model;          // NULL: the demo model
    int n_threads;              // 0: physical cores
    const char *gpu_layers;     // a number, "all", or "auto": as many as make a token fastest. NULL: auto for a large model
    bool does_without_gpu;      // where there is none, the CPU has those layers
    int n_ctx;                  // 0: as much as is needed, see kin_session_open
    int n_batch;
    const char *kv_type; // "f16" or "q8_0"
    bool no_repack;
    const char *kernels; // "kin" or "ggml"; NULL: kin
    bool no_flash;
    bool no_cache;
    uint64_t memory;          // 0: what the machine can spare
    const char *weights;      // "stream", "mmap", "mmap+willneed", "window"
    int window, retain;       // of "window": see kin_sliding_window; 0: 2 blocks, and none stays
    const char *cache_dir;    // NULL: the user's cache directory
    uint64_t cache_size;      // 0: a fifth of the disk
    bool keeps_kv;            // the command keeps texts: pages of its KV cache are kept on the disk, beside the other caches
    bool no_kv_disk;          // ... but the user does not want it
    uint64_t kv_disk_size;    // 0: a twentieth of the disk
    const char *profile;      // file of this machine's; NULL: measured once, and kept
    bool predicts;            // the command wants to know what its tokens are expected to take
    bool only_looks;          // nothing is going to run here, and no device gets work
    int n_cached;             // of a token in the middle of what the command does, in the KV cache; 0: half the context
    int n_prompt;             // tokens of its prompt; 0: 128
    const char *draft;        // as kin_draft_words_read has it; NULL: auto
    int draft_min, draft_max; // drafted tokens of each text in a step: see kin_scheduler_options
    const char *timeline;     // file for a picture of the first tokens; NULL: none. For commands that call kin_session_mark
    bool records;             // the timeline is wanted without a file, too
    kin_fleet_options fleet;
} kin_session_options;

kin_session_options kin_session_options_defaults(void);

typedef struct kin_session {
    const kin_console *console;
    kin_model model;
    const char *model_name;
    kin_vocab *vocab;
    kin_tokenizer *tokenizer; // NULL if the model's vocabulary is of a kind that we do not know: `vocab_err` says why
    kin_err vocab_err;
    kin_devices devices;
    char cache_dir[1000], kv_dir[1000];
    kin_kv_disk kv_disk;  // dir NULL: no pages are kept
    uint64_t kv_context;  // what they depend on beside the tokens
    char demo_path[1024]; // of the demo model as a file, if it is shared
    // On its own: a shard with all layers. With others: a fleet, whose head and shard may change with every request.
    kin_loopback_head alone;
    bool with_others;
    kin_fleet fleet;
    kin_device_facts facts; // of this machine, if it was measured
    kin_planner *planner;   // NULL: nothing is expected; with others the fleet's
    kin_shard *shard;
    int n_gpu_layers; // on its own
    kin_head *head;
    kin_timeline *timeline; // NULL: none
    bool timeline_has_ended;
    int n_ctx;
    kin_draft_mode draft;
    kin_draft_model *draft_model; // NULL: none
    int draft_min, draft_max;
    double load_ms;
} kin_session;

// Opens only the vocabulary, of a file that may hold nothing else: the model's weights and hyper-parameters are not looked at.
int kin_session_open_vocab(kin_session *s, const kin_session_options *o, kin_err *err);

// Opens the model and its vocabulary only.
int kin_session_open_model(kin_session *s, const kin_session_options *o, kin_err *err);

// Opens the rest, for a context of n_ctx tokens (o->n_ctx wins if it is given; at most what the model was trained for,
// unless given explicitly).
int kin_session_open(kin_session *s, const kin_session_options *o, int n_ctx, kin_err *err);

// Fails where the model's files have changed since they were opened: a sentence that says which, and what to do. The computing
// thread.
int kin_session_check_files(const kin_session *s, kin_err *err);

// A request: between the two, `head` and `shard` are there. With others, begin waits until the ring is up.
int kin_session_begin(kin_session *s, kin_err *err);
void kin_session_end(kin_session *s);

// Of an opened session: kin_cluster_set_meanwhile. Alone there is no wait.
void kin_session_set_meanwhile(kin_session *s, void (*meanwhile)(void *user), void *user);

// Any thread: within a request, the computing thread does not wait for the ring any longer, but looks what else there is to do
// (kin_head_receive). Alone it does not wait.
void kin_session_wake(const kin_session *s);

// Within a request: a better plan is there, for another device or because times have changed. It comes into force when the
// request ends and the next one begins.
bool kin_session_yields(const kin_session *s);

// Of a session that only looks: devices, links, model and work, after waiting for `fleet.n_devices` devices, or until nobody has
// joined for a while.
int kin_session_look(kin_session *s, const kin_session_options *o, kin_facts *facts, kin_err *err);

// How n_texts texts are best divided into steps at once, at most `most` of them, by the plan in force. False: not known.
bool kin_session_batching(const kin_session *s, int n_texts, int n_cached, int most, kin_batching *out);

// Tokens of a chunk of a prompt that are worth reading streamed weights for, by the plan in force (kin_prompt_chunk_worth); 0:
// not known.
int kin_session_chunk_worth(const kin_session *s);

// Within a request, between tokens: what was expected, with what the last tokens took taken into account. False: not known.
bool kin_session_expects(kin_session *s, kin_expectation *out);

// Within a request: the prompt was read, and then: a token was made. Further ones than the timeline has change nothing.
void kin_session_mark(kin_session *s);

// Before the request's end: what all did is in the timeline, and drawn if there is a file for it. Does nothing if there is no
// timeline, or if it was called before.
int kin_session_end_timeline(kin_session *s, const kin_session_options *o, kin_err *err);

// What the opened model asks for: with these options, and the context and batch of `work`.
int kin_session_model_facts(const kin_session *s, const kin_session_options *o, const kin_work_facts *work,
                            kin_model_facts *facts, kin_err *err);

// XDG_CACHE_HOME/kin, ~/.cache/kin or ~/Library/Caches/kin in buf; NULL without a home.
const char *kin_session_default_cache(char *buf, size_t n);

void kin_session_close(kin_session *s);

// Tokens of a text, as a new array that the caller frees; *n of them. parse_special: "<|im_end|>" is that token.
int kin_session_encode(const kin_session *s, const char *text, size_t len, bool parse_special, int32_t **ids, int *n,
                       kin_err *err);
