// The chunks of the model that this tab needs: fetched by hash once, verified, kept in the browser's file system (OPFS), or else in
// memory while a plan is opened.

const FOLDER = 'kin-chunks';
const AT_ONCE = 4, AGAIN_MS = 1000;

const hex = (bytes) => Array.from(bytes, (b) => b.toString(16).padStart(2, '0')).join('');

async function openFolder() {
  try {
    return await (await navigator.storage.getDirectory()).getDirectoryHandle(FOLDER, { create: true });
  } catch {
    return null; // a private window, or a browser without
  }
}

const isRight = async (hash, bytes) => hex(new Uint8Array(await crypto.subtle.digest('SHA-256', bytes))) === hash;

// Chromium (156) never answers requests on garbage-collected handles: this set keeps them alive.
const asked = new Set();

async function ask(handle, question) {
  asked.add(handle);
  try {
    return await question(handle);
  } finally {
    asked.delete(handle);
  }
}

export class Chunks {
  // base: URL of the folder of chunks. cap: bytes to keep.
  constructor(base, cap) {
    this.base = base;
    this.cap = cap;
    this.fetched = 0; // bytes fetched over the network
    this.bytes = new Map(); // hash -> Uint8Array, while a plan is opened
  }

  async #kept(folder, hash, size) {
    try {
      const file = await ask(await folder.getFileHandle(hash), (handle) => handle.getFile());
      if (file.size !== size) return null;
      const bytes = new Uint8Array(await file.arrayBuffer());
      return (await isRight(hash, bytes)) ? bytes : null;
    } catch {
      return null;
    }
  }

  // If another tab is writing the same chunk, that tab stores it.
  async #keep(folder, hash, bytes) {
    try {
      const file = await ask(await folder.getFileHandle(hash, { create: true }), (handle) => handle.createSyncAccessHandle());
      try {
        file.truncate(0);
        file.write(bytes, { at: 0 });
      } finally {
        file.close();
      }
    } catch { /* no room, or no such file system: it is fetched again the next time */ }
  }

  // Returns the first chunks of a plan that fit into the cap together, and their bytes.
  #fitting(chunks) {
    const names = new Set();
    let bytes = 0;
    for (const [hash, , , size] of chunks) {
      if (bytes + size > this.cap) break;
      names.add(hash);
      bytes += size;
    }
    return { names, bytes };
  }

  // Removes the least recently written chunks until there is room.
  async #makeRoom(folder, wanted, bytes) {
    const others = [];
    let used = bytes;
    for await (const [name, handle] of folder.entries()) {
      if (wanted.has(name)) continue;
      const file = await handle.getFile();
      others.push({ name, size: file.size, at: file.lastModified });
      used += file.size;
    }
    others.sort((a, b) => a.at - b.at);
    for (const { name, size } of others) {
      if (used <= this.cap) break;
      await folder.removeEntry(name).catch(() => {});
      used -= size;
    }
  }

  async #fetch(hash, size, token) {
    const response = await fetch(new URL(hash, this.base), { headers: { 'X-Kin-Tab': token } });
    if (response.status === 503) { // too many tabs are fetching
      await new Promise((later) => setTimeout(later, AGAIN_MS));
      return this.#fetch(hash, size, token);
    }
    if (!response.ok) throw new Error(`the head did not send a chunk of the model: ${response.status}`);
    const bytes = new Uint8Array(await response.arrayBuffer());
    if (bytes.length !== size || !(await isRight(hash, bytes))) throw new Error('a chunk of the model arrived damaged');
    this.fetched += size;
    return bytes;
  }

  // weights: the head's message. progress(done, total, fetched) counts bytes.
  async open(weights, progress) {
    const folder = await openFolder();
    const total = weights.chunks.reduce((sum, [, , , size]) => sum + size, 0);
    let done = 0, next = 0;
    this.weights = weights;
    this.close();
    const fitting = this.#fitting(weights.chunks);
    if (folder) await this.#makeRoom(folder, fitting.names, fitting.bytes);
    const work = async () => {
      while (next < weights.chunks.length) {
        const [hash, , , size] = weights.chunks[next++];
        let bytes = folder && (await this.#kept(folder, hash, size));
        if (!bytes) {
          bytes = await this.#fetch(hash, size, weights.token);
          if (folder && fitting.names.has(hash)) await this.#keep(folder, hash, bytes);
        }
        this.bytes.set(hash, bytes);
        done += size;
        progress(done, total, this.fetched);
      }
    };
    await Promise.all(Array.from({ length: AT_ONCE }, work));
    this.places = weights.files.map(() => new Map()); // per file: chunk number -> hash
    for (const [hash, file, offset] of weights.chunks) this.places[file].set(Math.floor(offset / weights.chunk_bytes), hash);
  }

  // Fetches the chunks of a later plan one after the other. Returns false if they cannot be kept.
  async fetchAhead(weights) {
    const folder = await openFolder();
    const total = weights.chunks.reduce((sum, [, , , size]) => sum + size, 0);
    if (!folder || total > this.cap) return false;
    await this.#makeRoom(folder, new Set(weights.chunks.map(([hash]) => hash)), total);
    for (const [hash, , , size] of weights.chunks) {
      const kept = await folder.getFileHandle(hash).then((handle) => ask(handle, (h) => h.getFile()), () => null);
      if (kept?.size !== size) await this.#keep(folder, hash, await this.#fetch(hash, size, weights.token));
    }
    return true;
  }

  #file(name) {
    return this.weights.files.findIndex((f) => f.name === name);
  }

  size(name) {
    return this.weights.files[this.#file(name)]?.size ?? -1;
  }

  // Fills `to` from offset `at` of the file. Returns false if a chunk was not fetched.
  read(name, at, to) {
    const places = this.places[this.#file(name)], each = this.weights.chunk_bytes;
    for (let n = 0; n < to.length;) {
      const i = Math.floor((at + n) / each), bytes = this.bytes.get(places?.get(i)), from = at + n - i * each;
      if (!bytes || from >= bytes.length) return false;
      const part = bytes.subarray(from, from + to.length - n);
      to.set(part, n);
      n += part.length;
    }
    return true;
  }

  // After open the data is in the module's memory.
  close() {
    this.bytes.clear();
  }
}
