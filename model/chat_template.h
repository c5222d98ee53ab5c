// The chat template of a GGUF file, as text for pure/text/jinja.h.
#pragma once

#include "base/err.h"
#include "base/str.h"
#include "model/gguf.h"

// tokenizer.chat_template, or tokenizer.chat_template.NAME if a name is given ("tool_use", "rag"): some models have one for each
// use. The text points into the file.
// 0 if found; 1 if the file has none of that name; KIN_FAIL if it is there but no string, or if the name is too long.
int kin_chat_template_source(const kin_gguf *gguf, const char *name, kin_str *source, kin_err *err);
