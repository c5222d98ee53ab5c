// exaone: EXAONE 3.0, 3.5, Deep. Llama with rotated pairs as in NeoX.
#include "model/families/llama.h"

const kin_arch kin_arch_exaone = {
    .name = "exaone",
    .title = "EXAONE 3.0, 3.5, Deep",
    .rope_neox = true,
    .is_like_llama = true,
    .required = kin_llama_required,
    .optional = kin_llama_optional,
};
