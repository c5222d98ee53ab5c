// The folder of fetched models: $KIN_MODELS, or `models` in the user's cache directory.
//
//   hf--OWNER--REPO/FILE.gguf         the models, by where they come from; kin serve --models-dir serves this folder
//   hf--OWNER--REPO/FILE.gguf.source  what each one is, as lines of text (kin_model_record)
//   hf--OWNER--REPO/FILE.gguf.part*   downloads that have not ended (pull/part_file.h)
//
// Stateless functions; any thread and process.
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "pure/pull/model_ref.h"
#include "pure/pull/variants.h"

enum { KIN_STORE_PATH = 1024 };

typedef struct kin_model_record {
    char source[KIN_REF_TEXT];  // the whole name: "hf:OWNER/REPO:Q4_K_M"
    char base[KIN_REF_TEXT];    // the same without quantization, file or tag
    char file[KIN_REF_PICK];    // path in the repository
    char quant[KIN_QUANT_TEXT]; // empty: not known
    char sha256[KIN_SHA256_HEX], etag[200];
    uint64_t size;     // of this file
    uint64_t beside;   // memory that the model needs beside its weights; 0: not known
    int part, n_parts; // 1 of 1 if the model is one file
    int64_t fetched_s; // seconds since 1970
    // Not stored in the record:
    char path[KIN_STORE_PATH]; // of the model's file
    uint64_t bytes;            // of all parts
    int64_t used_s;            // when it was last used by its name
} kin_model_record;

// Writes where a file of a model belongs; fails if the path is too long.
int kin_model_store_place(const char *dir, const kin_model_ref *ref, const char *file, char path[KIN_STORE_PATH], kin_err *err);

// Writes the record of record->path, beside it.
int kin_model_store_write(const kin_model_record *record, kin_err *err);

// Reads the record of a file. False if there is none.
bool kin_model_store_read(const char *path, kin_model_record *record);

// Lists the complete models, first parts only, sorted by name; the caller frees *records [n]. A folder that does not exist is
// empty.
int kin_model_store_list(const char *dir, kin_model_record **records, int *n, kin_err *err);

// Finds the model that a name means: exactly, or, without a quantization, the one of that repository that was fetched last.
// Returns 0 or KIN_ABSENT.
int kin_model_store_find(const char *dir, const kin_model_ref *ref, kin_model_record *record);

// Finds it by its file's name, with or without ".gguf", or by its source. Returns 0 or KIN_ABSENT.
int kin_model_store_find_file(const char *dir, const char *name, kin_model_record *record);

void kin_model_store_mark_used(const kin_model_record *record);

// Removes the files of a model and their records, and the folder if nothing is left in it.
int kin_model_store_remove(const kin_model_record *record, kin_err *err);
