// Chat templates that llama.cpp knows by name, as Jinja: for `--chat-template NAME`.
//
// Their output equals that of llama.cpp's templates for chats of system, user and assistant messages.
#pragma once

// Returns the template, or NULL if the name is unknown.
const char *kin_named_template(const char *name);

// Returns the i-th name, or NULL beyond the last.
const char *kin_named_template_at(int i);
