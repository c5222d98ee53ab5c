// What everything that answers an exchange has in common: how it learns that the client is gone, begins a stream, and refuses.
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

// The header of a stream of this format.
void kin_begin_stream(kin_http_exchange *x, const kin_api_format *format);

// Answers with error->status; a stream that has begun ends with the error. format: in whose shape; NULL: OpenAI's, of no stream.
void kin_refuse(kin_http_exchange *x, const kin_api_format *format, const kin_api_error *error);
