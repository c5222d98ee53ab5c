// In Chromium: computes the cases that the server has, and gives it what came of them.
import { Engine, TYPES } from '../../web/engine.js';
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
  size: (name) => models.get(name).length,
  read: (name, at, bytes) => (bytes.set(models.get(name).subarray(at, at + bytes.length)), true),
  log: (line) => give('/failed', line),
};

// For bench/web_kernels.sh: one row times weights of each type, and attention over keys and values, GB/s, the best of several rounds.
function sayRates(engine, bytes, backend) {
  const rate = (type) => 1e-9 / engine.exports.product_s(type, 1, engine.threads, bytes, backend);
  const best = (measure) => Math.max(...Array.from({ length: 5 }, measure)).toFixed(2);
  const said = Object.entries(TYPES).map(([name, { type }]) => `${name} ${best(() => rate(type))}`);
  return backend ? said : [...said, `attention ${best(() => 1e-9 / engine.exports.attend_s(1, engine.threads, bytes))}`];
}

try {
  const threads = Number(asked.get('threads'));
  const engine = await Engine.open(host, { threads, unit: asked.get('unit') });
  if (engine.threads !== threads || engine.kernels !== asked.get('unit')) throw new Error(`${engine.threads} threads, ${engine.kernels}`);
  const said = [`${navigator.userAgent}, isolated: ${crossOriginIsolated}`];
  for (let i = 0; i < Number(asked.get('n')); i++) {
    models.set('model', await get(`/model/${i}`));
    const times = [];
    await give(`/out/${i}`, new Blob(compute(engine, await get(`/case/${i}`), 'model', times)));
    said.push(say(times));
  }
  if (asked.get('bytes')) said.push(...sayRates(engine, Number(asked.get('bytes')), Number(asked.get('backend'))));
  await give('/done', said.join('\n'));
} catch (e) {
  await give('/failed', `${e.stack}`);
}
