#include "net/discovery.h"

#include <arpa/inet.h>
#include <net/if.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/rand.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "pure/proto/label.h"

enum {
    N_NONCES = 4,         // number of recent questions whose answers are accepted
    LOOK_AGAIN_MS = 5000, // interval for finding new interfaces
    BURST_SECONDS = 2,    // burst allowance, in seconds of the rate
    DATAGRAM_BYTES = 256, // large enough to detect oversized datagrams
    HANDLES = 3,          // v4, v6, timer
};

// A rate limit per second, with a burst allowance.
typedef struct rate {
    uint64_t milli, at_ms; // milli: thousandths of an event available
} rate;

struct kin_discovery {
    uv_udp_t v4, v6;
    uv_timer_t timer; // the head's: for finding new interfaces
    bool has_v4, has_v6;
    int n_open;                     // handles not yet closed
    uint8_t key[KIN_DISCOVERY_KEY]; // derived
    uint16_t port;
    char only[INET6_ADDRSTRLEN]; // "": all
    uint8_t buffer[DATAGRAM_BYTES];
    kin_discovery_stats stats;
    // head only
    bool answers;
    kin_beacon self;
    rate checks, sends;
    // device only
    kin_discovery_found found;
    void *user;
    uint8_t nonces[N_NONCES][KIN_BEACON_NONCE];
    int n_asked;
};

// ---- key and rate

static int derive_key(uint8_t to[KIN_DISCOVERY_KEY], const uint8_t from[KIN_DISCOVERY_KEY], kin_err *err) {
    static const char purpose[] = "kin discovery 1";
    unsigned n = KIN_DISCOVERY_KEY;
    const uint8_t *text = (const uint8_t *)purpose;
    if (!HMAC(EVP_sha256(), from, KIN_DISCOVERY_KEY, text, sizeof purpose - 1, to, &n)) {
        return kin_err_set(err, "discovery: OpenSSL cannot compute HMAC-SHA256");
    }
    return 0;
}

static int sign(void *user, const uint8_t *bytes, size_t n, uint8_t tag[KIN_BEACON_TAG]) {
    const kin_discovery *d = user;
    uint8_t full[EVP_MAX_MD_SIZE];
    unsigned n_full = sizeof full;
    if (!HMAC(EVP_sha256(), d->key, sizeof d->key, bytes, n, full, &n_full)) return KIN_FAIL;
    memcpy(tag, full, KIN_BEACON_TAG);
    return 0;
}

static bool may(rate *r, uint64_t now_ms, uint64_t per_second) {
    uint64_t most = BURST_SECONDS * per_second * 1000, gained = (now_ms - r->at_ms) * per_second;
    r->milli = gained >= most || r->milli + gained > most ? most : r->milli + gained;
    r->at_ms = now_ms;
    if (r->milli < 1000) return false;
    r->milli -= 1000;
    return true;
}

// ---- interfaces

static bool is_used(const kin_discovery *d, const uv_interface_address_t *interface) {
    if (!d->only[0]) return true;
    char text[INET6_ADDRSTRLEN];
    bool is_v4 = interface->address.address4.sin_family == AF_INET;
    int rc = is_v4 ? uv_ip4_name(&interface->address.address4, text, sizeof text)
                   : uv_ip6_name(&interface->address.address6, text, sizeof text);
    return rc == 0 && strcmp(text, d->only) == 0;
}

// An interface with several IPv6 addresses is used once, because only its index matters.
static bool came_before(const uv_interface_address_t *list, int i) {
    for (int j = 0; j < i; j++) {
        if (list[j].address.address6.sin6_family == AF_INET6 && strcmp(list[j].name, list[i].name) == 0) return true;
    }
    return false;
}

static void join4(kin_discovery *d, const uv_interface_address_t *interface) {
    char address[INET_ADDRSTRLEN];
    if (!d->has_v4 || uv_ip4_name(&interface->address.address4, address, sizeof address) != 0) return;
    uv_udp_set_membership(&d->v4, KIN_DISCOVERY_GROUP4, address, UV_JOIN_GROUP); // fails if it is already a member
}

static void join6(kin_discovery *d, const uv_interface_address_t *interface) {
    char zone[IF_NAMESIZE + 4];
    snprintf(zone, sizeof zone, "::%%%s", interface->name);
    if (d->has_v6) uv_udp_set_membership(&d->v6, KIN_DISCOVERY_GROUP6, zone, UV_JOIN_GROUP);
}

static void join_all(kin_discovery *d) {
    uv_interface_address_t *list;
    int n;
    if (uv_interface_addresses(&list, &n) != 0) return;
    for (int i = 0; i < n; i++) {
        if (!is_used(d, &list[i])) continue;
        if (list[i].address.address4.sin_family == AF_INET)
            join4(d, &list[i]);
        else
            join6(d, &list[i]);
    }
    uv_free_interface_addresses(list, n);
}

static void rejoin_groups(uv_timer_t *timer) {
    join_all(timer->data);
}

// ---- sending

