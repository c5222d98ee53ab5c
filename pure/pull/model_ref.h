// Names of models that can be fetched: what a person writes after `kin pull`, or in place of a file.
//
//   hf:OWNER/REPO            a repository of Hugging Face; also hf.co/OWNER/REPO and its address in a browser
//   hf:OWNER/REPO:QUANT      the file with this quantization
//   hf:OWNER/REPO/FILE.gguf  this file
//   ollama:NAME[:TAG]        a model of Ollama's registry; USER/NAME for those of its users
//   https://HOST/FILE.gguf   a file of any server
//
// Pure functions, any thread. What is parsed contains no "..", no control characters and no empty parts, so that it may become
// part of a path, and no password, because names are shown and stored.
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"

typedef enum kin_registry { KIN_REGISTRY_HF, KIN_REGISTRY_OLLAMA, KIN_REGISTRY_WEB } kin_registry;

enum { KIN_REF_REPO = 200, KIN_REF_PICK = 400, KIN_REF_TEXT = 1100 };

typedef struct kin_model_ref {
    kin_registry registry;
    char repo[KIN_REF_REPO]; // "OWNER/REPO"; of Ollama's registry "library/NAME" or "USER/NAME"; of a web address the host
    char pick[KIN_REF_PICK]; // the quantization or the file; Ollama's tag; empty: not given (Ollama: "latest")
    bool is_file;            // pick is a file's path in the repository
    char url[KIN_REF_TEXT];  // KIN_REGISTRY_WEB: the address
} kin_model_ref;

// Returns 0; KIN_ABSENT if the text has none of these forms; KIN_FAIL if it has, but is malformed.
int kin_model_ref_parse(kin_model_ref *ref, const char *text, kin_err *err);

// Writes the name in its first form, such as "hf:OWNER/REPO:Q4_K_M", and returns `to`.
const char *kin_model_ref_format(const kin_model_ref *ref, char *to, size_t size);

// The same without the quantization, file or tag.
const char *kin_model_ref_base(const kin_model_ref *ref, char *to, size_t size);

// True if a path may become part of a path here and be shown: no part is empty or begins with a dot, and no character is a
// backslash or one that kin_escape would escape.
bool kin_path_is_safe(const char *path);

// The last part of a path.
const char *kin_path_file(const char *path);

// Writes a path for a URL: everything but letters, digits, "-._~/" is percent-encoded. Returns false if it does not fit.
bool kin_url_encode(char *to, size_t size, const char *path);
