// Helpers for code that answers exchanges: learning that the client is gone, beginning a stream, refusing.
//
// Thread: the loop's.
#pragma once

#include "serve/http/http_exchange.h"
#include "serve/writer.h"

// The data of an exchange (kin_http_set_data): the object that answers it.
typedef struct kin_exchange_data {
    void (*gone)(void *self); // the client disconnected: the exchange must not be used any more
    void *self;
} kin_exchange_data;

// Sends the header of a stream of this format.
void kin_begin_stream(kin_http_exchange *x, const kin_api_format *format);

// Answers with error->status; if a stream has begun, ends it with the error. format: the form of the error; NULL: OpenAI's, only
// if no stream has begun.
void kin_refuse(kin_http_exchange *x, const kin_api_format *format, const kin_api_error *error);
