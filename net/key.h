// The cluster's key: what all devices of a household share, and nobody else has.
//
// A code of 16 characters (80 random bits), shown once as "7K2M-XQ4T-9B0H-WZ3D" and typed on each device, becomes the key by
// scrypt. The alphabet is 0-9 A-Z without I, L, O and U; a typed O is a 0, a typed I or L is a 1. The key is kept in a file that
// only its owner may read; where the code was made, in another one beside it, so that it can be shown again. Nothing here prints
// or logs a key or a code, and no error has one in it.
//
// Owner: the caller, who wipes what it holds (kin_key_wipe). Thread: any.
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

// A new code, in the form in which it is shown.
int kin_code_new(char code[KIN_CODE_TEXT], kin_err *err);

// What a person typed (any case, dashes and spaces anywhere), in the form in which it is shown. The sentence says what is wrong:
// how many characters there were, or which character no code has.
int kin_code_parse(char code[KIN_CODE_TEXT], const char *typed, kin_err *err);

// scrypt(code without dashes, "kin cluster 1", N = 2^15, r = 8, p = 1). Takes about 0.1 s and 32 MiB, on purpose.
int kin_key_from_code(kin_key *key, const char code[KIN_CODE_TEXT], kin_err *err);

void kin_key_wipe(kin_key *key);

// Another secret, which tells nothing of the key: SHA-256 of the purpose and the key.
int kin_key_derive(uint8_t secret[KIN_KEY_BYTES], const kin_key *key, const char *purpose, kin_err *err);

#define KIN_KEY_FOR_PAGES "kin kv pages 1" // what pages of the KV cache are encrypted with, at the head and at devices

bool kin_key_is_same(const kin_key *a, const kin_key *b); // in constant time

// The same as kin_key_wipe for a code, or a line that had one // [n]
void kin_code_wipe(char *code, size_t n);

// The file of the code beside the key's: KEY_PATH.code. It is kept as the key is (kin_key_load, kin_key_save).
int kin_code_load(char code[KIN_CODE_TEXT], const char *key_path, kin_err *err);
int kin_code_save(const char code[KIN_CODE_TEXT], const char *key_path, kin_err *err);
bool kin_code_is_there(const char *key_path);

// XDG_CONFIG_HOME/kin/cluster.key, ~/.config/kin/cluster.key or ~/Library/Application Support/kin/cluster.key in buf; NULL
// without a home or where it does not fit in n.
const char *kin_key_default_path(char *buf, size_t n);

bool kin_key_is_there(const char *path);

// The file has 64 hexadecimal digits. One that others may read or write is refused, with the command that mends it.
int kin_key_load(kin_key *key, const char *path, kin_err *err);
// Makes the folder (0700) and the file (0600); replaces one that is there, as a whole or not at all.
int kin_key_save(const kin_key *key, const char *path, kin_err *err);
