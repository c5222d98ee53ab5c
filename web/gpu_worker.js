// The worker that drives the GPU for the engine: its buffers hold weights, the KV cache and activations. It must return to its
// event loop, as WebGPU requires, while the requesting thread blocks (gpu.js).
import { DONE, FAILED } from './gpu.js';
import { ATTEND, KERNELS, NORM, PRODUCT, TILE, TYPES, TYPE_NAMES, kernelCode } from './gpu_kernels.js';

const COMMAND_BYTES = 256; // web/engine/gpu.c

const HEAD_DIM = 64, ROUNDS = 4, ROUNDS_MS = 200; // limits of a measurement: rounds, and their time

// storage, copy source and destination; uniform; mapped
const USAGE = { weights: 0x80 | 0x04 | 0x08, params: 0x40 | 0x08, back: 0x01 | 0x08 };

const keyOf = (kernel, type, tile) => (kernel === PRODUCT ? `${kernel} ${type} ${tile}` : `${kernel}`);

class Gpu {
  static async open(memory, software) {
    const adapter = await navigator.gpu?.requestAdapter({ powerPreference: 'high-performance' });
    if (!adapter || (adapter.info.isFallbackAdapter && !software) || !navigator.gpu.wgslLanguageFeatures.has('packed_4x8_integer_dot_product')) return null;
    const { maxBufferSize, maxStorageBufferBindingSize } = adapter.limits;
    const device = await adapter.requestDevice({ requiredLimits: { maxBufferSize, maxStorageBufferBindingSize } });
    return new Gpu(adapter, device, memory);
  }

  constructor(adapter, device, memory) {
    Object.assign(this, { device, memory });
    this.name = adapter.info.description || [adapter.info.vendor, adapter.info.architecture].filter(Boolean).join(' ') || 'GPU';
    this.isSoftware = adapter.info.isFallbackAdapter;
    this.most = Math.min(device.limits.maxBufferSize, device.limits.maxStorageBufferBindingSize);
    this.failed = new Promise((_, fail) => {
      const end = (message) => fail(new Error((this.failure ??= message)));
      device.lost.then(({ message }) => end(`it is lost (${message || 'no reason given'})`));
      device.onuncapturederror = ({ error }) => end(error.message);
    });
    const storage = (binding, type) => ({ binding, visibility: 4, buffer: { type } });
    this.layout = device.createBindGroupLayout({
      entries: [
        storage(0, 'storage'), storage(1, 'read-only-storage'), storage(2, 'read-only-storage'), storage(3, 'storage'), storage(4, 'storage'),
        storage(5, 'read-only-storage'), { binding: 6, visibility: 4, buffer: { type: 'uniform', hasDynamicOffset: true } },
      ],
    });
    this.pipelineLayout = device.createPipelineLayout({ bindGroupLayouts: [this.layout] });
    this.pipelines = new Map(); // undefined: still compiling
    this.compiling = []; // promises
    for (const kernel of KERNELS) this.#compile(kernel);
    this.grown = {}; // buffers that grow on demand: arena, numbers, params, back
    this.nothing = [0, 1, 2].map(() => this.#create(4, USAGE.weights)); // for bindings that a kernel does not read
    this.clear();
  }

  #create(size, usage) {
    if (size > this.most) throw new Error(`${Math.round(size / 2 ** 20)} MiB are more than a buffer of this GPU holds`);
    return this.device.createBuffer({ size: Math.max(16, 4 * Math.ceil(size / 4)), usage });
  }

  clear() {
    this.buffers?.forEach((buffer) => buffer?.destroy());
    this.buffers = [null]; // by number
    this.groups = new Map();
  }

  #grow(name, size, usage) {
    const old = this.grown[name];
    if (old?.size >= size) return old;
    old?.destroy();
    this.groups.clear();
    return (this.grown[name] = this.#create(Math.max(size, Math.min(this.most, 1.25 * size)), usage));
  }

