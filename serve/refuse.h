// What everything that answers an exchange has in common: how it learns that the client is gone, and how it refuses.
//
// Thread: the loop's.
#pragma once

#include "serve/http_exchange.h"
#include "serve/writer.h"

// The data of an exchange (kin_http_set_data): who answers it.
typedef struct kin_exchange_data {
    void (*gone)(void *self); // the client went away: the exchange is not to be used any more
    void *self;
} kin_exchange_data;

// Answers with error->status. format: in whose shape; NULL: OpenAI's.
void kin_refuse(kin_http_exchange *x, const kin_api_format *format, const kin_api_error *error);
