// In Chromium: computes the cases that the server has, and gives it what came of them.
import { Engine, TYPES } from '../../web/engine.js';
import { GpuError } from '../../web/gpu.js';
import { compute, say } from './case.mjs';

const asked = new URLSearchParams(location.search);
const models = new Map();
const get = async (path) => new Uint8Array(await (await fetch(path)).arrayBuffer());
const give = (path, body) => fetch(path, { method: 'POST', body });

const host = {
  code: (name) => get(`/code/${name}`),
  thread: (set) => new Promise((done) => {
    const worker = new Worker('/kin/web/engine_thread.js', { type: 'module' });
    worker.onmessage = () => done(true);
    worker.onerror = () => done(false);
    worker.postMessage(set);
  }),
  gpu: async () => new Worker('/kin/web/gpu_worker.js', { type: 'module' }),
  size: (name) => models.get(name).length,
  read: (name, at, bytes) => (bytes.set(models.get(name).subarray(at, at + bytes.length)), true),
  log: (line) => give('/failed', line),
};

// For bench/web_kernels.sh: one row times weights of each type, and attention over keys and values, GB/s, the best of several rounds, of
// products in the fastest way unless one is asked for.
function listRates(engine, bytes, backend) {
  const rate = (type) => 1e-9 / engine.exports.product_s(type, 1, engine.threads, bytes, backend);
  const most = (measure) => Math.max(...Array.from({ length: 5 }, measure));
  const ways = asked.has('way') ? [Number(asked.get('way'))] : engine.allWays;
  const best = (measure) => Math.max(...ways.map((way) => (engine.setAllWays(way), most(measure)))).toFixed(2);
  const said = Object.entries(TYPES).map(([name, { type }]) => `${name} ${best(() => rate(type))}`);
  return backend ? said : [...said, `attention ${most(() => 1e-9 / engine.exports.attend_s(1, engine.threads, bytes)).toFixed(2)}`];
}

// That a GPU is measured, and that it says what it does not compute.
function checkGpu(gpu) {
  const layer = { width: 256, nHead: 4, nHeadKv: 1, nCells: 64, nMatrices: 2, nOps: 10 };
  const { products: [product], attention, op, window } = gpu.ask('measure', { Q4_K: TYPES.Q4_K }, 64, layer);
  if (![...product, ...attention, window].every((s) => s > 0 && s < 1) || !(op >= 0 && op < 1)) throw new Error(`measured: ${product}, ${attention}, ${op}, ${window}`);
  try {
    gpu.ask('put', 99, 0, 64);
  } catch (e) {
    if (e instanceof GpuError && e.message.includes('Q6_K')) return;
  }
  throw new Error('weights of any type are taken');
}

try {
  const threads = Number(asked.get('threads'));
  const engine = await Engine.open(host, { threads, unit: asked.get('unit'), gpu: asked.get('gpu') });
  if (engine.threads !== threads || engine.kernels !== asked.get('unit')) throw new Error(`${engine.threads} threads, ${engine.kernels}`);
  if (asked.get('gpu') === 'on' && !engine.gpu) {
    await give('/skipped', 'this Chromium has no WebGPU');
    close();
  }
  engine.setAllWays(Number(asked.get('way') ?? 0));
  const said = [`${navigator.userAgent}, isolated: ${crossOriginIsolated}`];
  for (let i = 0; i < Number(asked.get('n')); i++) {
    models.set('model', await get(`/model/${i}`));
    const times = [];
    await give(`/out/${i}`, new Blob(compute(engine, await get(`/case/${i}`), 'model', times)));
    said.push(say(times));
  }
  if (engine.gpu) checkGpu(engine.gpu);
  if (asked.get('bytes')) said.push(...listRates(engine, Number(asked.get('bytes')), Number(asked.get('backend'))));
  await give('/done', said.join('\n'));
} catch (e) {
  await give('/failed', `${e.stack}`);
}
