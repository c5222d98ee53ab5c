// The model files of a folder: what each is, without its weights being read.
//
// Owner: the caller. Plain functions.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/clock.h"
#include "model/model.h"
#include "sys/file.h"

typedef struct kin_model_file {
    // Its file's without ".gguf", and without the number of a split one's part; "FOLDER/NAME" where two are alike, of those in
    // folders. UTF-8: bytes that are none, and control characters, are escaped (pure/text/escape.h).
    char name[256];
    char path[1024];
    bool is_deeper;     // in a folder of the one that was looked at
    bool is_usable;     // else `why` says what is wrong with it, and only name, path and modified_s are known
    int64_t modified_s; // when the file was
    const char *family; // "qwen3"
    const char *type;   // that most of its weights' bytes have: "Q4_K"
    uint64_t n_bytes;   // of weights
    uint64_t n_params;
    int n_ctx_train, n_vocab, n_embd, n_layer;
    bool is_bpe; // its vocabulary; else SentencePiece
    kin_err why;
} kin_model_file;

enum { KIN_MODEL_FILES_MAX = 1024 };

// The files NAME.gguf (or .GGUF) in a folder and in the folders in it (not further down), by name; of a split model the first
// part. *files is the caller's to free, and NULL where there is none. Fails when the folder cannot be read, or has more than
// KIN_MODEL_FILES_MAX.
int kin_model_files_find(kin_model_file **files, int *n, const char *dir, kin_err *err);

// Of the same files, without opening them: another number when a name, a size or a time of one has changed.
uint64_t kin_model_files_mark(const char *dir);

// One file. What is wrong with it is in file->why.
void kin_model_file_read(kin_model_file *file, const char *path);

// Waits for a file that somebody is writing: it is whole when it can be opened as a model, with all its parts, and looks the same
// a while later. One that was whole and could not be loaded is tried again when it has changed, or after some time.
typedef struct kin_model_wait {
    const char *path; // borrowed; all else is zero at first
    kin_time next, given_at;
    kin_file_identity seen;
    uint64_t version, given; // of its files: when it was opened last, when it was said to be whole
} kin_model_wait;

// Some times a second. True: it is whole now.
bool kin_model_wait_is_over(kin_model_wait *wait, kin_time now);

// The type that most of the weights' bytes have. n_bytes: of all weights.
const char *kin_model_main_type(const kin_gguf *gguf, uint64_t *n_bytes);
