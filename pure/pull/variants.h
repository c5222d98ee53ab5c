// The models of a repository: its GGUF files, grouped into variants (a file, or all parts of a split model), and the choice of
// the variant that fits a machine.
//
// Owner: the caller; plain data. Pure functions, any thread.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "pure/pull/model_ref.h"

enum { KIN_QUANT_TEXT = 32, KIN_SHA256_HEX = 65, KIN_REPO_FILES_MAX = 4096 };

typedef struct kin_repo_file {
    char path[KIN_REF_PICK];
    uint64_t size;
    char sha256[KIN_SHA256_HEX]; // 64 digits; empty: not known
} kin_repo_file;

// The GGUF files of a repository, without projectors and importance matrices, which are no models.
typedef struct kin_repo {
    kin_repo_file *files; // [n] sorted by path
    int n, cap;
} kin_repo;

void kin_repo_fini(kin_repo *repo);
int kin_repo_add(kin_repo *repo, const kin_repo_file *file, kin_err *err); // ignores what is no model

// Adds the files of a page of Hugging Face's tree API, a JSON array. The file that Git LFS stores has the hash of its content.
int kin_repo_add_tree(kin_repo *repo, const char *json, size_t len, kin_err *err);

// Adds the model of a manifest of Ollama's registry: the layer application/vnd.ollama.image.model. path: the file's name.
int kin_repo_add_manifest(kin_repo *repo, const char *json, size_t len, const char *path, kin_err *err);

// A model: files[first .. first + n_parts).
typedef struct kin_variant {
    int first, n_parts;
    uint64_t bytes;
    char quant[KIN_QUANT_TEXT]; // "Q4_K_M", in capitals; empty if the name does not tell
} kin_variant;

// Writes the quantization that a file's path names, in capitals. Empty if there is none.
void kin_quant_word_of(const char *path, char quant[KIN_QUANT_TEXT]);

// Reads "-00002-of-00003.gguf" at a path's end. Returns the part; 0: the file is whole.
int kin_part_of(const char *path, int *n_parts);

// Groups the files; the caller frees *variants [n], sorted by size. Split models of which a part is missing are left out; if
// nothing else is there, it fails with a sentence.
int kin_repo_variants(kin_repo *repo, kin_variant **variants, int *n, kin_err *err);

// Finds the variant that a name asks for: a file (or a part of a split model), or a quantization. Fails with a sentence that
// lists what there is.
int kin_variant_find(const kin_repo *repo, const kin_variant *variants, int n, const kin_model_ref *ref, int *index,
                     kin_err *err);

// Memory that a model of these bytes needs to be computed without reading weights from disk. beside: for the context and the
// buffers; 0: not known, then a sixteenth of the weights and 512 MiB.
uint64_t kin_variant_needs(uint64_t bytes, uint64_t beside);

// Returns the index of the usual choice, if memory does not matter: Q4_K_M, or what is nearest to it.
int kin_variant_usual(const kin_variant *variants, int n);

// Chooses the variant for a machine (or cluster) that has `room` bytes of memory for a model: the usual quantization if it fits;
// otherwise the largest that fits and has at least 3 bits; otherwise the usual one, of which a part is read from disk for every
// token. `why` gets a sentence that says so, with an alternative. Returns its index.
int kin_variant_choose(const kin_variant *variants, int n, uint64_t room, uint64_t beside, char *why, size_t size);
