#include "app/unit_file.h"

#include <string.h>

static void put(kin_text_buffer *out, const char *text) {
    kin_text_put(out, text, strlen(text));
}

// Quotes a word for ExecStart, where '%' and '$' would be replaced.
static int put_word(kin_text_buffer *out, const char *word, kin_err *err) {
    put(out, "\"");
    for (const char *at = word; *at; at++) {
        if ((unsigned char)*at < ' ' || *at == 127) return kin_err_set(err, "'%.60s' contains a control character", word);
        if (*at == '"' || *at == '\\') put(out, "\\");
        if (*at == '%') put(out, "%");
        if (*at == '$') put(out, "$");
        kin_text_put(out, at, 1);
    }
    put(out, "\"");
    return 0;
}

// Restrictions that both kinds of manager can enforce without privileges.
static const char hardening[] = "NoNewPrivileges=yes\n"
                                "LockPersonality=yes\n"
                                "RestrictRealtime=yes\n"
                                "RestrictSUIDSGID=yes\n"
                                "SystemCallArchitectures=native\n"
                                "UMask=0077\n";

// A user of its own, whose only places are /var/cache/kin and /var/lib/kin. GPUs need their device files, so these are not
// hidden.
static const char system_hardening[] = "DynamicUser=yes\n"
                                       "CacheDirectory=kin\n"
                                       "StateDirectory=kin\n"
                                       "Environment=XDG_CACHE_HOME=/var/cache XDG_CONFIG_HOME=/var/lib\n"
                                       "SupplementaryGroups=video render\n"
                                       "ProtectSystem=strict\n"
                                       "ProtectHome=read-only\n"
                                       "PrivateTmp=yes\n"
                                       "ProtectKernelTunables=yes\n"
                                       "ProtectKernelModules=yes\n"
                                       "ProtectKernelLogs=yes\n"
                                       "ProtectControlGroups=yes\n"
                                       "ProtectClock=yes\n"
                                       "ProtectHostname=yes\n"
                                       "RestrictNamespaces=yes\n"
                                       "RestrictAddressFamilies=AF_UNIX AF_INET AF_INET6 AF_NETLINK\n"
                                       "CapabilityBoundingSet=\n";

int kin_unit_file_write(const char *program, char *const *words, int n, bool is_system, kin_text_buffer *out, kin_err *err) {
    bool serves = strcmp(words[0], "serve") == 0;
    put(out, "# Written by 'kin service install'.\n[Unit]\nDescription=kin: ");
    put(out, serves ? "serves a large language model\n" : "lends this machine to the head of its cluster\n");
    if (is_system) put(out, "Wants=network-online.target\nAfter=network-online.target\n");
    // Fetching and preparing a model may take hours. Ctrl-C's signal ends open requests first.
    put(out, "StartLimitIntervalSec=0\n\n[Service]\nType=notify\nTimeoutStartSec=infinity\nTimeoutStopSec=60\nRestart="
             "always\nRestartSec=5\nExecStart=");
    if (put_word(out, program, err) != 0) return KIN_FAIL;
    for (int i = 0; i < n; i++) {
        put(out, " ");
        if (put_word(out, words[i], err) != 0) return KIN_FAIL;
    }
    put(out, "\n");
    put(out, hardening);
    if (is_system) put(out, system_hardening);
    put(out, "\n[Install]\nWantedBy=");
    put(out, is_system ? "multi-user.target\n" : "default.target\n");
    return out->failed ? kin_err_set(err, "out of memory") : 0;
}
