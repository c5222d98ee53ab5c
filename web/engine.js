// kin's engine (web/): its WebAssembly modules, their memory and their threads. It computes a member's layers: the payload of a
// PLAN
// frame opens them; the payload of a STEP frame goes in, and that for the next member comes out.
//
// Calls block until the work is done: use it in a Web Worker, not in a page. `host` is its environment, a browser's or a test's:
//   code(name)    promise of the bytes of a module, "engine_relaxed.wasm"
//   thread(set)   promise of a helper thread that runs engine_thread.js's runThread with `set`; null: threads are not available
//   size(name)    bytes of a file of the model, -1 if it is not present
//   read(name, at, bytes)   fills the bytes from offset `at`; returns whether they were present
//   log(line)
//   gpu()   promise of a worker that runs gpu_worker.js; null: no GPU. Optional

import { GpuError, openGpu } from './gpu.js';

const MEMORY_PAGES = [65536, 32768, 16384, 8192]; // of 64 KiB: the first size that can be reserved
export const STEP = 11; // frame types
export const PAGES = 31;

// Measured weight types: GGUF number, bits per weight.
export const TYPES = {
  F16: { type: 1, bits: 16 }, Q4_0: { type: 2, bits: 4.5 }, Q8_0: { type: 8, bits: 8.5 }, Q4_K: { type: 12, bits: 4.5 }, Q5_K: { type: 13, bits: 5.5 }, Q6_K: { type: 14, bits: 6.5625 },
};
const PROMPT_ROWS = 64;
const RATES_BYTES = 128 << 20; // of weights to measure: as much as native devices use
// the layer measured on the GPU
const GPU_LAYER = { width: 2048, nHead: 32, nHeadKv: 8, nCells: 2048, nMatrices: 32, nOps: 100 };
const HEADS = 4; // measured attention heads that share keys and values
const STACK_BYTES = 1 << 20;
const WAYS = 4; // variants of multiplying a row (kernels/kernels.h)
const STEADY = 1.15; // two-stream variants win unless they take this many times as long

// Valid if relaxed vector instructions are supported: (func (result v128)
// i16x8.relaxed_dot_i8x16_i7x16_s).
const RELAXED = Uint8Array.of(0, 97, 115, 109, 1, 0, 0, 0, 1, 5, 1, 96, 0, 1, 123, 3, 2, 1, 0, 10, 15, 1, 13, 0, 65, 1, 253, 15, 65, 2, 253, 15, 253, 146, 2, 11);

export const vectorUnit = () => (WebAssembly.validate(RELAXED) ? 'relaxed' : 'simd128');

function makeMemory(shared) {
  for (const maximum of MEMORY_PAGES) {
    try {
      return new WebAssembly.Memory({ initial: 64, maximum, shared });
    } catch { /* fewer */ }
  }
  throw new Error('this browser has no memory left for another WebAssembly module');
}

// The imports of a module (web/host.h). Text and bytes that other threads may write to are copied before they are read. gpu():
// the result of openGpu; a helper thread has none.
export function imports(memory, host, gpu = () => null) {
  const bytes = (at, n) => new Uint8Array(memory.buffer, at, n);
  const text = (at, n) => new TextDecoder().decode(bytes(at >>> 0, n).slice());
  return {
    env: { memory },
    kin: {
      log: (at, n) => host.log(text(at, n)),
      now: () => performance.now(),
      size: (at, n) => host.size(text(at, n)),
      read: (at, n, from, to, count) => (host.read(text(at, n), from, bytes(to >>> 0, count >>> 0)) ? 1 : 0),
      gpu_clear: () => gpu().ask('clear'),
      gpu_refuse: (at, n) => { throw new GpuError(text(at, n)); },
      gpu_put: (type, at, n) => gpu().ask('put', type, at >>> 0, n >>> 0),
      gpu_get: (buffer, offset, at, n) => gpu().ask('get', buffer, offset, at >>> 0, n >>> 0),
      gpu_set: (buffer, offset, at, n) => gpu().ask('set', buffer, offset, at >>> 0, n >>> 0),
      gpu_run: (job) => gpu().ask('run', job >>> 0),
    },
  };
}

// seconds: of each variant. Chooses the fastest, but a two-stream variant unless it is much slower: the speed of a single stream
// depends on the addresses of code and weights, which a measuring loop does not show.
export function bestWay(seconds) {
  const faster = (a, b) => (seconds[b] < seconds[a] ? b : a), one = faster(0, 2), two = faster(1, 3);
  return seconds[two] < STEADY * seconds[one] ? two : one;
}

// Splits the time into reading and arithmetic, as the planner expects: a prompt is bound by arithmetic alone.
function attentionRates([token, prompt]) {
  if (token < 0 || prompt < 0) return {};
  const compute = prompt / PROMPT_ROWS, read = Math.sqrt(Math.max(token ** 2 - compute ** 2, token ** 2 / 4));
  return { read_bytes_s: HEADS / token, prompt_read_bytes_s: HEADS / compute, kv_bytes_s: 1 / read };
}

export class Engine {
  // threads: the most wanted; one if threads are not available. unit: a vector unit, for tests. gpu: 'on' (even a software
  // implementation), 'auto', or 'off'; it requires shared memory.
  static async open(host, { threads = 1, unit = vectorUnit(), gpu = 'off' } = {}) {
    const shared = (threads > 1 || gpu !== 'off') && typeof SharedArrayBuffer === 'function' && (globalThis.crossOriginIsolated ?? true);
    const module = await WebAssembly.compile(await host.code(`engine_${unit}${shared ? '_threads' : ''}.wasm`));
    const memory = makeMemory(shared);
    const engine = new Engine(memory, await WebAssembly.instantiate(module, imports(memory, host, () => engine.gpu)));
    if (shared && gpu !== 'off') engine.gpu = await openGpu(host, memory, gpu === 'on');
    for (let i = 1; shared && i < threads; i++) {
      const stack = engine.#alloc(STACK_BYTES) + STACK_BYTES;
      if (!(await host.thread({ module, memory, stack, i }))) break;
      engine.threads++;
    }
    return engine;
  }

