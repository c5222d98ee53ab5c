// Addresses of processes: numbers and ports of IPv4 and IPv6, as the system has them and as people read them.
//
// Plain data and pure functions: any thread. Names are not looked up here.
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

enum { KIN_ADDRESS_HOST = 64, KIN_ADDRESS_TEXT = 80, KIN_ADDRESS_NETWORK = 16 }; // bytes, of texts with the NUL

typedef struct kin_address {
    struct sockaddr_storage at;
} kin_address;

// "192.168.1.7", "fe80::1%eth0"; false for anything else, a name too.
bool kin_address_parse(kin_address *out, const char *numbers, uint16_t port);

// What getaddrinfo found: the first n_max of the two families, with this port. Returns how many.
int kin_address_take(kin_address *out, int n_max, const struct addrinfo *list, uint16_t port);

uint16_t kin_address_port(const kin_address *address);

// "192.168.1.7" also for an IPv4 address that is mapped into IPv6; a link-local one with this machine's name for the link,
// "fe80::1%eth0".
void kin_address_host(const kin_address *address, char host[KIN_ADDRESS_HOST]);

// "192.168.1.7:4100", "[fe80::1]:4100".
void kin_address_format(const kin_address *address, char text[KIN_ADDRESS_TEXT]);

// "127.0.0.1", "::1": this machine, whoever reads it.
bool kin_address_is_loopback(const char *numbers);

// What others on this machine's networks can connect to as it is: neither loopback nor link-local. Returns how many, at most
// n_max.
int kin_address_own(char (*hosts)[KIN_ADDRESS_HOST], int n_max);

// Equal for what is most likely one peer: the IPv4 address, or the /64 that somebody has in IPv6.
void kin_address_network(const kin_address *address, uint8_t network[KIN_ADDRESS_NETWORK]);