static bool send_to(uv_udp_t *udp, const uint8_t *bytes, const struct sockaddr *to) {
    uv_buf_t buf = uv_buf_init((char *)(uintptr_t)bytes, KIN_BEACON_BYTES);
    return uv_udp_try_send(udp, &buf, 1, to) == KIN_BEACON_BYTES;
}

static int ask4(kin_discovery *d, const uv_interface_address_t *interface, const uint8_t *question) {
    char address[INET_ADDRSTRLEN];
    if (!d->has_v4 || uv_ip4_name(&interface->address.address4, address, sizeof address) != 0) return 0;
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(d->port)};
    int n_sent = 0;
    if (uv_inet_pton(AF_INET, KIN_DISCOVERY_GROUP4, &to.sin_addr) == 0 && uv_udp_set_multicast_interface(&d->v4, address) == 0) {
        n_sent += send_to(&d->v4, question, (struct sockaddr *)&to);
    }
    in_addr_t mask = interface->netmask.netmask4.sin_addr.s_addr;
    to.sin_addr.s_addr = interface->address.address4.sin_addr.s_addr | ~mask;
    if (mask != UINT32_MAX) n_sent += send_to(&d->v4, question, (struct sockaddr *)&to);
    return n_sent;
}

static int ask6(kin_discovery *d, const uv_interface_address_t *interface, const uint8_t *question) {
    struct sockaddr_in6 to = {
        .sin6_family = AF_INET6, .sin6_port = htons(d->port), .sin6_scope_id = if_nametoindex(interface->name)};
    if (!d->has_v6 || to.sin6_scope_id == 0 || uv_inet_pton(AF_INET6, KIN_DISCOVERY_GROUP6, &to.sin6_addr) != 0) return 0;
    return send_to(&d->v6, question, (struct sockaddr *)&to);
}

int kin_discovery_ask(kin_discovery *d, kin_err *err) {
    kin_assert(!d->answers);
    kin_beacon beacon = {.kind = KIN_BEACON_SEARCH};
    uint8_t question[KIN_BEACON_BYTES];
    if (RAND_bytes(beacon.nonce, sizeof beacon.nonce) != 1) return kin_err_set(err, "discovery: cannot get random numbers");
    if (kin_beacon_encode(question, &beacon, sign, d, err) != 0) return KIN_FAIL;
    memcpy(d->nonces[d->n_asked++ % N_NONCES], beacon.nonce, sizeof beacon.nonce);

    uv_interface_address_t *list;
    int n, n_sent = 0, rc = uv_interface_addresses(&list, &n);
    if (rc != 0) return kin_err_set(err, "discovery: cannot list the network interfaces: %s", uv_strerror(rc));
    for (int i = 0; i < n; i++) {
        if (!is_used(d, &list[i])) continue;
        if (list[i].address.address4.sin_family == AF_INET)
            n_sent += ask4(d, &list[i], question);
        else if (!came_before(list, i))
            n_sent += ask6(d, &list[i], question);
    }
    uv_free_interface_addresses(list, n);
    return n_sent > 0 ? 0 : kin_err_set(err, "discovery: cannot send the query on any network");
}

// ---- receiving

static void answer_question(kin_discovery *d, uv_udp_t *udp, const kin_beacon *question, const struct sockaddr *from) {
    uint8_t bytes[KIN_BEACON_BYTES];
    kin_beacon beacon = d->self;
    memcpy(beacon.nonce, question->nonce, sizeof beacon.nonce);
    if (!may(&d->sends, uv_now(udp->loop), KIN_DISCOVERY_ANSWERS)) return;
    if (kin_beacon_encode(bytes, &beacon, sign, d, NULL) != 0) return;
    d->stats.answered += send_to(udp, bytes, from);
}

static bool was_asked(const kin_discovery *d, const kin_beacon *head) {
    for (int i = 0; i < N_NONCES && i < d->n_asked; i++) {
        if (kin_beacon_answers(head, d->nonces[i])) return true;
    }
    return false;
}

static void report_found(kin_discovery *d, const kin_beacon *head, const struct sockaddr *from) {
    char address[INET6_ADDRSTRLEN + 1 + IF_NAMESIZE];
    if (uv_ip_name(from, address, INET6_ADDRSTRLEN) != 0) return;
    const struct sockaddr_in6 *v6 = (const struct sockaddr_in6 *)(const void *)from;
    bool needs_zone = from->sa_family == AF_INET6 && IN6_IS_ADDR_LINKLOCAL(&v6->sin6_addr);
    char zone[IF_NAMESIZE];
    if (needs_zone && if_indextoname(v6->sin6_scope_id, zone)) {
        size_t n = strlen(address);
        snprintf(address + n, sizeof address - n, "%%%s", zone);
    }
    d->found(d->user, head, address);
}

static void received(uv_udp_t *udp, ssize_t n, const uv_buf_t *buf, const struct sockaddr *from, unsigned flags) {
    kin_discovery *d = udp->data;
    kin_beacon beacon;
    if (n <= 0 || !from || (flags & UV_UDP_PARTIAL)) return;
    d->stats.heard++;
    if (!may(&d->checks, uv_now(udp->loop), KIN_DISCOVERY_CHECKS)) return;
    if (kin_beacon_decode((const uint8_t *)buf->base, (size_t)n, &beacon, sign, d, NULL) != 0) return;
    d->stats.trusted++;
    if (d->answers && beacon.kind == KIN_BEACON_SEARCH) answer_question(d, udp, &beacon, from);
    if (!d->answers && was_asked(d, &beacon)) report_found(d, &beacon, from);
}

