#include "observe/facts_links.h"

#include <stdio.h>
#include <string.h>

#include "observe/facts_fields.h"

static const kin_field link_fields[] = {
    {KIN_FIELD_NUMBER, "rtt_s", offsetof(kin_link_facts, rtt_s), true, 0},
    {KIN_FIELD_NUMBER, "bytes_per_s", offsetof(kin_link_facts, bytes_s), true, 0},
    {0},
};

static const kin_field links_fields[] = {
    {KIN_FIELD_INSIDE, "default", 0, false, 0},
    {KIN_FIELD_INSIDE, "pairs", 0, false, 0},
    {0},
};

typedef struct pair {
    char from[KIN_FACTS_MAX_NAME], to[KIN_FACTS_MAX_NAME];
    kin_link_facts link;
    bool one_way;
} pair;

// ---- reading

// Missing values are the default's.
static int read_pair(const json_t *json, const kin_link_facts *usual, pair *p, kin_err *err) {
    const kin_field fields[] = {
        {KIN_FIELD_NAME, "from", offsetof(pair, from), true, 0},
        {KIN_FIELD_NAME, "to", offsetof(pair, to), true, 0},
        {KIN_FIELD_NUMBER, "rtt_s", offsetof(pair, link.rtt_s), false, usual->rtt_s},
        {KIN_FIELD_NUMBER, "bytes_per_s", offsetof(pair, link.bytes_s), false, usual->bytes_s},
        {KIN_FIELD_FLAG, "one_way", offsetof(pair, one_way), false, 0},
        {0},
    };
    *p = (pair){0};
    return kin_fields_read(json, fields, p, err);
}

static int find_device(const kin_facts *facts, const char *name, kin_err *err) {
    for (int i = 0; i < facts->n_device; i++) {
        if (strcmp(facts->devices[i].name, name) == 0) return i;
    }
    return kin_err_set(err, "unknown device '%s'", name);
}

static int set_pair(const json_t *json, const kin_link_facts *usual, kin_facts *facts, kin_err *err) {
    pair p;
    if (read_pair(json, usual, &p, err) != 0) return KIN_FAIL;
    int from = find_device(facts, p.from, err), to = from < 0 ? KIN_FAIL : find_device(facts, p.to, err);
    if (to < 0) return KIN_FAIL;
    if (from == to) return kin_err_set(err, "'%s' has a link to itself", p.from);
    facts->links[from][to] = p.link;
    if (!p.one_way) facts->links[to][from] = p.link;
    return 0;
}

int kin_facts_links_read(const json_t *root, kin_facts *facts, kin_err *err) {
    const json_t *links, *usual_json, *pairs;
    kin_link_facts usual = {0};
    if (kin_fields_inside(root, "links", JSON_OBJECT, false, &links, err) != 0) return KIN_FAIL;
    if (!links) return 0;
    if (kin_fields_read(links, links_fields, facts, err) != 0 ||
        kin_fields_inside(links, "default", JSON_OBJECT, false, &usual_json, err) != 0 ||
        kin_fields_inside(links, "pairs", JSON_ARRAY, false, &pairs, err) != 0)
        return kin_err_prefix(err, "\"links\"");
    if (usual_json && kin_fields_read(usual_json, link_fields, &usual, err) != 0)
        return kin_err_prefix(err, "\"links\": \"default\"");
    for (int from = 0; from < facts->n_device; from++) {
        for (int to = 0; to < facts->n_device; to++) {
            if (from != to) facts->links[from][to] = usual;
        }
    }
    for (size_t i = 0; i < json_array_size(pairs); i++) {
        if (set_pair(json_array_get(pairs, i), &usual, facts, err) != 0) return kin_err_prefix(err, "\"links\": pair %zu", i + 1);
    }
    return 0;
}

// ---- writing

static bool same(const kin_link_facts *a, const kin_link_facts *b) {
    return a->rtt_s == b->rtt_s && a->bytes_s == b->bytes_s;
}

static kin_link_facts most_common(const kin_facts *facts) {
    const int n = facts->n_device;
    kin_link_facts usual = {0};
    int most = 0;
    for (int i = 0; i < n * n; i++) {
        const kin_link_facts *a = &facts->links[i / n][i % n];
        int count = 0;
        for (int j = 0; j < n * n; j++) count += i / n != i % n && j / n != j % n && same(a, &facts->links[j / n][j % n]);
        if (count > most) most = count, usual = *a;
    }
    return usual;
}

static int write_pair(json_t *pairs, const kin_facts *facts, int from, int to, bool one_way, kin_err *err) {
    json_t *json = json_pack("{s:s, s:s}", "from", facts->devices[from].name, "to", facts->devices[to].name);
    if (json && kin_fields_write(json, link_fields, &facts->links[from][to], err) == 0) {
        if (one_way) json_object_set_new(json, "one_way", json_true());
        return json_array_append_new(pairs, json);
    }
    json_decref(json);
    return kin_err_prefix(err, "\"links\": '%s' to '%s'", facts->devices[from].name, facts->devices[to].name);
}

int kin_facts_links_write(json_t *root, const kin_facts *facts, kin_err *err) {
    json_t *links = json_object(), *pairs = json_array(), *usual_json = json_object();
    kin_link_facts usual = most_common(facts);
    int rc = kin_fields_write(usual_json, link_fields, &usual, err);
    if (rc != 0) kin_err_prefix(err, "\"links\": \"default\"");
    for (int a = 0; a < facts->n_device && rc == 0; a++) {
        for (int b = a + 1; b < facts->n_device && rc == 0; b++) {
            const kin_link_facts *there = &facts->links[a][b], *back = &facts->links[b][a];
            bool alike = same(there, back);
            if (!same(there, &usual)) rc = write_pair(pairs, facts, a, b, !alike, err);
            if (rc == 0 && !alike && !same(back, &usual)) rc = write_pair(pairs, facts, b, a, true, err);
        }
    }
    json_object_set(links, "default", usual_json);
    if (json_array_size(pairs) > 0) json_object_set(links, "pairs", pairs);
    if (facts->n_device > 1) json_object_set(root, "links", links);
    json_decref(usual_json);
    json_decref(pairs);
    json_decref(links);
    return rc;
}
