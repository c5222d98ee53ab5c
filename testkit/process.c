#include "testkit/process.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#ifdef __linux__
#include <sys/prctl.h>
#endif

#include "base/clock.h"

// Runs in the child: uses only what is safe after fork.
static void become(const kin_process *p, char *const argv[], char *const envp[], const int in[2], const int out[2]) {
    signal(SIGPIPE, SIG_DFL);
    int null = open("/dev/null", O_RDONLY), log = open(p->log, O_WRONLY | O_CREAT | O_APPEND, 0600);
#ifdef __linux__
    prctl(PR_SET_PDEATHSIG, SIGKILL);
#endif
    dup2(in[0] >= 0 ? in[0] : null, STDIN_FILENO);
    dup2(out[1] >= 0 ? out[1] : log, STDOUT_FILENO);
    dup2(log, STDERR_FILENO);
    execve(argv[0], argv, envp);
    _exit(127);
}

static void close_both(int fd[2]) {
    for (int i = 0; i < 2; i++) {
        if (fd[i] >= 0) close(fd[i]);
    }
}

// Replaces pipe2, which macOS lacks.
static int open_pipe(int fd[2]) {
    if (pipe(fd) != 0) return KIN_FAIL;
    return fcntl(fd[0], F_SETFD, FD_CLOEXEC) == 0 && fcntl(fd[1], F_SETFD, FD_CLOEXEC) == 0 ? 0 : KIN_FAIL;
}

int kin_process_start(kin_process *p, char *const argv[], char *const envp[], bool has_pipes, kin_err *err) {
    int in[2] = {-1, -1}, out[2] = {-1, -1};
    p->pid = 0;
    p->in = p->out = -1;
    if (has_pipes && (open_pipe(in) != 0 || open_pipe(out) != 0)) goto fail;
    pid_t pid = fork();
    if (pid < 0) goto fail;
    if (pid == 0) become(p, argv, envp, in, out);
    p->pid = pid;
    if (!has_pipes) return 0;
    close(in[0]);
    close(out[1]);
    p->in = in[1];
    p->out = out[0];
    return 0;

fail:
    kin_err_set(err, "%s: %s", argv[0], strerror(errno));
    close_both(in);
    close_both(out);
    return KIN_FAIL;
}

void kin_process_signal(const kin_process *p, int sig) {
    if (p->pid > 0) kill(p->pid, sig);
}

bool kin_process_has_ended(kin_process *p) {
    if (p->pid == 0) return true;
    if (waitpid(p->pid, &p->status, WNOHANG) != p->pid) return false;
    if (p->in >= 0) close(p->in);
    if (p->out >= 0) close(p->out);
    p->pid = 0;
    p->in = p->out = -1;
    return true;
}

bool kin_process_wait(kin_process *p, int ms) {
    kin_time begun = kin_clock_now();
    while (!kin_process_has_ended(p)) {
        if (kin_clock_ms(begun, kin_clock_now()) > ms) return false;
        usleep(5000);
    }
    return true;
}

void kin_process_kill(kin_process *p) {
    kin_process_signal(p, SIGKILL);
    while (!kin_process_has_ended(p)) usleep(1000);
}

const char *kin_process_end(const kin_process *p, char *buf, size_t n) {
    if (WIFSIGNALED(p->status))
        snprintf(buf, n, "signal %d", WTERMSIG(p->status));
    else
        snprintf(buf, n, "exit status %d", WEXITSTATUS(p->status));
    return buf;
}
