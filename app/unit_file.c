#include "app/unit_file.h"

#include <grp.h>
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

// Options whose file has a secret. A service of the system runs as a user that may not read it, so systemd hands it over.
static const struct secret { const char *option, *id; } secrets[] = {{"--code-file", "code"}, {"--api-key-file", "api-keys"}};

// Returns the secret that an option names; *value: the part of the word after "--name=", or NULL.
static const struct secret *find_secret(const char *word, const char **value) {
    size_t n = strcspn(word, "=");
    for (size_t i = 0; i < sizeof secrets / sizeof *secrets; i++) {
        *value = word[n] ? word + n + 1 : NULL;
        if (strlen(secrets[i].option) == n && strncmp(word, secrets[i].option, n) == 0) return &secrets[i];
    }
    return NULL;
}

// Writes a line "LoadCredential=ID:PATH".
static int put_credential(kin_text_buffer *out, const struct secret *secret, const char *path, kin_err *err) {
    if (path[0] != '/') return kin_err_set(err, "%s %.200s: there is no such file", secret->option, path);
    put(out, "LoadCredential=");
    put(out, secret->id);
    put(out, ":");
    for (; *path; path++) {
        if ((unsigned char)*path < ' ' || *path == 127) return kin_err_set(err, "%s: a control character", secret->option);
        if (*path == '%') put(out, "%");
        kin_text_put(out, path, 1);
    }
    put(out, "\n");
    return 0;
}

// Writes the words of ExecStart. Those that name a secret's file get the path that systemd makes for it.
static int put_words(kin_text_buffer *out, char *const *words, int n, bool is_system, kin_err *err) {
    const char *value;
    for (int i = 0; i < n; i++) {
        const struct secret *secret = is_system ? find_secret(words[i], &value) : NULL;
        put(out, " ");
        if (!secret) {
            if (put_word(out, words[i], err) != 0) return KIN_FAIL;
            continue;
        }
        put(out, secret->option);
        put(out, "=%d/");
        put(out, secret->id);
        i += !value;
    }
    put(out, "\n");
    return 0;
}

static int put_credentials(kin_text_buffer *out, char *const *words, int n, kin_err *err) {
    const char *value;
    for (int i = 0; i < n; i++) {
        const struct secret *secret = find_secret(words[i], &value);
        if (secret && !value) value = ++i < n ? words[i] : "";
        if (secret && put_credential(out, secret, value, err) != 0) return KIN_FAIL;
    }
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

// Device files of GPUs belong to these groups. systemd starts no service that names a group which this machine has not.
static void put_groups(kin_text_buffer *out) {
    static const char *const groups[] = {"video", "render"};
    for (size_t i = 0; i < sizeof groups / sizeof *groups; i++) {
        if (!getgrnam(groups[i])) continue;
        put(out, "SupplementaryGroups=");
        put(out, groups[i]);
        put(out, "\n");
    }
}

int kin_unit_file_write(const char *program, char *const *words, int n, bool is_system, kin_text_buffer *out, kin_err *err) {
    bool serves = strcmp(words[0], "serve") == 0;
    put(out, "# Written by 'kin service install'.\n[Unit]\nDescription=kin: ");
    put(out, serves ? "serves a large language model\n" : "lends this machine to the head of its cluster\n");
    if (is_system) put(out, "Wants=network-online.target\nAfter=network-online.target\n");
    // Fetching and preparing a model may take hours. Ctrl-C's signal ends open requests first.
    put(out, "StartLimitIntervalSec=0\n\n[Service]\nType=notify\nTimeoutStartSec=infinity\nTimeoutStopSec=60\nRestart="
             "always\nRestartSec=5\nExecStart=");
    if (put_word(out, program, err) != 0) return KIN_FAIL;
    if (put_words(out, words, n, is_system, err) != 0) return KIN_FAIL;
    if (is_system && put_credentials(out, words, n, err) != 0) return KIN_FAIL;
    put(out, hardening);
    if (is_system) {
        put(out, system_hardening);
        put_groups(out);
    }
    put(out, "\n[Install]\nWantedBy=");
    put(out, is_system ? "multi-user.target\n" : "default.target\n");
    return out->failed ? kin_err_set(err, "out of memory") : 0;
}
