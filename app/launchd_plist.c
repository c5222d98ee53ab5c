#include "app/launchd_plist.h"

#include <string.h>

#include "pure/text/utf8.h"

static void put(kin_text_buffer *out, const char *text) {
    kin_text_put(out, text, strlen(text));
}

// Writes <string>TEXT</string>.
static int put_string(kin_text_buffer *out, const char *text, kin_err *err) {
    put(out, "<string>");
    for (const char *at = text; *at;) {
        int n = kin_utf8_len(at, strlen(at));
        if (n < 1) return kin_err_set(err, "'%.60s' is not UTF-8 text", text);
        if (n == 1 && ((unsigned char)*at < ' ' || *at == 127))
            return kin_err_set(err, "'%.60s' contains a control character", text);
        if (*at == '&')
            put(out, "&amp;");
        else if (*at == '<')
            put(out, "&lt;");
        else if (*at == '>')
            put(out, "&gt;");
        else
            kin_text_put(out, at, (size_t)n);
        at += n;
    }
    put(out, "</string>\n");
    return 0;
}

static int put_entry(kin_text_buffer *out, const char *key, const char *text, kin_err *err) {
    put(out, "  <key>");
    put(out, key);
    put(out, "</key>\n  ");
    return put_string(out, text, err);
}

// Interactive: macOS slows down the computing and the disk of background processes. Ctrl-C's signal ends open requests first, so
// the end takes a while. 63 is the umask 077.
static const char behaviour[] = "  <key>RunAtLoad</key>\n  <true/>\n"
                                "  <key>KeepAlive</key>\n  <true/>\n"
                                "  <key>ThrottleInterval</key>\n  <integer>5</integer>\n"
                                "  <key>ProcessType</key>\n  <string>Interactive</string>\n"
                                "  <key>ExitTimeOut</key>\n  <integer>60</integer>\n"
                                "  <key>Umask</key>\n  <integer>63</integer>\n";

int kin_launchd_plist_write(const kin_launchd_plist *p, kin_text_buffer *out, kin_err *err) {
    put(out, "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n"
             "<!DOCTYPE plist PUBLIC \"-//Apple//DTD PLIST 1.0//EN\" \"http://www.apple.com/DTDs/PropertyList-1.0.dtd\">\n"
             "<!-- Written by 'kin service install'. -->\n<plist version=\"1.0\">\n<dict>\n");
    int rc = put_entry(out, "Label", p->label, err);
    put(out, "  <key>ProgramArguments</key>\n  <array>\n    ");
    if (rc == 0) rc = put_string(out, p->program, err);
    for (int i = 0; rc == 0 && i < p->n_words; i++) {
        put(out, "    ");
        rc = put_string(out, p->words[i], err);
    }
    put(out, "  </array>\n");
    put(out, behaviour);
    if (rc == 0) rc = put_entry(out, "StandardErrorPath", p->log, err);
    if (rc == 0 && p->user) rc = put_entry(out, "UserName", p->user, err);
    put(out, "</dict>\n</plist>\n");
    return rc == 0 && out->failed ? kin_err_set(err, "out of memory") : rc;
}