  constructor(memory, instance) {
    this.memory = memory;
    this.exports = instance.exports;
    this.threads = 1;
    this.ways = {};
    this.gpu = null; // from openGpu; if set, plans are computed there
  }

  #alloc(n) {
    const at = this.exports.alloc(n) >>> 0;
    if (!at) throw new Error('out of memory');
    return at;
  }

  #text(at) {
    const bytes = new Uint8Array(this.memory.buffer);
    let end = (at >>>= 0);
    while (bytes[end]) end++;
    return new TextDecoder().decode(bytes.slice(at, end));
  }

  // Copies bytes to the module for the duration of the call.
  #lend(bytes, call) {
    const at = this.#alloc(bytes.length);
    new Uint8Array(this.memory.buffer).set(bytes, at);
    try {
      return call(at);
    } finally {
      this.exports.free(at);
    }
  }

  #check(result) {
    if (result < 0) throw new Error(this.#text(this.exports.error()));
    return result;
  }

  get kernels() {
    return this.#text(this.exports.kernels());
  }

  // Sets the variant for multiplying a row with weights of each type (kernels/kernels.h): { type: way }; rates() measures it.
  setWays(ways) {
    this.ways = ways;
    for (const { type } of Object.values(TYPES)) this.exports.set_way(type, ways[type] ?? 0);
  }

  // For tests: one variant for all types.
  setAllWays(way) {
    this.setWays(Object.fromEntries(Object.values(TYPES).map(({ type }) => [type, way])));
  }

  // The variants that differ in this module.
  get allWays() {
    return this.kernels === 'relaxed' ? [...Array(WAYS).keys()] : [0];
  }

  // Measures seconds per byte of weights and of keys and values, for one row and for a prompt's rows; per small operation; per
  // window. The products of one row are measured twice in each variant, before and after those of a prompt: a moment in which the
  // machine was slow would otherwise count for the life of the tab.
  #measure() {
    const { product_s, attend_s, op_s } = this.exports, types = Object.values(TYPES);
    const timesOf = (rows) => types.map(({ type }) => product_s(type, rows, this.threads, RATES_BYTES, 0));
    const waysOf = (bits) => (bits === TYPES.F16.bits ? [0] : this.allWays); // floats are not packed
    const inAllWays = () => types.map(({ type, bits }) => waysOf(bits).map((way) => (this.exports.set_way(type, way), product_s(type, 1, this.threads, RATES_BYTES, 0))));
    const first = inAllWays(), prompt = timesOf(PROMPT_ROWS), second = inAllWays();
    const times = first.map((ofWays, i) => ofWays.map((s, way) => Math.min(s, second[i][way])));
    const best = times.map(bestWay);
    this.setWays(Object.fromEntries(types.map(({ type }, i) => [type, best[i]])));
    const products = types.map((_, i) => [times[i][best[i]], prompt[i]]);
    return { products, attention: [1, PROMPT_ROWS].map((rows) => attend_s(rows, this.threads, RATES_BYTES)), op: op_s(this.threads), window: 0 };
  }

  // Returns the planner's figures in bytes, FLOP and seconds; takes seconds.
  rates() {
    const { products, attention, op, window } = this.gpu ? this.gpu.ask('measure', TYPES, PROMPT_ROWS, GPU_LAYER) : this.#measure();
    const rates = { token_bytes_s: {}, prompt_flop_s: {}, op_s: op, window_s: window, ways: this.ways };
    Object.entries(TYPES).forEach(([name, { bits }], i) => {
      const [token, prompt] = products[i];
      if (token > 0) rates.token_bytes_s[name] = 1 / token;
      if (prompt > 0) rates.prompt_flop_s[name] = (2 * 8 * PROMPT_ROWS) / bits / prompt;
    });
    return { ...rates, ...attentionRates(attention) };
  }

  // Evicts all data from the processor's caches.
  cool() {
    this.exports.cool();
  }

  // plan: the payload of PLAN. name: the model's file.
  openPlan(plan, name) {
    const zeroed = new TextEncoder().encode(`${name}\0`);
    this.#check(this.#lend(zeroed, (at) => this.#lend(plan, (p) => this.exports.open(p, plan.length, at, this.threads, this.gpu ? 1 : 0))));
    this.gpu?.ask('compiled');
  }

  closePlan() {
    this.exports.close();
  }

  // Takes the payload of STEP or PAGES, returns the next member's.
  take(payload, type = STEP) {
    const at = this.exports.payload(payload.length) >>> 0;
    if (!at) throw new Error('out of memory');
    new Uint8Array(this.memory.buffer).set(payload, at);
    const n = this.#check(this.exports.take(payload.length, type));
    return new Uint8Array(this.memory.buffer, this.exports.payload(n) >>> 0, n).slice();
  }

  // Bytes, in the order of READY: KV cache, weights, weights that stay in memory, compute buffers, GPU.
  sizes() {
    const [kv, weights, compute] = [0, 1, 2].map((of) => this.exports.bytes(of));
    return [kv, weights, weights, compute, 0];
  }

  reset() {
    this.exports.reset();
  }
}
