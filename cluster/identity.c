#include "cluster/identity.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/random.h>
#include <unistd.h>

#include "base/bytes.h"
#include "base/log.h"
#include "pure/proto/label.h"
#include "sys/process.h"
#include "sys/whole_file.h"

enum {
    MAX_PATH = 1024,
    MAX_PROCESSES = 16,
    MAX_TRIES = 3,
    SHORT_WAIT_MS = 300, // for a process that is about to end; after that a message says so
    LONG_WAIT_MS = 1700,
};

// ---- identity

static int split_addresses(kin_identity *self, const char *text, kin_err *err) {
    if (strlen(text) >= sizeof self->advertise_text) return kin_err_set(err, "--advertise: too long");
    strcpy(self->advertise_text, text);
    char *rest = self->advertise_text, *one;
    while ((one = strsep(&rest, ","))) {
        if (!*one) continue;
        if (self->n_advertise == KIN_PROTO_MAX_ADDRESSES)
            return kin_err_set(err, "--advertise: at most %d addresses", KIN_PROTO_MAX_ADDRESSES);
        self->advertise[self->n_advertise++] = one;
    }
    return 0;
}

// Returns the path of the file `name` beside the key.
static const char *path_beside_key(const kin_identity_options *o, const char *name, char *buf, size_t n) {
    char key[MAX_PATH];
    if (o->key_file)
        snprintf(key, sizeof key, "%s", o->key_file);
    else if (!kin_key_default_path(key, sizeof key))
        return NULL;
    char *slash = strrchr(key, '/');
    if (slash) slash[1] = '\0';
    int length = snprintf(buf, n, "%s%s", slash ? key : "", name);
    return length > 0 && (size_t)length < n ? buf : NULL;
}

static int new_id(kin_proto_id *id, kin_err *err) {
    return getentropy(id->bytes, sizeof id->bytes) == 0 ? 0 : kin_err_set(err, "cannot get random numbers");
}

// An id file: 16 bytes of id, then 4 of the number of the process that holds the file's lock, little-endian.
enum { HOLDER_AT = 16, HOLDER_BYTES = 4 };
_Static_assert(HOLDER_AT == sizeof(kin_proto_id), "the holder follows the id");

// True: `id` is that file's, and the file is locked by this process until it ends. *holder: 0, or the process that holds the
// lock; negative: not known.
static bool hold_id(kin_proto_id *id, const char *path, int *holder) {
    kin_err err;
    uint8_t pid[HOLDER_BYTES] = {0};
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    *holder = 0;
    if (fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) != 0) {
        if (errno == EWOULDBLOCK) *holder = pread(fd, pid, sizeof pid, HOLDER_AT) == sizeof pid ? (int)kin_get_u32(pid) : -1;
        close(fd);
        return false;
    }
    bool is_there = fd >= 0 && pread(fd, id->bytes, sizeof id->bytes, 0) == sizeof id->bytes && !kin_proto_id_is_none(id);
    bool is_ours =
        is_there || (fd >= 0 && new_id(id, &err) == 0 && pwrite(fd, id->bytes, sizeof id->bytes, 0) == sizeof id->bytes);
    if (!is_ours && fd >= 0) close(fd); // else it stays open until the process ends
    if (!is_ours) return false;
    kin_put_u32(pid, (uint32_t)getpid());
    bool is_written = pwrite(fd, pid, sizeof pid, HOLDER_AT) == sizeof pid;
    (void)is_written; // if it is not, the next process does not wait until this one has ended
    return true;
}

// As hold_id, for a process that is killed and restarted at once: waits until the old one has ended, and takes over its id. Does
// not wait for a process that lives on, as a head beside a device.
static bool hold_id_soon(kin_proto_id *id, const char *path, bool *is_other) {
    int holder;
    bool is_ours = hold_id(id, path, &holder);
    if (holder > 0 && kin_process_is_ending(holder) && !kin_process_wait_end(holder, SHORT_WAIT_MS)) {
        kin_log(KIN_LOG_INFO, "waiting for process %d to end, which holds the identity of this one", holder);
        kin_process_wait_end(holder, LONG_WAIT_MS);
    }
    if (holder != 0) is_ours = hold_id(id, path, &holder); // it may have ended meanwhile
    *is_other = holder != 0;
    return is_ours;
}

// Makes the file name of the i-th process's id; `i` from 1.
static void name_id(char *name, size_t n, int i) {
    if (i == 1)
        snprintf(name, n, "device-id");
    else
        snprintf(name, n, "device-id-%d", i);
}

