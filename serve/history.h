// Makes the messages of a chat fit its template: what templates take differs, and clients send what another model's server took.
//
// Plain functions on messages as kin_request has them. If memory runs out, a message stays as it was.
#pragma once

#include <jansson.h>

#include "pure/chat/tool_format.h"

// Writes the ids of calls, in calls and results, as the template expects them: with id_names the model's own, functions.NAME:0,
// counted over the whole chat, because the model reads the tool's name from them; otherwise kin_tool_format_put_id.
void kin_history_fit_ids(json_t *messages, const kin_tool_format *format);

// Prepends the system message to the first user message, for templates without one.
void kin_history_merge_system(json_t *messages);

// Leaves only one system message, the first, for templates that drop or refuse others: those that follow it directly are
// appended to it. Later ones become text of the user's message before or after them, or a message of the user; after results
// of calls this comes after the last of these. Takes time in proportion to the messages.
void kin_history_merge_later_system(json_t *messages);

// Returns a copy of the value in which all objects have their keys in the order of Jinja's dictsort, by which gemma 4's template
// writes the arguments of calls; NULL if memory ran out. The caller must json_decref it.
json_t *kin_history_sort_keys(const json_t *value);
