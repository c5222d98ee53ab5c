// Computes cases in node: node engine.mjs MODULES UNIT THREADS MODEL CASE OUT [MODEL CASE OUT ...]
// MODULES: the folder that tools/web fills. Exit 77: this node does not support the unit's instructions.
import { closeSync, fstatSync, openSync, readFileSync, readSync, writeFileSync } from 'node:fs';
import { readFile } from 'node:fs/promises';
import { isMainThread, parentPort, Worker, workerData } from 'node:worker_threads';

import { Engine, vectorUnit } from '../../web/engine.js';
import { runThread } from '../../web/engine_thread.js';
import { compute, say } from './case.mjs';

const files = new Map(); // name -> descriptor

const host = (modules) => ({
  code: (name) => readFile(`${modules}/${name}`),
  thread: (set) => new Promise((done) => {
    const worker = new Worker(new URL(import.meta.url), { workerData: set });
    worker.unref();
    worker.once('message', () => done(true));
    worker.once('error', (e) => (console.error(e), done(false)));
  }),
  size: (name) => fstatSync(files.get(name)).size,
  read: (name, at, bytes) => readSync(files.get(name), bytes, 0, bytes.length, at) === bytes.length,
  log: console.error,
});

if (isMainThread) {
  const [modules, unit, threads, ...cases] = process.argv.slice(2);
  if (unit === 'relaxed' && vectorUnit() !== 'relaxed') process.exit(77);
  const engine = await Engine.open(host(modules), { threads: Number(threads), unit });
  if (engine.threads !== Number(threads) || engine.kernels !== unit) throw new Error(`${engine.threads} threads, ${engine.kernels}`);
  engine.setAllWays(Number(process.env.WAY ?? (engine.threads > 1 ? engine.allWays.at(-1) : 0))); // the bits are the same
  for (let i = 0; i < cases.length; i += 3) {
    files.set(cases[i], openSync(cases[i]));
    const times = [];
    writeFileSync(cases[i + 2], Buffer.concat(compute(engine, readFileSync(cases[i + 1]), cases[i], times)));
    console.error(say(times));
    closeSync(files.get(cases[i]));
  }
  process.exit(0);
} else {
  runThread(workerData, () => parentPort.postMessage('started'));
}
