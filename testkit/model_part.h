// Which of a generated model's layers and draft blocks a file has.
#pragma once

typedef enum kin_model_part {
    KIN_MODEL_WHOLE,
    KIN_MODEL_WITHOUT_DRAFTS, // the model without its draft blocks
    KIN_MODEL_DRAFTS,         // these alone, for a file of their own
} kin_model_part;