static void give_buffer(uv_handle_t *handle, size_t wanted, uv_buf_t *buf) {
    (void)wanted;
    kin_discovery *d = handle->data;
    *buf = uv_buf_init((char *)d->buffer, sizeof d->buffer);
}

// ---- opening and closing

static void closed(uv_handle_t *handle) {
    kin_discovery *d = handle->data;
    if (--d->n_open > 0) return;
    OPENSSL_cleanse(d->key, sizeof d->key);
    free(d);
}

void kin_discovery_close(kin_discovery *d) {
    if (!d) return;
    uv_close((uv_handle_t *)&d->v4, closed);
    uv_close((uv_handle_t *)&d->v6, closed);
    uv_close((uv_handle_t *)&d->timer, closed);
}

static int listen_on(uv_udp_t *udp, const char *any, uint16_t port, bool is_v6) {
    struct sockaddr_storage address;
    int rc =
        is_v6 ? uv_ip6_addr(any, port, (struct sockaddr_in6 *)&address) : uv_ip4_addr(any, port, (struct sockaddr_in *)&address);
    unsigned flags = (is_v6 ? UV_UDP_IPV6ONLY : 0) | (port ? UV_UDP_REUSEADDR : 0); // several heads may run on one machine
    if (rc == 0) rc = uv_udp_bind(udp, (struct sockaddr *)&address, flags);
    if (rc == 0) rc = uv_udp_recv_start(udp, give_buffer, received);
    return rc;
}

// port: to listen on, 0: any. Succeeds if either IPv6 or IPv4 works, because a machine may lack one of them.
static int open_both(kin_discovery **out, uv_loop_t *loop, const kin_discovery_options *options, uint16_t port, kin_err *err) {
    *out = NULL;
    kin_discovery *d = calloc(1, sizeof *d);
    if (!d) return kin_err_set(err, "discovery: out of memory");
    if (derive_key(d->key, options->key, err) != 0) goto fail;
    if (options->only && strlen(options->only) >= sizeof d->only) {
        kin_err_set(err, "discovery: '%.60s' is not a numeric address", options->only);
        goto fail;
    }
    snprintf(d->only, sizeof d->only, "%s", options->only ? options->only : "");
    d->port = options->port;
    d->n_open = HANDLES;
    uv_udp_init(loop, &d->v4); // none of these three can fail without a socket
    uv_udp_init(loop, &d->v6);
    uv_timer_init(loop, &d->timer);
    d->v4.data = d->v6.data = d->timer.data = d;
    int rc4 = listen_on(&d->v4, "0.0.0.0", port, false), rc6 = listen_on(&d->v6, "::", port, true);
    d->has_v4 = rc4 == 0;
    d->has_v6 = rc6 == 0;
    if (!d->has_v4 && !d->has_v6) {
        kin_discovery_close(d);
        return kin_err_set(err, "discovery: cannot open UDP port %u: %s", (unsigned)port, uv_strerror(rc4));
    }
    if (!d->has_v4)
        kin_log(KIN_LOG_WARN, "discovery: not using IPv4: cannot open UDP port %u: %s", (unsigned)port, uv_strerror(rc4));
    if (!d->has_v6)
        kin_log(KIN_LOG_DEBUG, "discovery: not using IPv6: cannot open UDP port %u: %s", (unsigned)port, uv_strerror(rc6));
    *out = d;
    return 0;
fail:
    OPENSSL_cleanse(d->key, sizeof d->key);
    free(d);
    return KIN_FAIL;
}

int kin_discovery_answer(kin_discovery **out, uv_loop_t *loop, const kin_discovery_options *options,
                         const kin_discovery_self *self, kin_err *err) {
    kin_assert(self->port != 0);
    if (open_both(out, loop, options, options->port, err) != 0) return KIN_FAIL;
    kin_discovery *d = *out;
    d->answers = true;
    d->self = (kin_beacon){.kind = KIN_BEACON_ANNOUNCE, .id = self->id, .port = self->port, .features = self->features};
    kin_label_set(d->self.name, sizeof d->self.name - 1, self->name);
    join_all(d);
    uv_timer_start(&d->timer, rejoin_groups, LOOK_AGAIN_MS, LOOK_AGAIN_MS);
    return 0;
}

int kin_discovery_search(kin_discovery **out, uv_loop_t *loop, const kin_discovery_options *options, kin_discovery_found found,
                         void *user, kin_err *err) {
    if (open_both(out, loop, options, 0, err) != 0) return KIN_FAIL;
    kin_discovery *d = *out;
    d->found = found;
    d->user = user;
    if (d->has_v4) uv_udp_set_broadcast(&d->v4, 1);
    return 0;
}

kin_discovery_stats kin_discovery_stats_now(const kin_discovery *d) {
    return d->stats;
}
