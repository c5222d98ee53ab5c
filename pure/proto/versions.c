#include "pure/proto/versions.h"

#include <stdio.h>

#include "pure/proto/label.h"
#include "pure/proto/refusal.h"

enum { NAME_BYTES = 63, SPEAKER_BYTES = 200 }; // of a name, and of a description in the sentence

kin_proto_versions kin_proto_versions_or_own(kin_proto_versions versions) {
    return versions.max > 0 ? versions : KIN_PROTO_VERSIONS;
}

static void describe_speaker(const kin_proto_speaker *s, char name[NAME_BYTES + 1], char text[SPEAKER_BYTES]) {
    char program[NAME_BYTES + 1], range[32];
    kin_label_set(name, NAME_BYTES, s->name);
    kin_label_set(program, NAME_BYTES, s->program);
    if (s->versions.min == s->versions.max)
        snprintf(range, sizeof range, "version %u", s->versions.max);
    else
        snprintf(range, sizeof range, "versions %u to %u", s->versions.min, s->versions.max);
    snprintf(text, SPEAKER_BYTES, "'%s' (kin %s) speaks %s", name, program, range);
}

uint16_t kin_proto_versions_agree(const kin_proto_speaker *a, const kin_proto_speaker *b, kin_err *err) {
    uint16_t min = a->versions.min > b->versions.min ? a->versions.min : b->versions.min;
    uint16_t max = a->versions.max < b->versions.max ? a->versions.max : b->versions.max;
    if (min <= max) return max;
    char names[2][NAME_BYTES + 1], texts[2][SPEAKER_BYTES];
    describe_speaker(a, names[0], texts[0]);
    describe_speaker(b, names[1], texts[1]);
    kin_err_set(err, "%s: incompatible protocol: %s, %s; update kin on '%s'", kin_refusal_word(KIN_REFUSAL_VERSION), texts[0],
                texts[1], names[a->versions.max > b->versions.max]);
    return 0;
}
