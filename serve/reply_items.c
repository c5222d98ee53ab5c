#include "serve/reply_items.h"

#include <stdlib.h>

static void end_item(kin_reply_items *items, bool is_whole, const kin_reply_items_sink *sink) {
    if (!items->is_open) return;
    kin_reply_item *item = &items->at[items->n - 1];
    items->is_open = false;
    item->is_whole = is_whole;
    if (sink) sink->close(sink->user, item, items->n - 1);
}

static kin_reply_item *begin_item(kin_reply_items *items, const kin_reply_event *event, const kin_reply_items_sink *sink) {
    end_item(items, true, sink);
    if (items->n == items->cap) {
        int cap = 2 * items->cap + 4;
        kin_reply_item *grown = realloc(items->at, (size_t)cap * sizeof *grown);
        if (!grown) {
            items->failed = true;
            return NULL;
        }
        items->at = grown;
        items->cap = cap;
    }
    kin_reply_item *item = &items->at[items->n++];
    *item = (kin_reply_item){.kind = event->kind};
    if (event->kind == KIN_REPLY_TOOL_BEGIN) {
        kin_text_put(&item->name, event->name.at, event->name.len);
        kin_text_put(&item->id, event->id.at, event->id.len);
    }
    items->is_open = true;
    if (sink) sink->open(sink->user, item, items->n - 1);
    return item;
}

static void add_event(kin_reply_items *items, const kin_reply_event *event, const kin_reply_items_sink *sink) {
    kin_reply_item *item = items->is_open ? &items->at[items->n - 1] : NULL;
    if (items->failed) return;
    switch (event->kind) {
    case KIN_REPLY_TOOL_BEGIN: begin_item(items, event, sink); return;
    case KIN_REPLY_TOOL_END: end_item(items, true, sink); return;
    case KIN_REPLY_TOOL_ARGUMENTS: break;
    default:
        if (!item || item->kind != event->kind) item = begin_item(items, event, sink);
    }
    if (!item) return;
    kin_text_put(&item->text, event->text.at, event->text.len);
    if (sink) sink->grow(sink->user, item, items->n - 1, event->text);
}

void kin_reply_items_add(kin_reply_items *items, const kin_reply_event *events, int n, const kin_reply_items_sink *sink) {
    for (int i = 0; i < n; i++) add_event(items, &events[i], sink);
}

void kin_reply_items_end(kin_reply_items *items, const kin_reply_items_sink *sink) {
    end_item(items, items->is_open && items->at[items->n - 1].kind != KIN_REPLY_TOOL_BEGIN, sink);
}

void kin_reply_items_fini(kin_reply_items *items) {
    for (int i = 0; i < items->n; i++) {
        kin_text_fini(&items->at[i].text);
        kin_text_fini(&items->at[i].name);
        kin_text_fini(&items->at[i].id);
    }
    free(items->at);
    *items = (kin_reply_items){0};
}
