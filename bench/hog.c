// hog: a program that competes for memory in a cycle: waits, allocates step by step, holds, releases, and starts again.
#include <getopt.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include "base/clock.h"
#include "base/units.h"

#define EXIT_USAGE 2
#define PAGE_BYTES 4096

static const char usage[] = "usage: hog [option...]\n"
                            "\n"
                            "Takes memory in steps, touching every page, holds it, gives it back in the same steps.\n"
                            "\n"
                            "  --bytes SIZE      in all (default: 256M)\n"
                            "  --step SIZE       at a time (default: 16M)\n"
                            "  --every-ms N      between steps (default: 100)\n"
                            "  --wait-ms N       before each cycle (default: 5000)\n"
                            "  --hold-ms N       between taking and giving (default: 5000)\n"
                            "  --cycles N        (default: 1)\n"
                            "  --trace FILE      CSV: ms since the start, bytes held\n";

typedef struct options {
    uint64_t bytes, step;
    int every_ms, wait_ms, hold_ms, n_cycles;
    const char *trace;
} options;

typedef struct hog {
    const options *o;
    uint8_t *base; // [o->bytes] address space
    uint64_t held; // the part of it in use, from the start
    FILE *trace;   // NULL: none
    kin_time begun;
} hog;

static void sleep_ms(int ms) {
    struct timespec t = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000L};
    while (nanosleep(&t, &t) != 0) {
    }
}

static void note(const hog *h) {
    if (!h->trace) return;
    fprintf(h->trace, "%.0f,%llu\n", kin_clock_ms(h->begun, kin_clock_now()), (unsigned long long)h->held);
    fflush(h->trace);
}

// Writes different bytes to every page, so that none can be merged or compressed.
static void touch(uint8_t *at, uint64_t bytes, uint64_t seed) {
    for (uint64_t i = 0; i < bytes; i += PAGE_BYTES) {
        uint64_t value = (seed + i) * 0x9e3779b97f4a7c15u;
        memcpy(at + i, &value, sizeof value);
    }
}

static void take(hog *h) {
    while (h->held < h->o->bytes) {
        uint64_t left = h->o->bytes - h->held, n = left < h->o->step ? left : h->o->step;
        touch(h->base + h->held, n, h->held);
        h->held += n;
        note(h);
        sleep_ms(h->o->every_ms);
    }
}

static void give(hog *h) {
    while (h->held > 0) {
        uint64_t n = h->held < h->o->step ? h->held : h->o->step;
        h->held -= n;
        madvise(h->base + h->held, n, MADV_DONTNEED);
        note(h);
        sleep_ms(h->o->every_ms);
    }
}

static int run(const options *o, kin_err *err) {
    hog h = {.o = o, .begun = kin_clock_now()};
    h.base = mmap(NULL, o->bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (h.base == MAP_FAILED) return kin_err_set(err, "no address space for %llu bytes", (unsigned long long)o->bytes);
    if (o->trace && !(h.trace = fopen(o->trace, "w"))) {
        munmap(h.base, o->bytes);
        return kin_err_set(err, "%s cannot be written", o->trace);
    }
    if (h.trace) fprintf(h.trace, "ms,bytes\n");
    note(&h);
    for (int i = 0; i < o->n_cycles; i++) {
        sleep_ms(o->wait_ms);
        take(&h);
        sleep_ms(o->hold_ms);
        give(&h);
    }
    if (h.trace) fclose(h.trace);
    munmap(h.base, o->bytes);
    return 0;
}

enum { OPT_BYTES = 256, OPT_STEP, OPT_EVERY, OPT_WAIT, OPT_HOLD, OPT_CYCLES, OPT_TRACE };

static const struct option all_options[] = {
    {"bytes", required_argument, NULL, OPT_BYTES},
    {"step", required_argument, NULL, OPT_STEP},
    {"every-ms", required_argument, NULL, OPT_EVERY},
    {"wait-ms", required_argument, NULL, OPT_WAIT},
    {"hold-ms", required_argument, NULL, OPT_HOLD},
    {"cycles", required_argument, NULL, OPT_CYCLES},
    {"trace", required_argument, NULL, OPT_TRACE},
    {"help", no_argument, NULL, 'h'},
    {0},
};

// Parses a size in whole pages, at least one.
static int parse_size(uint64_t *bytes, kin_err *err) {
    if (kin_size_parse(optarg, bytes, err) != 0) return KIN_FAIL;
    *bytes = (*bytes + PAGE_BYTES - 1) / PAGE_BYTES * PAGE_BYTES;
    return *bytes > 0 ? 0 : kin_err_set(err, "'%s' is no memory at all", optarg);
}

static int parse_count(int *value, kin_err *err) {
    char *end;
    long n = strtol(optarg, &end, 10);
    if (end == optarg || *end || n < 0 || n > 99999999) return kin_err_set(err, "'%s' is not a count", optarg);
    *value = (int)n;
    return 0;
}

static int apply(options *o, int opt, kin_err *err) {
    switch (opt) {
    case OPT_BYTES: return parse_size(&o->bytes, err);
    case OPT_STEP: return parse_size(&o->step, err);
    case OPT_EVERY: return parse_count(&o->every_ms, err);
    case OPT_WAIT: return parse_count(&o->wait_ms, err);
    case OPT_HOLD: return parse_count(&o->hold_ms, err);
    case OPT_CYCLES: return parse_count(&o->n_cycles, err);
    case OPT_TRACE: o->trace = optarg; return 0;
    default: return kin_err_set(err, "see hog --help");
    }
}

int main(int argc, char **argv) {
    options o = {.bytes = 256 << 20, .step = 16 << 20, .every_ms = 100, .wait_ms = 5000, .hold_ms = 5000, .n_cycles = 1};
    kin_err err;
    for (int opt; (opt = getopt_long(argc, argv, "h", all_options, NULL)) != -1;) {
        if (opt == 'h') {
            fputs(usage, stdout);
            return 0;
        }
        if (apply(&o, opt, &err) == 0) continue;
        fprintf(stderr, "hog: %s\n", err.text);
        return EXIT_USAGE;
    }
    if (optind < argc) {
        fprintf(stderr, "hog: what is '%s'?\n", argv[optind]);
        return EXIT_USAGE;
    }
    if (run(&o, &err) == 0) return 0;
    fprintf(stderr, "hog: %s\n", err.text);
    return 1;
}
