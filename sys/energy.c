#include "sys/energy.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>

#include "base/clock.h"

static const double IDLE_W = 4, BUSY_W = 15, READING_W = 2, READING_BYTES_S = 250e6; // see the header
enum { MAX_PACKAGES = 16, MAX_SUBZONES = 4, DISK_BLOCK = 512 };

static bool read_number(const char *zone, const char *name, uint64_t *out) {
    char path[512];
    snprintf(path, sizeof path, "%s/%s", zone, name);
    FILE *f = fopen(path, "re");
    if (!f) return false;
    bool is_read = fscanf(f, "%" SCNu64, out) == 1;
    fclose(f);
    return is_read;
}

// False also if the zone has no name that this process can read.
static bool is_named(const char *zone, const char *beginning) {
    char path[512], name[32] = "";
    snprintf(path, sizeof path, "%s/name", zone);
    FILE *f = fopen(path, "re");
    if (!f) return false;
    if (!fgets(name, sizeof name, f)) name[0] = '\0';
    fclose(f);
    return strncmp(name, beginning, strlen(beginning)) == 0;
}

static void add_zone(kin_energy *e, const char *zone, const char *beginning) {
    const int n = e->n_zones;
    if (n == KIN_ENERGY_MAX_ZONES || !is_named(zone, beginning)) return;
    if (read_number(zone, "energy_uj", &e->zones_uj[n]) && read_number(zone, "max_energy_range_uj", &e->wraps_uj[n]))
        e->n_zones++;
}

// Packages, which contain their cores, and the memory beside them. A zone psys would count both again.
static void read_zones(kin_energy *e, const char *folder) {
    char zone[256];
    for (int i = 0; i < MAX_PACKAGES; i++) {
        snprintf(zone, sizeof zone, "%s/intel-rapl:%d", folder, i);
        add_zone(e, zone, "package");
        for (int k = 0; k < MAX_SUBZONES; k++) {
            snprintf(zone, sizeof zone, "%s/intel-rapl:%d:%d", folder, i, k);
            add_zone(e, zone, "dram");
        }
    }
}

static double seconds_of(const struct timeval *t) {
    return (double)t->tv_sec + (double)t->tv_usec / 1e6;
}

void kin_energy_read(kin_energy *now, const char *folder) {
    struct rusage usage;
    *now = (kin_energy){.wall_s = kin_clock_ms(0, kin_clock_now()) / 1e3};
    read_zones(now, folder);
    getrusage(RUSAGE_SELF, &usage);
    now->busy_s = seconds_of(&usage.ru_utime) + seconds_of(&usage.ru_stime);
    now->read_bytes = (uint64_t)usage.ru_inblock * DISK_BLOCK;
}

double kin_energy_between(const kin_energy *a, const kin_energy *b, bool *is_measured) {
    double sum_uj = 0;
    *is_measured = a->n_zones > 0 && a->n_zones == b->n_zones;
    if (!*is_measured)
        return IDLE_W * (b->wall_s - a->wall_s) + BUSY_W * (b->busy_s - a->busy_s) +
               READING_W * (double)(b->read_bytes - a->read_bytes) / READING_BYTES_S;
    for (int i = 0; i < a->n_zones; i++) {
        const uint64_t wrap = b->zones_uj[i] < a->zones_uj[i] ? b->wraps_uj[i] : 0;
        sum_uj += (double)(b->zones_uj[i] + wrap - a->zones_uj[i]);
    }
    return sum_uj / 1e6;
}
