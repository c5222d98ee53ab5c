// Socket addresses: numeric IPv4 and IPv6 addresses with ports, in binary and in text form.
//
// Plain data and pure functions: any thread. Names are not resolved here.
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

enum { KIN_ADDRESS_HOST = 64, KIN_ADDRESS_TEXT = 80, KIN_ADDRESS_NETWORK = 16 }; // bytes, of texts with the NUL

typedef struct kin_address {
    struct sockaddr_storage at;
} kin_address;

// Parses "192.168.1.7", "fe80::1%eth0"; returns false for anything else, including names.
bool kin_address_parse(kin_address *out, const char *numbers, uint16_t port);

// Copies the first n_max IPv4 and IPv6 addresses from a getaddrinfo result, with this port. Returns how many.
int kin_address_copy_list(kin_address *out, int n_max, const struct addrinfo *list, uint16_t port);

uint16_t kin_address_port(const kin_address *address);

// Formats the host: "192.168.1.7" also for an IPv4 address mapped into IPv6; a link-local address gets this machine's interface
// name, "fe80::1%eth0".
void kin_address_host(const kin_address *address, char host[KIN_ADDRESS_HOST]);

// "192.168.1.7:4100", "[fe80::1]:4100".
void kin_address_format(const kin_address *address, char text[KIN_ADDRESS_TEXT]);

// True for "127.0.0.1" and "::1", which denote this machine wherever they are read.
bool kin_address_is_loopback(const char *numbers);

// Lists addresses of this machine that others on its networks can connect to: neither loopback nor link-local. Returns how many,
// at most n_max.
int kin_address_own(char (*hosts)[KIN_ADDRESS_HOST], int n_max);

// Computes a key that is equal for what is most likely one peer: the IPv4 address, or the /64 prefix in IPv6.
void kin_address_network(const kin_address *address, uint8_t network[KIN_ADDRESS_NETWORK]);
