// The model files of a folder, described without reading their weights.
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
    // File name without ".gguf", and without the part number of a split model; "FOLDER/NAME" for files in subfolders whose name
    // is taken. UTF-8: invalid bytes and control characters are escaped (pure/text/escape.h).
    char name[256];
    char path[1024];
    bool is_deeper;     // in a subfolder of the given one
    bool is_usable;     // else `why` has the error, and only name, path and modified_s are known
    int64_t modified_s; // modification time of the file
    const char *family; // "qwen3"
    const char *type;   // the type with most of the weights' bytes: "Q4_K"
    uint64_t n_bytes;   // all weights
    uint64_t n_params;
    int n_ctx_train, n_vocab, n_embd, n_layer;
    bool is_bpe; // kind of vocabulary: of bytes or of characters; else SentencePiece
    kin_err why;
} kin_model_file;

enum { KIN_MODEL_FILES_MAX = 1024 };

// Finds the files NAME.gguf (or .GGUF) in a folder and its subfolders (one level), sorted by name; of a split model only the
// first part. The caller frees *files, which is NULL if there are none. Fails if the folder cannot be read, or has more than
// KIN_MODEL_FILES_MAX.
int kin_model_files_find(kin_model_file **files, int *n, const char *dir, kin_err *err);

// Returns a hash of the same files without opening them: it changes when a name, a size or a time of one changes.
uint64_t kin_model_files_mark(const char *dir);

// Describes one file. Errors are in file->why.
void kin_model_file_read(kin_model_file *file, const char *path);

// Waits for files that are being written or are missing: a model, and the other files that it is loaded with. A model is complete
// when it can be opened, with all its parts, and is unchanged a while later; another file when it is unchanged. Complete files
// that could not be loaded are tried again when one of them has changed, or after some time.
typedef struct kin_model_wait {
    // Borrowed, NULL: none. Everything else is zero at first.
    const char *path, *draft; // models
    const char *other;        // a file of another kind
    kin_time next, given_at;
    kin_file_identity seen[3];
    uint64_t version, given; // of all files: when they were opened last; when they were reported as complete
    kin_err missing;         // names the file that is missing, or a draft that is no model; empty: none
} kin_model_wait;

// Call it about once a second. True: all files are complete now.
bool kin_model_wait_is_over(kin_model_wait *wait, kin_time now);

// Returns the type with most of the weights' bytes. n_bytes: all weights.
const char *kin_model_main_type(const kin_gguf *gguf, uint64_t *n_bytes);
