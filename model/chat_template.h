// The chat template of a GGUF file, as text for pure/jinja/jinja.h.
#pragma once

#include "base/err.h"
#include "base/str.h"
#include "model/gguf.h"

// Finds tokenizer.chat_template, or tokenizer.chat_template.NAME if a name is given ("tool_use", "rag"): some models have one
// template per use. The text points into the file. Returns 0 if found; KIN_ABSENT if the file has no template of that name;
// KIN_FAIL if it is not a string, or if the name is too long.
int kin_chat_template_source(const kin_gguf *gguf, const char *name, kin_str *source, kin_err *err);
