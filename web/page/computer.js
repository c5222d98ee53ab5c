// The worker that computes: takes plans and steps as frames, returns results. It blocks while it computes.
import { Engine, vectorUnit } from '../engine.js';
import { GpuError } from '../gpu.js';
import { Chunks } from './chunks.js';
import { ECHO, END, PAGES, PLAN, STEP, readFrame, writeFailed, writeFrame, writeReady } from './frames.js';

const PROGRESS_MS = 200;

const here = (path) => new URL(path, import.meta.url);

async function bytesOf(name) {
  const response = await fetch(here(`../${name}`));
  if (!response.ok) throw new Error('this kin was built without the browser engine (it needs clang-19)');
  return response.arrayBuffer();
}

const startThread = (set) => new Promise((done) => {
  const worker = new Worker(here('../engine_thread.js'), { type: 'module' });
  worker.onmessage = () => done(true);
  worker.onerror = () => done(false);
  worker.postMessage(set);
});

const TYPICAL = { layers: 4, bytes: 35e6, ops: 12 }; // typical window of a tab: layers of 2048 columns, Q4_K

let engine, chunks, weights;
let work = Promise.resolve(); // runs tasks one after the other

const host = {
  code: bytesOf,
  thread: startThread,
  gpu: async () => (navigator.gpu ? new Worker(here('../gpu_worker.js'), { type: 'module' }) : null),
  size: (name) => chunks.size(name),
  read: (name, at, bytes) => chunks.read(name, at, bytes),
  log: (line) => console.warn(line),
};

// Infinity: products took no measurable time, or are not computed on this device.
const tokenSeconds = (rates) => rates.window_s + TYPICAL.layers * (TYPICAL.bytes / (rates.token_bytes_s.Q4_K ?? 0) + TYPICAL.ops * rates.op_s);

// Measures the computing device: the GPU if it is required ('on'), or ('auto') if it needs less time per token than the
// processor.
function measure(gpu) {
  const device = engine.gpu;
  if (!device) return engine.rates();
  if (device.isSoftware) return {}; // would take minutes
  let onGpu;
  try {
    onGpu = engine.rates();
    if (gpu === 'on') return onGpu;
  } catch { /* without it */ }
  engine.gpu = null;
  const rates = engine.rates();
  if (!onGpu || tokenSeconds(rates) <= tokenSeconds(onGpu)) return device.close(), rates;
  engine.gpu = device;
  return onGpu;
}

// rates: measured earlier, on the GPU if they say so; null: none.
async function start({ threads, cap, rates, gpu }) {
  engine = await Engine.open(host, { threads, gpu: gpu === 'auto' && rates && !rates.gpu ? 'off' : gpu });
  chunks = new Chunks(here('../chunks/'), cap);
  const isKept = rates && !!rates.gpu === !!engine.gpu && (rates.gpu || rates.ways), own = isKept ? rates : measure(gpu);
  engine.setWays(own.ways ?? {}); // {}: for a GPU that was not measured
  if (engine.gpu) engine.gpu.onfailure = withoutGpu;
  postMessage({ type: 'engine', unit: vectorUnit(), threads: engine.threads, gpu: engine.gpu?.name, rates: { ...own, gpu: !!engine.gpu } });
}

const give = (frame) => postMessage(frame, [frame]);

async function openPlan(epoch, payload) {
  const begun = performance.now(), before = chunks.fetched;
  engine.closePlan();
  let told = 0;
  await chunks.open(weights, (done, total, fetched) => {
    if (done < total && performance.now() - told < PROGRESS_MS) return;
    told = performance.now();
    postMessage({ type: 'progress', done, total, fetched: fetched - before });
  });
  engine.openPlan(payload, weights.files[0].name);
  chunks.close();
  postMessage({ type: 'opened', windows: weights.windows, layers: weights.layers, fetched: chunks.fetched - before, ms: performance.now() - begun });
  return writeReady(epoch, engine.sizes());
}

// Sends the answer to the ring before it informs the page, because the ring is waiting.
function compute(type, epoch, payload) {
  const begun = performance.now(), answer = writeFrame(type, epoch, engine.take(payload, type)), ms = performance.now() - begun;
  give(answer);
  if (type === STEP) postMessage({ type: 'step', ms, tokens: new DataView(payload.buffer, payload.byteOffset).getUint32(16, true) });
}

// Then evicts the caches, to match the state after a token's work.
function echo(epoch, payload) {
  give(writeFrame(ECHO, epoch, payload));
  engine.cool();
}

async function answerTo({ type, epoch, payload }) {
  if (type === PLAN) give(await openPlan(epoch, payload));
  if (type === STEP || type === PAGES) compute(type, epoch, payload);
  if (type === ECHO) echo(epoch, payload);
  if (type === END) engine.reset();
}

const withoutGpu = (reason) => postMessage({ type: 'no-gpu', reason });

async function onFrame(buffer) {
  const frame = readFrame(buffer);
  try {
    await answerTo(frame);
  } catch (e) {
    if (e instanceof GpuError) return withoutGpu(e.message);
    // After a trap the module's results cannot be trusted.
    if (e instanceof WebAssembly.RuntimeError) throw new Error(`The engine failed (${e.message}). Reload this page to join again.`);
    give(writeFailed(frame.epoch, e.message));
  }
}

async function take(data) {
  if (data instanceof ArrayBuffer) return onFrame(data);
  if (data.type === 'start') return start(data);
  weights = data; // for the PLAN that follows
}

onmessage = ({ data }) => (work = work.then(() => take(data)).catch((e) => postMessage({ type: 'broken', reason: e.message })));
