// The cluster's key: the secret that all devices of a local cluster share.
//
// A code of 16 characters (80 random bits), shown once as "7K2M-XQ4T-9B0H-WZ3D" and typed on each device, is turned into the key
// by scrypt. The alphabet is 0-9 A-Z without I, L, O and U; a typed O is read as 0, a typed I or L as 1. The key is kept in a
// file that only its owner may read; on the machine that generated the code, the code is kept in another file beside it, so that
// it can be shown again. Nothing here prints or logs a key or a code, and no error message contains one.
//
// Owner: the caller, which wipes its copies (kin_key_wipe). Thread: any.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

#define KIN_KEY_BYTES 32
#define KIN_CODE_CHARS 16
#define KIN_CODE_TEXT 20 // bytes of "XXXX-XXXX-XXXX-XXXX" with its NUL

typedef struct kin_key {
    uint8_t bytes[KIN_KEY_BYTES];
} kin_key;

// Generates a new code, in display form.
int kin_code_new(char code[KIN_CODE_TEXT], kin_err *err);

// Parses a typed code (any case, dashes and spaces anywhere) into display form. The error says what is wrong: the number of
// characters, or an invalid character.
int kin_code_parse(char code[KIN_CODE_TEXT], const char *typed, kin_err *err);

// Computes scrypt(code without dashes, "kin cluster 1", N = 2^15, r = 8, p = 1). Deliberately takes about 0.1 s and 32 MiB.
int kin_key_from_code(kin_key *key, const char code[KIN_CODE_TEXT], kin_err *err);

void kin_key_wipe(kin_key *key);

// Derives another secret that reveals nothing about the key: SHA-256 of the purpose and the key.
int kin_key_derive(uint8_t secret[KIN_KEY_BYTES], const kin_key *key, const char *purpose, kin_err *err);

#define KIN_KEY_FOR_PAGES "kin kv pages 1" // encryption of KV cache pages, on the head and on devices

bool kin_key_is_same(const kin_key *a, const kin_key *b); // in constant time

// Wipes a code, or a line that contained one // [n]
void kin_code_wipe(char *code, size_t n);

// The code's file beside the key's: KEY_PATH.code. It is protected like the key (kin_key_load, kin_key_save).
int kin_code_load(char code[KIN_CODE_TEXT], const char *key_path, kin_err *err);
int kin_code_save(const char code[KIN_CODE_TEXT], const char *key_path, kin_err *err);
bool kin_code_is_there(const char *key_path);

// Reads a code from any file that only its owner may read; the form is that of a typed code.
int kin_code_read(char code[KIN_CODE_TEXT], const char *path, kin_err *err);

// Writes XDG_CONFIG_HOME/kin/cluster.key, ~/.config/kin/cluster.key or ~/Library/Application Support/kin/cluster.key to buf.
// Returns NULL without a home directory or if it does not fit in n bytes.
const char *kin_key_default_path(char *buf, size_t n);

bool kin_key_is_there(const char *path);

// Reads a file of 64 hexadecimal digits. A file that others may read or write is refused; the error names the command that fixes
// it.
int kin_key_load(kin_key *key, const char *path, kin_err *err);
// Creates the folder (0700) and the file (0600); replaces an existing file atomically.
int kin_key_save(const kin_key *key, const char *path, kin_err *err);
