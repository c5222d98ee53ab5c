#include "pure/text/draft.h"

const char *kin_draft_source_name(kin_draft_source_kind kind) {
    static const char *const names[KIN_DRAFT_N_SOURCES] = {"ngram", "model", "oracle"};
    return names[kind];
}
