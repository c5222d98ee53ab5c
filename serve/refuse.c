#include "serve/refuse.h"

#include "serve/openai_json.h"

void kin_refuse(kin_http_exchange *x, const kin_api_format *format, const kin_api_error *error) {
    kin_text_buffer body = {0};
    if (format)
        format->error(error, &body);
    else
        kin_openai_put_error(error, &body);
    if (error->status == 429 || error->status == 503) kin_http_add_header(x, "Retry-After", "1");
    kin_http_reply(x, error->status, "application/json; charset=utf-8", body.at ? body.at : "", body.len);
    kin_text_fini(&body);
}
