#!/usr/bin/env python3
"""Plays the registries of models on this machine, for tests/test_pull.sh: Hugging Face, its content servers, Ollama's registry, and a plain
web server. No test needs the Internet.

    registry.py ROOT LOG [CERT KEY]

Prints "PORT CDN_PORT" and serves until it is killed; with TLS if files with a certificate and its key are given. ROOT/hf/OWNER/REPO/... are
the files of repositories, ROOT/ollama/NAME/TAG is the model of a tag, ROOT/web/... are plain files. Every request is a line of LOG:
"SERVER METHOD PATH RANGE AUTH STATUS BYTES", at its end, in the file that had this name when it began: answers that a client has left behind
belong to no later log.

ROOT/trouble, read at each request, has lines "WORD VALUE" which make trouble:

    cut N           a body ends after N bytes, as often as `cuts` says      cuts N     how many bodies are cut
    busy N          the first N requests of files get 429                   retry S    with Retry-After: S
    broken N        the first N requests of files get 500
    slow S          waits S seconds after each 64 KiB
    noranges 1      files are sent whole                                    gone N     a signed address ends (403) after N requests
    html 1          a web page in place of a file                           etag X     the ETag of plain files
    wrong 1         other bytes than those of the file                      short N    files seem to have N bytes (416 beyond)
    login 1         a web page in place of lists of files                   bare 1     answers to ranges do not name the range
    endless 1       lists of files claim to have 10 TB         drip S      waits S seconds after each byte
"""
import hashlib, http.server, json, os, ssl, sys, threading, time

root, log_path = sys.argv[1], sys.argv[2]
tls = None
if len(sys.argv) > 3:
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(sys.argv[3], sys.argv[4])
scheme = "https" if tls else "http"
lock = threading.Lock()
counts = {}
hashes = {}


def trouble():
    words = {}
    try:
        for line in open(os.path.join(root, "trouble")):
            word, _, value = line.strip().partition(" ")
            words[word] = value
    except OSError:
        pass
    return words


def happens(word, most):
    """True for the first `most` calls with this word since the file of trouble was written."""
    key = (word, os.stat(os.path.join(root, "trouble")).st_mtime_ns)
    with lock:
        counts[key] = counts.get(key, 0) + 1
        return counts[key] <= most


