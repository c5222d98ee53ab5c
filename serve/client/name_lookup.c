#include "serve/client/name_lookup.h"

#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { LOOK_MS = 100 };

typedef struct lookup {
    char host[256], port[8];
    struct addrinfo *list;
    int rc, done[2];     // done: a pipe that gets a byte when rc and list are set
    atomic_bool is_left; // the second thread to leave frees it
} lookup;

static void leave(lookup *l) {
    if (!atomic_exchange(&l->is_left, true)) return;
    if (l->list) freeaddrinfo(l->list);
    close(l->done[0]);
    free(l);
}

static int find(lookup *l, int flags) {
    const struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = flags};
    return getaddrinfo(l->host, l->port, &hints, &l->list);
}

static void *run(void *arg) {
    lookup *l = arg;
    l->rc = find(l, 0);
    if (l->rc != 0) l->list = NULL;
    if (write(l->done[1], "", 1) != 1) l->rc = EAI_SYSTEM; // the other end stays open until both have left
    close(l->done[1]);
    leave(l);
    return NULL;
}

// Returns false if given up.
static bool wait_for(const lookup *l, bool (*goes_on)(void *user), void *user) {
    struct pollfd p = {.fd = l->done[0], .events = POLLIN};
    char byte;
    while (poll(&p, 1, LOOK_MS) <= 0) {
        if (goes_on && !goes_on(user)) return false;
    }
    return read(l->done[0], &byte, 1) == 1; // orders the other thread's writes before what follows
}

static int start(lookup *l) {
    pthread_t thread;
    if (pthread_create(&thread, NULL, run, l) != 0) return KIN_FAIL;
    pthread_detach(thread);
    return 0;
}

static int find_name(lookup *l, bool (*goes_on)(void *user), void *user, struct addrinfo **list, kin_err *err) {
    if (pipe(l->done) != 0) {
        free(l);
        return kin_err_set(err, "too many open files");
    }
    if (start(l) != 0) {
        close(l->done[0]);
        close(l->done[1]);
        free(l);
        return kin_err_set(err, "cannot start a thread for the name lookup");
    }
    bool is_found = wait_for(l, goes_on, user);
    int rc = is_found ? l->rc : 0;
    if (is_found) {
        *list = l->list;
        l->list = NULL;
    }
    if (is_found && rc != 0) kin_err_set(err, "unknown host '%.200s' (%s)", l->host, gai_strerror(rc));
    if (!is_found) kin_err_set(err, "stopped");
    leave(l);
    return is_found && rc == 0 ? 0 : KIN_FAIL;
}

int kin_name_lookup(const char *host, uint16_t port, bool (*goes_on)(void *user), void *user, struct addrinfo **list,
                    kin_err *err) {
    *list = NULL;
    lookup *l = calloc(1, sizeof *l);
    if (!l) return kin_err_set(err, "out of memory");
    snprintf(l->host, sizeof l->host, "%s", host);
    snprintf(l->port, sizeof l->port, "%u", (unsigned)port);
    if (find(l, AI_NUMERICHOST | AI_NUMERICSERV) != 0) return find_name(l, goes_on, user, list, err);
    *list = l->list;
    free(l);
    return 0;
}