// True if a process that has an id beside the key runs, a head or a device.
static bool is_in_use(const kin_identity_options *o) {
    char path[MAX_PATH], name[32];
    bool is_used = false;
    for (int i = 1; i <= MAX_PROCESSES && !is_used; i++) {
        name_id(name, sizeof name, i);
        int fd = path_beside_key(o, name, path, sizeof path) ? open(path, O_RDWR | O_CLOEXEC) : -1;
        if (fd < 0) continue;
        is_used = flock(fd, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK;
        close(fd);
    }
    return is_used;
}

// If the id cannot be stored, one for this run suffices: others then see a new machine next time.
static int load_id(kin_proto_id *id, const kin_identity_options *o, kin_err *err) {
    char path[MAX_PATH], name[32];
    kin_err ignored;
    if (!path_beside_key(o, "", path, sizeof path)) return new_id(id, err);
    if (path[0]) kin_folder_make(path, &ignored);
    bool is_other = true;
    for (int i = 1; is_other && i <= MAX_PROCESSES; i++) {
        name_id(name, sizeof name, i);
        if (!path_beside_key(o, name, path, sizeof path)) break;
        if (hold_id_soon(id, path, &is_other)) return 0;
    }
    return new_id(id, err);
}

static int name_self(kin_identity *self, const kin_identity_options *o, kin_err *err) {
    char host[256] = "device";
    *self = (kin_identity){0};
    gethostname(host, sizeof host - 1);
    char *dot = strchr(host, '.');
    if (dot) *dot = '\0';
    kin_label_set(self->name, sizeof self->name - 1, o->name ? o->name : host);
    if (getentropy(&self->run, sizeof self->run) != 0) return kin_err_set(err, "cannot get random numbers");
    return o->advertise ? split_addresses(self, o->advertise, err) : 0;
}

int kin_identity_open_visitor(kin_identity *self, const kin_identity_options *o, kin_err *err) {
    return name_self(self, o, err) == 0 ? new_id(&self->id, err) : KIN_FAIL;
}

int kin_identity_open(kin_identity *self, const kin_identity_options *o, kin_err *err) {
    return name_self(self, o, err) == 0 ? load_id(&self->id, o, err) : KIN_FAIL;
}

// ---- the key

static const char *key_path(const kin_identity_options *o, char *buf, size_t n, kin_err *err) {
    if (o->key_file) return o->key_file;
    if (kin_key_default_path(buf, n)) return buf;
    kin_err_set(err, "there is no home directory for the cluster key; give --key-file");
    return NULL;
}

// Saves the code first: a code without its key is detected (kin_identity_code); a key without its code could not be shown.
static int make_key(kin_key *key, char code[KIN_CODE_TEXT], const char *path, kin_err *err) {
    if (kin_code_new(code, err) != 0 || kin_key_from_code(key, code, err) != 0) return KIN_FAIL;
    return kin_code_save(code, path, err) == 0 ? kin_key_save(key, path, err) : KIN_FAIL;
}

int kin_identity_head_key(kin_key *key, const kin_identity_options *o, const kin_console *console, kin_err *err) {
    char buf[MAX_PATH], code[KIN_CODE_TEXT];
    const char *path = key_path(o, buf, sizeof buf, err);
    if (!path) return KIN_FAIL;
    if (kin_key_is_there(path)) return kin_key_load(key, path, err);
    int rc = make_key(key, code, path, err);
    if (rc == 0) console->new_code(code);
    kin_code_wipe(code, sizeof code);
    return rc;
}

int kin_identity_own_key(kin_key *key, const kin_identity_options *o, kin_err *err) {
    char path[MAX_PATH];
    if (!path_beside_key(o, "kv.key", path, sizeof path)) return kin_err_set(err, "there is no home directory for a key");
    if (kin_key_is_there(path)) return kin_key_load(key, path, err);
    if (getentropy(key->bytes, sizeof key->bytes) != 0) return kin_err_set(err, "cannot get random numbers");
    return kin_key_save(key, path, err);
}

static int check_code(const char code[KIN_CODE_TEXT], const char *path, kin_err *err) {
    kin_key kept, made;
    int rc = kin_key_load(&kept, path, err);
    if (rc == 0) rc = kin_key_from_code(&made, code, err);
    if (rc == 0 && !kin_key_is_same(&kept, &made))
        rc = kin_err_set(err,
                         "%s: the key does not match the code stored here; run 'kin code' on the head to see its code, or "
                         "'kin code --new' to create another cluster on this machine",
                         path);
    kin_key_wipe(&kept);
    kin_key_wipe(&made);
    return rc;
}

int kin_identity_code(char code[KIN_CODE_TEXT], const kin_identity_options *o, kin_err *err) {
    char buf[MAX_PATH];
    const char *path = key_path(o, buf, sizeof buf, err);
    if (!path) return KIN_FAIL;
    if (!kin_key_is_there(path))
        return kin_err_set(err, "this machine has no cluster yet; create one with 'kin run --cluster' or 'kin code --new'");
    if (!kin_code_is_there(path))
        return kin_err_set(
            err,
            "%s: the code of this key is not stored here; run 'kin code' on the head to see it. If this machine is the head, "
            "'kin code --new' makes a new code, and each device must join again",
            path);
    int rc = kin_code_load(code, path, err);
    if (rc == 0) rc = check_code(code, path, err);
    if (rc != 0) kin_code_wipe(code, KIN_CODE_TEXT);
    return rc;
}

int kin_identity_new_code(char code[KIN_CODE_TEXT], const kin_identity_options *o, kin_err *err) {
    char buf[MAX_PATH];
    kin_key key;
    const char *path = key_path(o, buf, sizeof buf, err);
    if (!path) return KIN_FAIL;
    if (is_in_use(o))
        return kin_err_set(err, "%s: in use by a running head or device of this machine; stop it, then run 'kin code --new'",
                           path);
    int rc = make_key(&key, code, path, err);
    kin_key_wipe(&key);
    if (rc != 0) kin_code_wipe(code, KIN_CODE_TEXT);
    return rc;
}

static int ask_code(char code[KIN_CODE_TEXT], const kin_console *console, kin_err *err) {
    char line[128];
    for (int i = 0; i < MAX_TRIES; i++) {
        if (!console->ask("Code shown by 'kin code' on the head (16 characters): ", line, sizeof line))
            return kin_err_set(err, "no code was entered");
        int rc = kin_code_parse(code, line, err);
        kin_code_wipe(line, sizeof line);
        if (rc == 0) return 0;
        console->log("%s", err->text);
    }
    return KIN_FAIL;
}

int kin_identity_ask_key(kin_key *key, const kin_console *console, kin_err *err) {
    char code[KIN_CODE_TEXT];
    int rc = ask_code(code, console, err);
    if (rc == 0) rc = kin_key_from_code(key, code, err);
    kin_code_wipe(code, sizeof code);
    return rc;
}

int kin_identity_file_key(kin_key *key, const char *code_file, kin_err *err) {
    char code[KIN_CODE_TEXT];
    int rc = kin_code_read(code, code_file, err);
    if (rc == 0) rc = kin_key_from_code(key, code, err);
    kin_code_wipe(code, sizeof code);
    return rc;
}

bool kin_identity_has_key(const kin_identity_options *o) {
    char buf[MAX_PATH];
    const char *path = key_path(o, buf, sizeof buf, NULL);
    return path && kin_key_is_there(path);
}

int kin_identity_device_key(kin_key *key, bool *is_typed, const kin_identity_options *o, const kin_console *console,
                            kin_err *err) {
    char buf[MAX_PATH];
    const char *path = key_path(o, buf, sizeof buf, err);
    *is_typed = false;
    if (!path) return KIN_FAIL;
    if (kin_key_is_there(path)) return kin_key_load(key, path, err);
    if (!console->can_ask())
        return kin_err_set(err, "%s: contains no cluster key; run 'kin join' once on a terminal and enter the head's code", path);
    *is_typed = true;
    return kin_identity_ask_key(key, console, err);
}

int kin_identity_keep_key(const kin_key *key, const kin_identity_options *o, kin_err *err) {
    char buf[MAX_PATH];
    const char *path = key_path(o, buf, sizeof buf, err);
    return path ? kin_key_save(key, path, err) : KIN_FAIL;
}

// ---- addresses

int kin_head_address_parse(const char *text, kin_head_address *out, kin_err *err) {
    *out = (kin_head_address){.port = KIN_DEFAULT_PORT};
    if (!text) return 0;
    if (strchr(text, '/'))
        return kin_err_set(err, "'%s' is not the address of a head: must be NAME or NAME:PORT, without http:// and paths", text);
    const char *begin = text, *end = text + strlen(text), *colon = NULL;
    if (text[0] == '[') {
        const char *close = strchr(text, ']');
        if (!close || (close[1] && close[1] != ':')) return kin_err_set(err, "'%s' is not an address: must be [IPv6]:PORT", text);
        begin = text + 1;
        end = close;
        if (close[1]) colon = close + 1;
    } else if ((colon = strchr(text, ':')) && colon == strrchr(text, ':')) {
        end = colon;
    } else {
        colon = NULL; // a name, or an IPv6 address without brackets
    }
    if (colon) {
        char *rest;
        long value = strtol(colon + 1, &rest, 10);
        if (rest == colon + 1 || *rest || value < 1 || value > 65535)
            return kin_err_set(err, "'%s': the port must be 1 to 65535", text);
        out->port = (uint16_t)value;
    }
    if (begin == end || (size_t)(end - begin) >= sizeof out->name) return kin_err_set(err, "'%s' is not an address", text);
    memcpy(out->name, begin, (size_t)(end - begin));
    return 0;
}