def sha256(path):
    st = os.stat(path)
    key = (path, st.st_mtime_ns, st.st_size)
    if key not in hashes:
        h = hashlib.sha256()
        with open(path, "rb") as f:
            while block := f.read(1 << 20):
                h.update(block)
        hashes[key] = h.hexdigest()
    return hashes[key]


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *args):
        pass

    def note(self, status, n):
        print(self.server.name, self.command, self.path, self.headers.get("Range", "-"),
              self.headers.get("Authorization", "-").replace(" ", "_"), status, n, file=self.log, flush=True)

    def answer(self, status, body=b"", kind="application/json", **headers):
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        self.wfile.write(body)
        self.note(status, len(body))

    def claim(self, n):
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(n))
        self.end_headers()

    def refuse(self, status, code=None):
        self.answer(status, b'{"error":"no"}', **({"X_Error_Code": code} if code else {}))

    def do_GET(self):
        with open(log_path, "a") as self.log:
            self.serve()

    def serve(self):
        path = self.path.partition("?")[0]
        parts = path.strip("/").split("/")
        if self.server.name == "cdn":
            return self.send_file(os.path.join(root, path.strip("/")))
        if path.startswith("/api/models/") and len(parts) >= 6 and parts[4] == "tree":
            return self.send_tree(parts[2], parts[3])
        if len(parts) >= 5 and parts[2] == "resolve":
            return self.redirect_hf(parts)
        if path.startswith("/v2/"):
            return self.send_ollama(parts)
        if path.startswith("/web/"):
            return self.send_file(os.path.join(root, path.strip("/")))
        self.refuse(404)

    def may_enter(self, owner, repo):
        if owner == "gated" and self.headers.get("Authorization") != "Bearer good":
            self.refuse(403 if "Authorization" in self.headers else 401, "GatedRepo")
        elif owner == "private" and self.headers.get("Authorization") != "Bearer good":
            self.refuse(401, "RepoNotFound")
        elif not os.path.isdir(os.path.join(root, "hf", owner, repo)):
            self.refuse(404, "RepoNotFound")
        else:
            return True
        return False

    def send_tree(self, owner, repo):
        if not self.may_enter(owner, repo):
            return
        if "login" in trouble():
            return self.answer(200, b"<!DOCTYPE html><title>Hotel</title>", "text/html; charset=utf-8")
        if "endless" in trouble():
            return self.claim(10**13)
        base, items = os.path.join(root, "hf", owner, repo), [{"type": "directory", "oid": "0", "size": 0, "path": "some"}]
        for folder, _, names in sorted(os.walk(base)):
            for name in sorted(names):
                full = os.path.join(folder, name)
                item = {"type": "file", "oid": "1" * 40, "size": os.path.getsize(full), "path": os.path.relpath(full, base)}
                if name.endswith(".gguf") and owner != "nohash":
                    item["lfs"] = {"oid": sha256(full), "size": item["size"], "pointerSize": 135}
                items.append(item)
        if owner != "pages":
            return self.answer(200, json.dumps(items).encode())
        page = int(self.path.partition("page=")[2] or 0)
        more = {"Link": '<%s://%s%s&page=%d>; rel="next"' % (scheme, self.headers["Host"], self.path.partition("&page")[0], page + 1)}
        self.answer(200, json.dumps(items[page : page + 1]).encode(), **(more if page + 1 < len(items) else {}))

    def redirect_hf(self, parts):
        full = os.path.join(root, "hf", parts[0], parts[1], *parts[4:])
        if not self.may_enter(parts[0], parts[1]):
            return
        if not os.path.isfile(full):
            return self.refuse(404, "EntryNotFound")
        self.answer(302, b"", Location="%s/hf/%s/%s/%s?signed=1" % (cdn.url(), parts[0], parts[1], "/".join(parts[4:])),
                    X_Linked_Size=str(os.path.getsize(full)), X_Linked_Etag='"%s"' % sha256(full))

    def send_ollama(self, parts):
        base = os.path.join(root, "ollama", *parts[1:-2])
        if parts[-2] == "manifests":
            full = os.path.join(base, parts[-1])
            if not os.path.isfile(full):
                return self.refuse(404)
            layers = [{"mediaType": "application/vnd.ollama.image.template", "digest": "sha256:" + "2" * 64, "size": 7},
                      {"mediaType": "application/vnd.ollama.image.model", "digest": "sha256:" + sha256(full), "size": os.path.getsize(full)}]
            body = {"schemaVersion": 2, "config": {"digest": "sha256:" + "3" * 64, "size": 9}, "layers": layers}
            return self.answer(200, json.dumps(body).encode())
        for name in os.listdir(base):
            if "sha256:" + sha256(os.path.join(base, name)) == parts[-1]:
                return self.answer(307, b"", Location="%s/%s" % (cdn.url(), os.path.relpath(os.path.join(base, name), root)))
        self.refuse(404)

    def send_file(self, full):
        t = trouble()
        if "gone" in t and "signed" in self.path and not happens("gone", int(t["gone"])) and happens("gone again", 1):
            return self.refuse(403)
        if "busy" in t and happens("busy", int(t["busy"])):
            return self.answer(429, b"", Retry_After=t.get("retry", "1"))
        if "broken" in t and happens("broken", int(t["broken"])):
            return self.refuse(500)
        if "html" in t:
            return self.answer(200, b"<!DOCTYPE html><title>Log in</title>" + b" " * 100, "text/html")
        if not os.path.isfile(full):
            return self.refuse(404)
        size = int(t["short"]) if "short" in t else os.path.getsize(full)
        begin, end, status = 0, size, 200
        asked = self.headers.get("Range", "")
        if asked.startswith("bytes=") and "noranges" not in t:
            first, _, last = asked[6:].partition("-")
            begin, status = int(first), 206
            end = min(int(last) + 1, size) if last else size
            if begin >= size:
                return self.answer(416, b"", Content_Range="bytes */%d" % size)
        self.send_response(status)
        self.send_header("Content-Type", "application/octet-stream")
        self.send_header("Content-Length", str(end - begin))
        self.send_header("ETag", '"%s"' % t.get("etag", sha256(full)[:16]))
        if status == 206 and "bare" not in t:
            self.send_header("Content-Range", "bytes %d-%d/%d" % (begin, end - 1, size))
        self.end_headers()
        self.send_bytes(full, begin, end, t, status)

    def send_bytes(self, full, begin, end, t, status):
        cut = int(t["cut"]) if "cut" in t and end - begin > int(t["cut"]) and happens("cut", int(t.get("cuts", 1))) else None
        at = begin
        try:
            with open(full, "rb") as f:
                f.seek(at)
                while at < end:
                    n = min(1 if "drip" in t else 65536, end - at if cut is None else min(end - at, cut - (at - begin)))
                    if n == 0:
                        break
                    block = f.read(n)
                    if "wrong" in t and at >= 4:
                        block = bytes(len(block))
                    self.wfile.write(block)
                    at += n
                    if "slow" in t or "drip" in t:
                        time.sleep(float(t.get("slow", t.get("drip"))))
        except OSError:
            pass # the client has gone
        self.note(status, at - begin)
        if at < end:
            self.close_connection = True


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request, address):
        pass  # the client has gone

    def url(self):
        return "%s://127.0.0.1:%d" % (scheme, self.server_port)

    def finish_request(self, request, address):
        if not tls:
            return super().finish_request(request, address)
        with tls.wrap_socket(request, server_side=True) as secure:
            super().finish_request(secure, address)


def server(name):
    s = Server(("127.0.0.1", 0), Handler)
    s.name = name
    threading.Thread(target=s.serve_forever, daemon=True).start()
    return s


cdn, registry = server("cdn"), server("registry")
print(registry.server_port, cdn.server_port, flush=True)
threading.Event().wait()
