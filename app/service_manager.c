#include "app/service_manager.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "app/launchd_plist.h"
#include "app/unit_file.h"

// ---- commands

// Runs a command; words end with NULL. Returns its exit status; -1 if it could not be run.
static int run(const char *const *words) {
    fflush(stdout);
    pid_t pid = fork();
    if (pid == 0) {
        execvp(words[0], (char *const *)words);
        _exit(127);
    }
    int status;
    while (pid > 0 && waitpid(pid, &status, 0) < 0 && errno == EINTR) continue;
    return pid > 0 && WIFEXITED(status) && WEXITSTATUS(status) != 127 ? WEXITSTATUS(status) : -1;
}

static int report(int status, const char *program, const char *manager, const char *verb, kin_err *err) {
    if (status < 0) return kin_err_set(err, "cannot run %s: kin service needs %s", program, manager);
    return status == 0 ? 0 : kin_err_set(err, "%s %s failed with status %d", program, verb, status);
}

// Writes FOLDER/NAME; folder: below the home directory if `home` is given.
static int place(kin_service_unit *u, const char *home, const char *folder, const char *name, kin_err *err) {
    int n = home ? snprintf(u->path, sizeof u->path, "%s/%s/%s", home, folder, name)
                 : snprintf(u->path, sizeof u->path, "%s/%s", folder, name);
    return n > 0 && (size_t)n < sizeof u->path ? 0 : kin_err_set(err, "the path of the service's file is too long");
}

static const char *home_folder(kin_err *err) {
    const char *home = getenv("HOME");
    if (home && home[0]) return home;
    kin_err_set(err, "there is no home directory for the service's file");
    return NULL;
}

// ---- systemd

static int systemctl(const kin_service_unit *u, const char *a, const char *b, const char *c) {
    const char *words[6] = {"systemctl"};
    const char *const all[] = {u->is_system ? NULL : "--user", a, b, c};
    for (int i = 0, n = 1; i < 4; i++)
        if (all[i]) words[n++] = all[i];
    return run(words);
}

static int must_systemctl(const kin_service_unit *u, const char *a, const char *b, const char *c, kin_err *err) {
    return report(systemctl(u, a, b, c), "systemctl", "systemd", a, err);
}

static int init_systemd(kin_service_unit *u, kin_err *err) {
    const char *xdg = getenv("XDG_CONFIG_HOME"), *home;
    snprintf(u->name, sizeof u->name, "kin-%s.service", u->command);
    if (u->is_system) return place(u, NULL, "/etc/systemd/system", u->name, err);
    if (xdg && xdg[0]) return place(u, xdg, "systemd/user", u->name, err);
    return (home = home_folder(err)) ? place(u, home, ".config/systemd/user", u->name, err) : KIN_FAIL;
}

static int write_systemd(const kin_service_unit *u, const char *program, char *const *words, int n, kin_text_buffer *out,
                         kin_err *err) {
    return kin_unit_file_write(program, words, n, u->is_system, out, err);
}

// Does not wait until it is ready: it may fetch a model first, or wait for devices. One that runs gets the new options.
static int start_systemd(const kin_service_unit *u, kin_err *err) {
    if (must_systemctl(u, "daemon-reload", NULL, NULL, err) != 0 || must_systemctl(u, "enable", u->name, NULL, err) != 0)
        return KIN_FAIL;
    return must_systemctl(u, "restart", "--no-block", u->name, err);
}

static int stop_systemd(const kin_service_unit *u, kin_err *err) {
    return must_systemctl(u, "disable", "--now", u->name, err);
}

static int removed_systemd(const kin_service_unit *u, kin_err *err) {
    return must_systemctl(u, "daemon-reload", NULL, NULL, err);
}

static int show_systemd(const kin_service_unit *u) {
    return systemctl(u, "status", "--no-pager", u->name);
}

static const char *log_systemd(const kin_service_unit *u) {
    static char text[128];
    snprintf(text, sizeof text, "journalctl %s-u %s", u->is_system ? "" : "--user ", u->name);
    return text;
}

static const char *linger_systemd(const kin_service_unit *u) {
    return u->is_system ? NULL : "to run it while you are not logged in: loginctl enable-linger";
}

// ---- launchd

static const char *domain(const kin_service_unit *u, char buf[32]) {
    snprintf(buf, 32, "gui/%lu", (unsigned long)getuid());
    return u->is_system ? "system" : buf;
}

