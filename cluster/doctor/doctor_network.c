#include "cluster/doctor/doctor_network.h"

#include <arpa/inet.h>
#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include <uv.h>

#include "net/address.h"
#include "net/discovery.h"
#include "observe/status_client.h"
#include "sys/whole_file.h"

enum { MAX_ADDRESSES = 8, MAX_SHOWN = 3, SEARCH_MS = 700, ASK_MS = 200, CLUSTER_MS = 2500, MAX_CONF = 1 << 16 };

static uint16_t head_port(const kin_doctor_options *o) {
    return o->port ? o->port : KIN_DEFAULT_PORT;
}

void kin_doctor_networks(kin_doctor_report *report, const kin_doctor_options *o) {
    char hosts[MAX_ADDRESSES][KIN_ADDRESS_HOST], all[MAX_SHOWN * (KIN_ADDRESS_HOST + 2)] = "";
    int n = kin_address_own(hosts, MAX_ADDRESSES);
    (void)o;
    for (int i = 0; i < n && i < MAX_SHOWN; i++) {
        size_t len = strlen(all);
        snprintf(all + len, sizeof all - len, "%s%.63s", i ? ", " : "", hosts[i]);
    }
    if (n > 0)
        kin_doctor_add(report, KIN_FINDING_OK, "network", "addresses of this machine: %s%s", all, n > MAX_SHOWN ? ", ..." : "");
    else
        kin_doctor_mend(kin_doctor_add(report, KIN_FINDING_NOTE, "network", "no network is up: kin runs on this machine only"),
                        "ip addr");
}

// ---- the search for heads: this process answers itself, with a random key

typedef struct search {
    uv_loop_t loop;
    uv_timer_t timer;
    kin_discovery *asks;
    kin_proto_id id;
    int n_asked;
    bool is_found;
} search;

static void on_found(void *user, const kin_beacon *head, const char *address) {
    search *s = user;
    (void)head, (void)address;
    s->is_found = true;
}

static void on_tick(uv_timer_t *timer) {
    search *s = timer->data;
    kin_err err;
    kin_discovery_ask(s->asks, &err); // fails if the network is down; then nothing is found
    s->n_asked++;
}

static void run_search(search *s) {
    uv_timer_init(&s->loop, &s->timer);
    s->timer.data = s;
    uv_timer_start(&s->timer, on_tick, 0, ASK_MS);
    while (!s->is_found && s->n_asked <= SEARCH_MS / ASK_MS) uv_run(&s->loop, UV_RUN_ONCE);
    uv_close((uv_handle_t *)&s->timer, NULL);
}

void kin_doctor_search(kin_doctor_report *report, const kin_doctor_options *o) {
    search s = {0};
    kin_err err = {"cannot create the event loop"};
    kin_discovery *answers = NULL;
    kin_discovery_options d = {.port = o->search_port ? o->search_port : KIN_DISCOVERY_PORT, .only = o->net.listen};
    if (uv_loop_init(&s.loop) != 0) return;
    uv_random(NULL, NULL, d.key, sizeof d.key, 0, NULL);
    uv_random(NULL, NULL, s.id.bytes, sizeof s.id.bytes, 0, NULL);
    kin_discovery_self self = {.id = s.id, .name = "doctor", .port = head_port(o)};
    int rc = kin_discovery_answer(&answers, &s.loop, &d, &self, &err);
    if (rc == 0) rc = kin_discovery_search(&s.asks, &s.loop, &d, on_found, &s, &err);
    if (rc == 0) run_search(&s);
    kin_discovery_close(s.asks);
    kin_discovery_close(answers);
    while (uv_run(&s.loop, UV_RUN_NOWAIT)) continue;
    kin_assert(uv_loop_close(&s.loop) == 0);
    if (s.is_found)
        kin_doctor_add(report, KIN_FINDING_OK, "search", "multicast or broadcast works: devices find heads automatically");
    else
        kin_doctor_mend(kin_doctor_add(report, KIN_FINDING_NOTE, "search", "%s: devices need the head's address",
                                       rc == 0 ? "neither multicast nor broadcast works" : err.text),
                        "kin join HEAD");
}

// ---- firewall, ports

static bool has_ufw(const kin_doctor_options *o) {
    char path[KIN_DOCTOR_PATH];
    uint8_t *bytes;
    size_t n;
    if (kin_whole_file_read(kin_doctor_path(o, "/etc/ufw/ufw.conf", path), MAX_CONF, &bytes, &n, NULL) != 0) return false;
    bool is_on = strncmp((char *)bytes, "ENABLED=yes", 11) == 0 || strstr((char *)bytes, "\nENABLED=yes");
    free(bytes);
    return is_on;
}

void kin_doctor_firewall(kin_doctor_report *report, const kin_doctor_options *o) {
    char path[KIN_DOCTOR_PATH];
    unsigned tcp = head_port(o), udp = KIN_DISCOVERY_PORT;
    static const char text[] =
        "%s is on: a head needs TCP port %u and UDP port %u open; devices with closed ports are reached through the head";
    if (has_ufw(o))
        kin_doctor_mend(kin_doctor_add(report, KIN_FINDING_NOTE, "firewall", text, "ufw", tcp, udp),
                        "sudo ufw allow %u/tcp && sudo ufw allow %u/udp", tcp, udp);
    else if (access(kin_doctor_path(o, "/run/firewalld", path), F_OK) == 0)
        kin_doctor_mend(kin_doctor_add(report, KIN_FINDING_NOTE, "firewall", text, "firewalld", tcp, udp),
                        "sudo firewall-cmd --add-port=%u/tcp --add-port=%u/udp", tcp, udp);
    else
        kin_doctor_add(report, KIN_FINDING_OK, "firewall", "neither ufw nor firewalld is on");
}