  async #checked(action) {
    this.device.pushErrorScope('out-of-memory');
    const result = action();
    const error = await this.device.popErrorScope();
    if (error) throw new Error(`the GPU is out of memory: ${error.message}`);
    return result;
  }

  // Creates a weight, or (at 0) a part of the KV cache.
  async put(type, at, size) {
    if (!TYPES.has(type)) throw new Error(`weights of this model are of a type that is not computed there (${TYPE_NAMES.join(', ')} are)`);
    const buffer = await this.#checked(() => this.#create(size, USAGE.weights));
    this.buffers.push(buffer);
    if (at) this.set(this.buffers.length - 1, 0, at, size);
    for (const tile of at && type ? [1, TILE] : []) this.#compile(PRODUCT, type, tile);
    return this.buffers.length - 1;
  }

  set(buffer, offset, at, size) {
    const whole = size - (size % 4); // no signed 32-bit arithmetic: a weight may have 2 GiB
    this.device.queue.writeBuffer(this.buffers[buffer], offset, this.memory.buffer, at, whole);
    if (whole === size) return;
    const last = new Uint8Array(4);
    last.set(new Uint8Array(this.memory.buffer, at + whole, size - whole));
    this.device.queue.writeBuffer(this.buffers[buffer], offset + whole, last);
  }

  // at: address in the engine's memory.
  async #read(encoder, buffer, offset, at, size) {
    const back = this.#grow('back', size, USAGE.back);
    encoder.copyBufferToBuffer(buffer, offset, back, 0, size);
    this.device.queue.submit([encoder.finish()]);
    await back.mapAsync(1, 0, size);
    new Uint8Array(this.memory.buffer, at, size).set(new Uint8Array(back.getMappedRange(0, size)));
    back.unmap();
  }

  get(buffer, offset, at, size) {
    return this.#read(this.device.createCommandEncoder(), this.buffers[buffer], offset, at, size);
  }

  // Compiles in the background.
  #compile(kernel, type, tile) {
    const key = keyOf(kernel, type, tile);
    if (this.pipelines.has(key)) return;
    this.pipelines.set(key, undefined);
    const module = this.device.createShaderModule({ code: kernelCode(kernel, type, tile) });
    const compiling = this.device.createComputePipelineAsync({ layout: this.pipelineLayout, compute: { module } }).then((pipeline) => this.pipelines.set(key, pipeline));
    compiling.catch(() => {}); // reported where it is awaited
    this.compiling.push(compiling);
  }

  // Waits for all kernels of the present weights, so that no step waits for one.
  async compiled() {
    await Promise.all(this.compiling);
  }

  #group(w, w2, k, v) {
    const key = `${w} ${w2} ${k} ${v}`;
    if (!this.groups.has(key)) {
      const { arena, numbers, params } = this.grown, [none, noKeys, noValues] = this.nothing, of = this.buffers;
      const entries = [arena, of[w] ?? none, of[w2] ?? none, of[k] ?? noKeys, of[v] ?? noValues, numbers].map((buffer, binding) => ({ binding, resource: { buffer } }));
      entries.push({ binding: 6, resource: { buffer: params, size: COMMAND_BYTES } });
      this.groups.set(key, this.device.createBindGroup({ layout: this.layout, entries }));
    }
    return this.groups.get(key);
  }

  // commands // u32 [n, 64]
  #encode(commands) {
    this.device.queue.writeBuffer(this.#grow('params', commands.byteLength, USAGE.params), 0, commands);
    const encoder = this.device.createCommandEncoder(), pass = encoder.beginComputePass();
    for (let i = 0; i < commands.length; i += COMMAND_BYTES / 4) {
      const [kernel, type, w, w2, k, v, x, y, , n] = commands.subarray(i, i + 10);
      pass.setPipeline(this.pipelines.get(keyOf(kernel, type, n > 1 ? TILE : 1)));
      pass.setBindGroup(0, this.#group(w, w2, k, v), [4 * i]);
      pass.dispatchWorkgroups(x, y);
    }
    pass.end();
    return encoder;
  }

  // at: address of a kin_gpu_job.
  async run(at) {
    const words = (from, n) => new Uint32Array(this.memory.buffer, from, n), { queue } = this.device;
    const [commands, numbers, arena, up, nCommands, nNumbers, nArena, nUp, down, nDown] = words(at, 10);
    this.#grow('arena', nArena, USAGE.weights);
    this.#grow('numbers', 4 * nNumbers, USAGE.weights);
    queue.writeBuffer(this.grown.numbers, 0, this.memory.buffer, numbers, 4 * nNumbers);
    for (let i = 0; i < nUp; i++) {
      const [offset, n] = words(up + 8 * i, 2);
      queue.writeBuffer(this.grown.arena, offset, this.memory.buffer, arena + offset, n);
    }
    const encoder = this.#encode(words(commands, (nCommands * COMMAND_BYTES) / 4));
    await this.#read(encoder, this.grown.arena, down, arena + down, nDown);
  }

  // ---- measurements for Engine.rates

  // Returns the seconds from submitting commands until their result can be read: the best of some rounds.
  async #time(commands) {
    let best = Infinity;
    await this.compiled();
    const back = this.#grow('back', 16, USAGE.back), first = performance.now();
    for (let i = 0; i <= ROUNDS && !(i > 1 && performance.now() - first > ROUNDS_MS); i++) {
      const begun = performance.now(), encoder = this.#encode(commands);
      encoder.copyBufferToBuffer(this.grown.arena, 0, back, 0, 16);
      this.device.queue.submit([encoder.finish()]);
      await back.mapAsync(1, 0, 16);
      back.unmap();
      if (i > 0) best = Math.min(best, performance.now() - begun); // the first round includes one-time work of drivers
    }
    return best / 1e3;
  }

  #zeros(size) {
    this.buffers.push(this.#create(size, USAGE.weights));
    return this.buffers.length - 1;
  }

  // Returns the seconds per byte read by n dispatches of `bytes` each. make(): a command with its own buffers.
  async #timeReads(n, bytes, window, make) {
    const s = await this.#time(list(Array.from({ length: n }, make)));
    this.clear();
    return Math.max(s - window, s / 100) / n / bytes;
  }

  #timeProduct({ width, nMatrices }, type, bits, rows, window) {
    const bytes = (width * width * bits) / 8;
    this.#compile(PRODUCT, type, rows > 1 ? TILE : 1);
    return this.#timeReads(nMatrices, bytes, window, () =>
      command({ kernel: PRODUCT, type, w: this.#zeros(bytes), groups: [width / 16, rows > 1 ? Math.ceil(rows / TILE) : 1], columns: width, rows, y: width * rows, ldy: width, n_out: width }));
  }

  #timeAttention({ width, nHead, nHeadKv, nCells, nMatrices }, rows, window) {
    const bytes = nCells * nHeadKv * HEAD_DIM * 2;
    // n_cells of each row, offset of its block table; the table
    const numbers = [...Array(rows).fill(nCells), ...Array(rows).fill(2 * rows), ...Array(nCells / 64).keys()];
    this.device.queue.writeBuffer(this.grown.numbers, 0, Int32Array.from(numbers));
    return this.#timeReads(nMatrices, 2 * bytes, window, () =>
      command({ kernel: ATTEND, k: this.#zeros(bytes), v: this.#zeros(bytes), groups: [nHead, rows], ldx: width, y: width * rows, ldy: width, n_head: nHead, n_head_kv: nHeadKv, head_dim: HEAD_DIM, tables: rows }));
  }

  // types: { type, bits }, by name. Returns seconds: per byte of weights of each type and of keys and values, for one row and for
  // a prompt's rows; per small operation; per window. layer: { width, nHead, nHeadKv, nCells, nMatrices, nOps }: cells that a
  // token sees; matrices, enough to exceed a cache; operations per submission.
  async measure(types, promptRows, layer) {
    const { width, nCells, nOps } = layer, both = [1, promptRows];
    this.#grow('arena', 8 * width * promptRows, USAGE.weights);
    this.#grow('numbers', 4 * (2 * promptRows + nCells / 64), USAGE.weights);
    const norm = command({ kernel: NORM, groups: [1, 1], w: this.#zeros(4 * width), columns: width, y: width });
    const window = await this.#time(list([norm])), op = Math.max(0, (await this.#time(list(Array(nOps).fill(norm)))) - window) / (nOps - 1);
    const products = [], attention = [];
    for (const { type, bits } of Object.values(types)) {
      const seconds = [];
      for (const rows of both) seconds.push(await this.#timeProduct(layer, type, bits, rows, window));
      products.push(seconds);
    }
    for (const rows of both) attention.push(await this.#timeAttention(layer, rows, window));
    return { products, attention, op, window };
  }
}

// The layout of web/engine/gpu.c.
function command({ kernel, type = 0, w = 0, k = 0, v = 0, groups, columns = 0, rows = 1, y = 0, ldx = 0, ldy = 0, n_out = 0, n_head = 0, n_head_kv = 0, head_dim = 0, tables = 0 }) {
  const words = new Uint32Array(COMMAND_BYTES / 4);
  words.set([kernel, type, w, 0, k, v, ...groups, columns, rows, 0, y, ldx, ldy, n_out, 0, 0, 0, 0, n_head, n_head_kv, head_dim, 0, 0, 0, 0, 0, tables]);
  return words;
}

function list(commands) {
  const all = new Uint32Array((commands.length * COMMAND_BYTES) / 4);
  commands.forEach((one, i) => all.set(one, (i * COMMAND_BYTES) / 4));
  return all;
}

// ---- messages

let gpu, flag, words;

async function answer({ what, args }) {
  let state = DONE, text;
  try {
    const result = await Promise.race([gpu.failed, gpu[what](...args)]);
    text = result === undefined ? '' : JSON.stringify(result);
    if (gpu.failure) throw new Error(gpu.failure); // it failed while the request was awaited
  } catch (e) {
    [state, text] = [FAILED, gpu.failure ?? e.message];
  }
  words.set(new TextEncoder().encode(text).slice(0, words.length - 1));
  Atomics.store(flag, 0, state);
  Atomics.notify(flag, 0);
}

async function start({ memory, state, software }) {
  flag = new Int32Array(state, 0, 1);
  words = new Uint8Array(state, 4);
  gpu = await Gpu.open(memory, software).catch(() => null);
  postMessage(gpu && { name: gpu.name, isSoftware: gpu.isSoftware });
  gpu?.failed.catch((e) => postMessage({ failure: e.message }));
}

onmessage = ({ data }) => (data.memory ? start(data) : answer(data));
