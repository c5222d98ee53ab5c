// What a tab stores of a model (web/page/chunks.js), with node in place of a browser and its file system.
//
//   node chunks.mjs       exit 0, or 1
import { createHash, webcrypto } from 'node:crypto';
import { Chunks } from '../../web/page/chunks.js';

globalThis.crypto ??= webcrypto; // node 18 has no global one

const SIZE = 100;
const files = new Map(); // name -> Uint8Array
let n_fetched = 0;

const handleOf = (name) => ({
  getFile: async () => ({ size: files.get(name).length, lastModified: 0, arrayBuffer: async () => files.get(name).slice().buffer }),
  createSyncAccessHandle: async () => ({ truncate() {}, write: (bytes) => files.set(name, bytes.slice()), close() {} }),
});
const folder = {
  entries: async function* () { for (const name of [...files.keys()]) yield [name, handleOf(name)]; },
  getFileHandle: async (name, { create } = {}) => {
    if (!files.has(name) && !create) throw new Error('no such file');
    return handleOf(name);
  },
  removeEntry: async (name) => files.delete(name),
};
const storage = { getDirectory: async () => ({ getDirectoryHandle: async () => folder }) };
Object.defineProperty(globalThis, 'navigator', { value: { storage }, configurable: true });

const parts = Array.from({ length: 5 }, (_, i) => new Uint8Array(SIZE).fill(i + 1));
const hashOf = (bytes) => createHash('sha256').update(bytes).digest('hex');
const byHash = new Map(parts.map((bytes) => [hashOf(bytes), bytes]));
globalThis.fetch = async (url) => {
  n_fetched++;
  return { ok: true, arrayBuffer: async () => byHash.get(url.pathname.slice(1)).slice().buffer };
};

const weights = { token: 't', chunk_bytes: SIZE, files: [{ name: 'm', size: 5 * SIZE }], chunks: parts.map((bytes, i) => [hashOf(bytes), 0, i * SIZE, SIZE]) };
const check = (is, claim) => {
  if (!is) throw new Error(`not so: ${claim}`);
  console.log(`ok - ${claim}`);
};
const open = async (cap) => {
  const chunks = new Chunks('http://head/', cap);
  n_fetched = 0;
  await chunks.open(weights, () => {});
  const all = new Uint8Array(5 * SIZE);
  check(chunks.read('m', 0, all) && all.every((byte, i) => byte === Math.floor(i / SIZE) + 1), 'all is there to be read');
};

files.set('old', new Uint8Array(SIZE));
await open(3 * SIZE + 50);
check(files.size === 3 && !files.has('old'), 'of a plan that is larger than the room what fits is kept, and others leave');
await open(3 * SIZE + 50);
check(n_fetched === 2, 'it is not fetched again');
await open(5 * SIZE);
check(n_fetched === 2 && files.size === 5, 'a plan that fits is kept');
