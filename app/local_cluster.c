#include "app/local_cluster.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#ifdef __linux__
#include <sys/prctl.h>
#endif

#include "app/app.h"
#include "base/clock.h"
#include "cluster/identity.h"
#include "cluster/join.h"

static const char *const names[KIN_LOCAL_CLUSTER_DEVICES] = {"attic",   "kitchen", "cellar", "study",
                                                             "bedroom", "garage",  "hall",   "garden"};
static const char head_home[] = "desk";

enum { STOP_MS = 2000, LOOK_MS = 50 }; // STOP_MS: until a device that does not stop is killed

typedef struct ended {
    int device, status; // as from waitpid
} ended;

// ---- the folder

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *at) {
    (void)st;
    (void)type;
    (void)at;
    return remove(path);
}

static void remove_folder(const char *folder) {
    if (folder[0]) nftw(folder, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

static const char *path_of(const char *folder, const char *home, const char *file, char buf[KIN_LOCAL_CLUSTER_PATH]) {
    snprintf(buf, KIN_LOCAL_CLUSTER_PATH, "%.300s/%s%s%s", folder, home, file[0] ? "/" : "", file);
    return buf;
}

const char *kin_local_cluster_path(const kin_local_cluster *h, const char *path, char buf[KIN_LOCAL_CLUSTER_PATH]) {
    return path_of(h->folder, head_home, path, buf);
}

static int make_home(const kin_local_cluster *h, const char *name, const kin_key *key, kin_err *err) {
    char path[KIN_LOCAL_CLUSTER_PATH];
    if (mkdir(path_of(h->folder, name, "", path), 0700) != 0) return kin_err_set(err, "%s: %s", path, strerror(errno));
    return kin_key_save(key, path_of(h->folder, name, "key", path), err);
}

static int make_homes(kin_local_cluster *h, kin_err *err) {
    const char *tmp = getenv("TMPDIR");
    char code[KIN_CODE_TEXT];
    kin_key key;
    snprintf(h->folder, sizeof h->folder, "%.200s/kin-demo-XXXXXX", tmp && tmp[0] ? tmp : "/tmp");
    if (!mkdtemp(h->folder)) {
        kin_err_set(err, "cannot create a directory in %s%s: %s", tmp && tmp[0] ? tmp : "/tmp", tmp && tmp[0] ? " (TMPDIR)" : "",
                    strerror(errno));
        h->folder[0] = '\0';
        return KIN_FAIL;
    }
    if (kin_code_new(code, err) != 0 || kin_key_from_code(&key, code, err) != 0) return KIN_FAIL;
    int rc = make_home(h, head_home, &key, err);
    for (int i = 0; i < h->n_devices && rc == 0; i++) rc = make_home(h, names[i], &key, err);
    kin_key_wipe(&key);
    return rc;
}

// Finds a port that is free now: the devices must know it before the head listens.
static int find_port(uint16_t *port, kin_err *err) {
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t n = sizeof at;
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    bool found = fd >= 0 && bind(fd, (struct sockaddr *)&at, n) == 0 && getsockname(fd, (struct sockaddr *)&at, &n) == 0;
    int rc = found ? 0 : kin_err_set(err, "cannot find a free port on 127.0.0.1: %s", strerror(errno));
    *port = ntohs(at.sin_port);
    if (fd >= 0) close(fd);
    return rc;
}

// ---- a device

static void log_status(void *user, const char *line) {
    (void)user;
    kin_app_log("%s", line);
}

static void log_progress(void *user, const char *what, uint64_t done, uint64_t total, uint64_t rate) {
    (void)user, (void)what, (void)done, (void)total, (void)rate;
}

// The device is not measured: the demo gives each device the same number of layers.
static int join(const kin_local_cluster *h, const char *name) {
    char cache[KIN_LOCAL_CLUSTER_PATH], key_file[KIN_LOCAL_CLUSTER_PATH];
    kin_identity self;
    kin_err err;
    kin_identity_options net = {.name = name, .key_file = path_of(h->folder, name, "key", key_file)};
    kin_join_options o = {.version = KIN_VERSION,
                          .head = "127.0.0.1",
                          .head_port = h->port,
                          .listen = "127.0.0.1",
                          .cache_dir = path_of(h->folder, name, "cache", cache),
                          .no_cache = true,
                          .n_threads = 1,
                          .no_gpu = true,
                          .stop = &kin_app_stop,
                          .status = log_status,
                          .progress = log_progress};
    int rc = kin_identity_open(&self, &net, &err);
    if (rc == 0) rc = kin_key_load(&o.key, key_file, &err);
    if (rc == 0) {
        o.id = self.id;
        o.run = self.run;
        o.name = self.name;
        rc = kin_join_run(&o, &err);
    }
    kin_key_wipe(&o.key);
    return rc == 0 ? KIN_EXIT_OK : kin_app_fail(&err);
}

// Runs in the device's process until it ends.
static _Noreturn void be_device(const kin_local_cluster *h, int i, pid_t supervisor, const sigset_t *signals) {
    char path[KIN_LOCAL_CLUSTER_PATH];
    int fd = open(path_of(h->folder, names[i], "log", path), O_WRONLY | O_CREAT | O_APPEND, 0600);
    if (fd >= 0) dup2(fd, STDERR_FILENO);
    setenv("HOME", path_of(h->folder, names[i], "", path), 1);
    signal(SIGCHLD, SIG_DFL);
    signal(SIGPIPE, SIG_DFL);
    signal(SIGUSR1, SIG_DFL);
    kin_app_catch_interrupts();
    sigprocmask(SIG_SETMASK, signals, NULL);
#ifdef __linux__
    prctl(PR_SET_PDEATHSIG, SIGKILL);
#endif
    if (getppid() != supervisor) _exit(KIN_EXIT_FAILED); // the supervisor ended before prctl
    _exit(join(h, names[i]));
}

// ---- the supervisor

typedef struct supervisor {
    const kin_local_cluster *h;
    pid_t head, pids[KIN_LOCAL_CLUSTER_DEVICES]; // 0: none
    int from_head, to_head;
    int n_left; // running devices
} supervisor;

static void on_child(int signal) {
    (void)signal; // its only purpose is to interrupt pselect
}

// Collects devices that ended; reports them to the head if `tells`.
static void collect(supervisor *k, bool notifies) {
    int status;
    for (pid_t pid; (pid = waitpid(-1, &status, WNOHANG)) > 0;) {
        for (int i = 0; i < k->h->n_devices; i++) {
            if (k->pids[i] != pid) continue;
            ended e = {i, status};
            k->pids[i] = 0;
            k->n_left--;
            if (notifies && write(k->to_head, &e, sizeof e) == (ssize_t)sizeof e) kill(k->head, SIGUSR1);
        }
    }
}

static void signal_all(const supervisor *k, int signal) {
    for (int i = 0; i < k->h->n_devices; i++) {
        if (k->pids[i] > 0) kill(k->pids[i], signal);
    }
}

static void stop_devices(supervisor *k, const sigset_t *signals) {
    kin_time begun = kin_clock_now();
    signal_all(k, SIGTERM);
    for (bool killed = false; collect(k, false), k->n_left > 0;) {
        struct timespec wait = {.tv_nsec = LOOK_MS * 1000000};
        if (!killed && kin_clock_ms(begun, kin_clock_now()) > STOP_MS) {
            signal_all(k, SIGKILL);
            killed = true;
        }
        pselect(0, NULL, NULL, NULL, &wait, signals);
    }
}

// Runs in the supervisor's process until the head closes its pipe or ends.
static _Noreturn void keep(supervisor *k) {
    sigset_t children, signals; // SIGCHLD, blocked outside of pselect; the mask of pselect
    pid_t self = getpid();
    setsid();
    signal(SIGINT, SIG_IGN);
    signal(SIGTERM, SIG_IGN);
    signal(SIGHUP, SIG_IGN);
    signal(SIGPIPE, SIG_IGN);
    sigemptyset(&children);
    sigaddset(&children, SIGCHLD);
    sigprocmask(SIG_SETMASK, &children, NULL); // unblocks signals that were blocked at start and are now ignored
    sigemptyset(&signals);
    sigaction(SIGCHLD, &(struct sigaction){.sa_handler = on_child}, NULL);
    for (int i = 0; i < k->h->n_devices; i++) {
        pid_t pid = fork();
        if (pid == 0) {
            close(k->from_head);
            close(k->to_head);
            be_device(k->h, i, self, &signals);
        }
        k->pids[i] = pid > 0 ? pid : 0;
        k->n_left += pid > 0;
    }
    for (char byte;;) {
        fd_set set;
        FD_ZERO(&set);
        FD_SET(k->from_head, &set);
        int n = pselect(k->from_head + 1, &set, NULL, NULL, NULL, &signals);
        if (n > 0 && read(k->from_head, &byte, 1) <= 0) break;
        collect(k, true);
    }
    stop_devices(k, &signals);
    remove_folder(k->h->folder);
    _exit(0);
}

// ---- the head's side

static void on_ended(int signal) {
    (void)signal;
    atomic_store(&kin_app_stop, true);
}

static int start_supervisor(kin_local_cluster *h, kin_err *err) {
    int down[2], up[2];
    if (pipe(down) != 0) return kin_err_set(err, "cannot create a pipe: %s", strerror(errno));
    if (pipe(up) != 0) {
        close(down[0]);
        close(down[1]);
        return kin_err_set(err, "cannot create a pipe: %s", strerror(errno));
    }
    sigset_t ends, before;
    sigemptyset(&ends);
    sigaddset(&ends, SIGINT);
    sigaddset(&ends, SIGTERM);
    sigaddset(&ends, SIGHUP);
    sigprocmask(SIG_BLOCK, &ends, &before); // until the supervisor ignores them
    supervisor k = {.h = h, .head = getpid(), .from_head = down[0], .to_head = up[1]};
    h->supervisor = fork();
    if (h->supervisor == 0) {
        close(down[1]);
        close(up[0]);
        keep(&k);
    }
    sigprocmask(SIG_SETMASK, &before, NULL);
    close(down[0]);
    close(up[1]);
    h->to_supervisor = down[1];
    h->from_supervisor = up[0];
    fcntl(h->from_supervisor, F_SETFL, O_NONBLOCK);
    return h->supervisor > 0 ? 0 : kin_err_set(err, "cannot start a process: %s", strerror(errno));
}

int kin_local_cluster_open(kin_local_cluster *h, int n_devices, kin_err *err) {
    kin_assert(n_devices >= 1 && n_devices <= KIN_LOCAL_CLUSTER_DEVICES);
    *h = (kin_local_cluster){.n_devices = n_devices, .to_supervisor = -1, .from_supervisor = -1};
    sigaction(SIGUSR1, &(struct sigaction){.sa_handler = on_ended}, NULL);
    sigaction(SIGCHLD, &(struct sigaction){.sa_handler = on_ended}, NULL); // the supervisor is a child of this process
    if (make_homes(h, err) == 0 && find_port(&h->port, err) == 0 && start_supervisor(h, err) == 0) return 0;
    kin_local_cluster_close(h);
    return KIN_FAIL;
}

// The pipe alone does not tell: a device that stalled before it closed its copy keeps it open after the supervisor has ended.
static bool supervisor_has_ended(const kin_local_cluster *h) {
    siginfo_t info = {0};
    return waitid(P_PID, (id_t)h->supervisor, &info, WEXITED | WNOHANG | WNOWAIT) == 0 && info.si_pid == h->supervisor;
}

bool kin_local_cluster_lost(kin_local_cluster *h, kin_err *how) {
    ended e;
    ssize_t n = read(h->from_supervisor, &e, sizeof e);
    if (n < 0 && !supervisor_has_ended(h)) return false;
    if (n < (ssize_t)sizeof e)
        kin_err_set(how, "the supervisor process was killed");
    else if (WIFSIGNALED(e.status))
        kin_err_set(how, "the device '%s' was killed by signal %d", names[e.device], WTERMSIG(e.status));
    else
        kin_err_set(how, "the device '%s' ended with status %d", names[e.device], WEXITSTATUS(e.status));
    return true;
}

void kin_local_cluster_close(kin_local_cluster *h) {
    if (!h->folder[0]) return;
    signal(SIGCHLD, SIG_DFL);
    if (h->to_supervisor >= 0) close(h->to_supervisor);
    while (h->supervisor > 0 && waitpid(h->supervisor, NULL, 0) < 0 && errno == EINTR) {
    }
    if (h->supervisor > 0) kill(-h->supervisor, SIGKILL); // if it was killed: devices left in its process group
    if (h->from_supervisor >= 0) close(h->from_supervisor);
    remove_folder(h->folder); // if the supervisor was killed: what it left
    *h = (kin_local_cluster){.to_supervisor = -1, .from_supervisor = -1};
}