static const char *target(const kin_service_unit *u, char buf[128]) {
    char of[32];
    snprintf(buf, 128, "%s/%s", domain(u, of), u->name);
    return buf;
}

static int launchctl(const char *verb, const char *a, const char *b) {
    const char *const words[] = {"launchctl", verb, a, b, NULL};
    return run(words);
}

static int init_launchd(kin_service_unit *u, kin_err *err) {
    char file[80];
    const char *home;
    snprintf(u->name, sizeof u->name, "kin.%s", u->command);
    snprintf(file, sizeof file, "%s.plist", u->name);
    if (u->is_system) return place(u, NULL, "/Library/LaunchDaemons", file, err);
    return (home = home_folder(err)) ? place(u, home, "Library/LaunchAgents", file, err) : KIN_FAIL;
}

// A service of the system runs as the user who installs it with sudo, because macOS has no users that are made for a service.
static int write_launchd(const kin_service_unit *u, const char *program, char *const *words, int n, kin_text_buffer *out,
                         kin_err *err) {
    const char *user = u->is_system ? getenv("SUDO_USER") : NULL, *home = home_folder(err);
    char log[PATH_MAX];
    if (!home) return KIN_FAIL;
    if (u->is_system && (!user || !user[0]))
        return kin_err_set(err, "run it with sudo from the account that the service shall have");
    int len = u->is_system ? snprintf(log, sizeof log, "/Library/Logs/%s.log", u->name)
                           : snprintf(log, sizeof log, "%s/Library/Logs/%s.log", home, u->name);
    if (len < 0 || (size_t)len >= sizeof log) return kin_err_set(err, "the path of the log is too long");
    const kin_launchd_plist plist = {
        .label = u->name, .program = program, .words = words, .n_words = n, .log = log, .user = user};
    return kin_launchd_plist_write(&plist, out, err);
}

static int start_launchd(const kin_service_unit *u, kin_err *err) {
    char of[32], at[128];
    launchctl("bootout", target(u, at), NULL); // removes an older job; the error if no job exists is ignored
    return report(launchctl("bootstrap", domain(u, of), u->path), "launchctl", "launchd", "bootstrap", err);
}

static int stop_launchd(const kin_service_unit *u, kin_err *err) {
    char at[128];
    return report(launchctl("bootout", target(u, at), NULL), "launchctl", "launchd", "bootout", err);
}

static int removed_launchd(const kin_service_unit *u, kin_err *err) {
    (void)u, (void)err;
    return 0;
}

static int show_launchd(const kin_service_unit *u) {
    char at[128];
    return launchctl("print", target(u, at), NULL);
}

static const char *log_launchd(const kin_service_unit *u) {
    static char text[128];
    snprintf(text, sizeof text, "tail -f %s/Library/Logs/%s.log", u->is_system ? "" : "~", u->name);
    return text;
}

static const char *linger_launchd(const kin_service_unit *u) {
    return u->is_system ? NULL : "it runs while you are logged in; --system installs one that always runs";
}

// ----

static const kin_service_manager managers[] = {
    {"systemd", "systemctl", init_systemd, write_systemd, start_systemd, stop_systemd, removed_systemd, show_systemd, log_systemd,
     linger_systemd},
    {"launchd", "launchctl", init_launchd, write_launchd, start_launchd, stop_launchd, removed_launchd, show_launchd, log_launchd,
     linger_launchd},
};

const kin_service_manager *kin_service_manager_find(const char *name) {
#ifdef __APPLE__
    return &managers[!name || strcmp(name, "launchd") == 0];
#else
    return &managers[name && strcmp(name, "launchd") == 0];
#endif
}

int kin_service_manager_check(const kin_service_manager *m, kin_err *err) {
    const char *folder = getenv("PATH");
    char path[PATH_MAX];
    while (folder && *folder) {
        int n = (int)strcspn(folder, ":");
        int len = snprintf(path, sizeof path, "%.*s/%s", n, folder, m->command);
        if (len > 0 && (size_t)len < sizeof path && access(path, X_OK) == 0) return 0;
        folder += n + (folder[n] == ':');
    }
    return kin_err_set(err,
                       "kin service needs %s, and there is no %s here: let this system's own init start kin "
                       "(docs/USING.md has a script for OpenRC)",
                       m->name, m->command);
}
