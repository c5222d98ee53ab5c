// Chat templates that llama.cpp knows by name, as Jinja: for `--chat-template NAME`.
//
// They print what llama.cpp's print for chats of a system's, a user's and an assistant's messages.
#pragma once

// NULL: there is none of that name.
const char *kin_named_template(const char *name);

// The i-th name, NULL beyond the last.
const char *kin_named_template_at(int i);
