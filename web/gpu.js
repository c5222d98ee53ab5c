// The engine's GPU as the computing thread sees it: a worker (gpu_worker.js) that answers requests while the thread blocks in
// Atomics.wait.
const MOST_MS = 60_000, MOST_BYTES = 4000; // MOST_BYTES: of an answer
export const DONE = 1, FAILED = 2;

// The GPU cannot compute it, or was lost: WebAssembly must compute instead.
export class GpuError extends Error {}

// host.gpu(): promise of that worker, or null. software: accept a software implementation. Returns null if there is no GPU; or {
// name, isSoftware, ask(what, ...), close(), onfailure(reason) }; onfailure is called if the GPU is lost between requests.
export async function openGpu(host, memory, software) {
  const worker = await host.gpu?.();
  if (!worker) return null;
  const state = new SharedArrayBuffer(4 + MOST_BYTES), flag = new Int32Array(state, 0, 1), words = new Uint8Array(state, 4);
  const is = await new Promise((done) => {
    worker.onmessage = ({ data }) => done(data);
    worker.onerror = () => done(null);
    worker.postMessage({ memory, state, software });
  });
  if (!is) return worker.terminate(), null;
  const ask = (what, ...args) => {
    Atomics.store(flag, 0, 0);
    words.fill(0);
    worker.postMessage({ what, args });
    if (Atomics.wait(flag, 0, 0, MOST_MS) === 'timed-out') throw new GpuError('the GPU does not answer');
    const text = new TextDecoder().decode(words.slice(0, words.indexOf(0)));
    if (Atomics.load(flag, 0) === FAILED) throw new GpuError(text);
    return text ? JSON.parse(text) : undefined;
  };
  const gpu = { ...is, ask, close: () => worker.terminate(), onfailure: () => {} };
  worker.onmessage = ({ data }) => gpu.onfailure(data.failure);
  return gpu;
}