// Returns 0 if the port is free, else the errno.
static int try_port(uint16_t port, bool is_local) {
    struct sockaddr_in at = {
        .sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(is_local ? INADDR_LOOPBACK : INADDR_ANY)};
    int one = 1, fd = socket(AF_INET, SOCK_STREAM, 0), why = 0;
    if (fd < 0) return errno;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (bind(fd, (struct sockaddr *)&at, sizeof at) != 0 || listen(fd, 1) != 0) why = errno;
    close(fd);
    return why;
}

void kin_doctor_ports(kin_doctor_report *report, const kin_doctor_options *o) {
    int why = try_port(head_port(o), false), why_http = try_port(o->http_port, true);
    if (why != 0)
        kin_doctor_mend(kin_doctor_add(report, KIN_FINDING_NOTE, "ports", "TCP port %u of the head: %s (perhaps a running head)",
                                       (unsigned)head_port(o), strerror(why)),
                        "kin status");
    if (why_http != 0)
        kin_doctor_mend(kin_doctor_add(report, KIN_FINDING_NOTE, "ports", "TCP port %u of kin serve: %s", (unsigned)o->http_port,
                                       strerror(why_http)),
                        "kin serve --port %u", o->http_port + 1u);
    if (why == 0 && why_http == 0)
        kin_doctor_add(report, KIN_FINDING_OK, "ports", "%u (a head) and %u (kin serve) are free", (unsigned)head_port(o),
                       (unsigned)o->http_port);
}

// ---- the cluster

// Limits the question to the head by a thread, since the head may hang.
typedef struct limit {
    uv_mutex_t mutex;
    uv_cond_t cond;
    bool is_over;
    atomic_bool stop;
} limit;

static void watch(void *arg) {
    limit *l = arg;
    uint64_t until = uv_hrtime() + CLUSTER_MS * UINT64_C(1000000);
    uv_mutex_lock(&l->mutex);
    while (!l->is_over && uv_hrtime() < until) uv_cond_timedwait(&l->cond, &l->mutex, until - uv_hrtime() + 1000000);
    uv_mutex_unlock(&l->mutex);
    atomic_store(&l->stop, true);
}

static void report_head(kin_doctor_report *report, const char *text) {
    json_t *all = json_loads(text, 0, NULL);
    const json_t *head = json_object_get(all, "head"), *devices = json_object_get(all, "devices");
    const char *name = json_string_value(json_object_get(head, "name"));
    size_t n = json_array_size(devices);
    kin_doctor_add(report, KIN_FINDING_OK, "cluster", "the head '%.60s' is running with %zu device%s", name ? name : "?", n,
                   n == 1 ? "" : "s");
    for (size_t i = 0; i < n; i++) {
        const json_t *d = json_array_get(devices, i);
        const char *why = json_string_value(json_object_get(d, "last_error")),
                   *who = json_string_value(json_object_get(d, "name"));
        if (why && why[0])
            kin_doctor_mend(kin_doctor_add(report, KIN_FINDING_NOTE, "cluster", "%.60s: %s", who ? who : "?", why), "kin status");
    }
    json_decref(all);
}

static int ask_head(char **text, const kin_doctor_options *o, kin_key key, kin_err *err) {
    kin_identity self;
    limit l = {.is_over = false};
    uv_thread_t thread;
    if (kin_identity_open_visitor(&self, &o->net, err) != 0) return KIN_FAIL;
    kin_status_client_options so = {.id = self.id,
                                    .name = self.name,
                                    .version = KIN_VERSION,
                                    .key = key,
                                    .port = head_port(o),
                                    .n_reports = 1,
                                    .stop = &l.stop};
    uv_mutex_init(&l.mutex);
    uv_cond_init(&l.cond);
    int rc = uv_thread_create(&thread, watch, &l) == 0 ? 0 : kin_err_set(err, "cannot start a thread");
    if (rc == 0) {
        rc = kin_status_client_run(&so, text, err);
        uv_mutex_lock(&l.mutex);
        l.is_over = true;
        uv_cond_signal(&l.cond);
        uv_mutex_unlock(&l.mutex);
        uv_thread_join(&thread);
    }
    uv_cond_destroy(&l.cond);
    uv_mutex_destroy(&l.mutex);
    kin_key_wipe(&so.key);
    return rc;
}

void kin_doctor_cluster(kin_doctor_report *report, const kin_doctor_options *o) {
    char path[KIN_DOCTOR_PATH], *text = NULL;
    const char *file = o->net.key_file ? o->net.key_file : kin_key_default_path(path, sizeof path);
    kin_key key;
    kin_err err = {""};
    if (!file || !kin_key_is_there(file)) {
        kin_doctor_mend(kin_doctor_add(report, KIN_FINDING_NOTE, "cluster",
                                       "this machine is in no cluster yet: start a head, or join one as a device"),
                        "kin chat --cluster, or: kin join");
        return;
    }
    if (kin_key_load(&key, file, &err) != 0) {
        kin_doctor_mend(kin_doctor_add(report, KIN_FINDING_PROBLEM, "cluster", "%.300s", err.text), "kin join --ask-code");
        return;
    }
    int rc = ask_head(&text, o, key, &err);
    kin_key_wipe(&key);
    if (rc == 0)
        report_head(report, text);
    else
        kin_doctor_mend(kin_doctor_add(report, KIN_FINDING_NOTE, "cluster", "this machine has a key, but no head is running"),
                        "kin chat --cluster, on the machine with the model");
    free(text);
}
