#include "serve/refuse.h"

#include "serve/apis/openai/openai_json.h"

void kin_begin_stream(kin_http_exchange *x, const kin_api_format *format) {
    kin_http_add_header(x, "Cache-Control", "no-cache");
    kin_http_add_header(x, "X-Accel-Buffering", "no");
    kin_http_begin(x, 200, format->stream_type);
}

static void end_stream(kin_http_exchange *x, const kin_api_format *format, const kin_api_error *error) {
    kin_text_buffer out = {0};
    format->fail(NULL, error, &out);
    if (out.len > 0) kin_http_write(x, out.at, out.len);
    kin_http_end(x);
    kin_text_fini(&out);
}

void kin_refuse(kin_http_exchange *x, const kin_api_format *format, const kin_api_error *error) {
    kin_text_buffer body = {0};
    if (kin_http_has_begun(x)) {
        end_stream(x, format, error);
        return;
    }
    if (format)
        format->error(error, &body);
    else
        kin_openai_put_error(error, &body);
    if (error->status == 429 || error->status == 503) kin_http_add_header(x, "Retry-After", "1");
    kin_http_reply(x, error->status, "application/json; charset=utf-8", body.at ? body.at : "", body.len);
    kin_text_fini(&body);
}
