#include "net/address.h"

#include <netdb.h>
#include <stdio.h>
#include <string.h>

bool kin_address_parse(kin_address *out, const char *numbers, uint16_t port) {
    memset(out, 0, sizeof *out);
    return uv_ip4_addr(numbers, port, (struct sockaddr_in *)&out->at) == 0 ||
           uv_ip6_addr(numbers, port, (struct sockaddr_in6 *)&out->at) == 0;
}

int kin_address_copy_list(kin_address *out, int n_max, const struct addrinfo *list, uint16_t port) {
    int n = 0;
    for (const struct addrinfo *a = list; a && n < n_max; a = a->ai_next) {
        if (a->ai_family != AF_INET && a->ai_family != AF_INET6) continue;
        memset(&out[n], 0, sizeof out[n]);
        memcpy(&out[n].at, a->ai_addr, a->ai_addrlen);
        if (a->ai_family == AF_INET)
            ((struct sockaddr_in *)&out[n].at)->sin_port = htons(port);
        else
            ((struct sockaddr_in6 *)&out[n].at)->sin6_port = htons(port);
        n++;
    }
    return n;
}

uint16_t kin_address_port(const kin_address *a) {
    return ntohs(a->at.ss_family == AF_INET6 ? ((const struct sockaddr_in6 *)&a->at)->sin6_port
                                             : ((const struct sockaddr_in *)&a->at)->sin_port);
}

// Returns the IPv4 address mapped into an IPv6 address (RFC 4291: ten zeros, two 0xff, the address), or NULL.
static const uint8_t *v4_inside(const kin_address *a) {
    static const uint8_t mapped[12] = {[10] = 0xff, [11] = 0xff};
    const struct sockaddr_in6 *v6 = (const struct sockaddr_in6 *)&a->at;
    if (a->at.ss_family == AF_INET6)
        return memcmp(&v6->sin6_addr, mapped, sizeof mapped) == 0 ? (const uint8_t *)&v6->sin6_addr + sizeof mapped : NULL;
    return (const uint8_t *)&((const struct sockaddr_in *)&a->at)->sin_addr;
}

static bool is_link_local(const struct sockaddr_in6 *v6) {
    return v6->sin6_addr.s6_addr[0] == 0xfe && (v6->sin6_addr.s6_addr[1] & 0xc0) == 0x80;
}

void kin_address_host(const kin_address *a, char host[KIN_ADDRESS_HOST]) {
    const uint8_t *v4 = v4_inside(a);
    int rc = v4 ? uv_inet_ntop(AF_INET, v4, host, KIN_ADDRESS_HOST)
                : uv_inet_ntop(AF_INET6, &((const struct sockaddr_in6 *)&a->at)->sin6_addr, host, KIN_ADDRESS_HOST);
    if (rc != 0) snprintf(host, KIN_ADDRESS_HOST, "?");
    const struct sockaddr_in6 *v6 = (const struct sockaddr_in6 *)&a->at;
    char zone[UV_IF_NAMESIZE];
    size_t n = strlen(host), n_zone = sizeof zone;
    if (v4 || !is_link_local(v6) || v6->sin6_scope_id == 0 || uv_if_indextoname(v6->sin6_scope_id, zone, &n_zone) != 0) return;
    snprintf(host + n, KIN_ADDRESS_HOST - n, "%%%s", zone);
}

void kin_address_format(const kin_address *a, char text[KIN_ADDRESS_TEXT]) {
    char host[KIN_ADDRESS_HOST];
    kin_address_host(a, host);
    snprintf(text, KIN_ADDRESS_TEXT, v4_inside(a) ? "%s:%u" : "[%s]:%u", host, kin_address_port(a));
}

static bool is_link_local4(const struct sockaddr_in *v4) { // 169.254/16
    return ntohl(v4->sin_addr.s_addr) >> 16 == 0xa9fe;
}

bool kin_address_is_loopback(const char *numbers) {
    kin_address a;
    if (!kin_address_parse(&a, numbers, 0)) return false;
    const uint8_t *v4 = v4_inside(&a);
    return v4 ? v4[0] == 127 : IN6_IS_ADDR_LOOPBACK(&((const struct sockaddr_in6 *)&a.at)->sin6_addr);
}

int kin_address_own(char (*hosts)[KIN_ADDRESS_HOST], int n_max) {
    uv_interface_address_t *all;
    int n_all, n = 0;
    if (uv_interface_addresses(&all, &n_all) != 0) return 0;
    for (int i = 0; i < n_all && n < n_max; i++) {
        kin_address a = {0};
        if (all[i].is_internal) continue;
        if (all[i].address.address4.sin_family == AF_INET && !is_link_local4(&all[i].address.address4))
            memcpy(&a.at, &all[i].address.address4, sizeof all[i].address.address4);
        else if (all[i].address.address6.sin6_family == AF_INET6 && !is_link_local(&all[i].address.address6))
            memcpy(&a.at, &all[i].address.address6, sizeof all[i].address.address6);
        else
            continue;
        kin_address_host(&a, hosts[n++]);
    }
    uv_free_interface_addresses(all, n_all);
    return n;
}

void kin_address_network(const kin_address *a, uint8_t network[KIN_ADDRESS_NETWORK]) {
    const uint8_t *v4 = v4_inside(a);
    memset(network, 0, KIN_ADDRESS_NETWORK);
    network[KIN_ADDRESS_NETWORK - 1] = v4 ? 4 : 6;
    if (v4)
        memcpy(network, v4, 4);
    else
        memcpy(network, &((const struct sockaddr_in6 *)&a->at)->sin6_addr, 8);
}
