// A token's type in the file, and its role in filling a gap. Plain values.
#pragma once

#define KIN_TOKEN_NONE (-1) // no such token

typedef enum kin_token_type { // GGUF's values
    KIN_TOKEN_UNDEFINED = 0,
    KIN_TOKEN_NORMAL = 1,
    KIN_TOKEN_UNKNOWN = 2,
    KIN_TOKEN_CONTROL = 3,
    KIN_TOKEN_USER_DEFINED = 4,
    KIN_TOKEN_UNUSED = 5,
    KIN_TOKEN_BYTE = 6,
} kin_token_type;

// Fill-in-the-middle tokens.
typedef enum kin_fim_role {
    KIN_FIM_PREFIX,
    KIN_FIM_SUFFIX,
    KIN_FIM_MIDDLE,
    KIN_FIM_REPO,
    KIN_FIM_SEPARATOR,
    KIN_FIM_PAD,
    KIN_FIM_COUNT
} kin_fim_role;
