// A ring of a head and a tab that runs in node: no browser, but the engine's modules, and a tab's frames and messages.
//
//   node tab.mjs KIN MODEL DIR MODULES       exit 0, or 1
import { createHash } from 'node:crypto';
import { mkdirSync } from 'node:fs';
import { readFile } from 'node:fs/promises';
import { Engine } from '../../web/engine.js';
import { ECHO, END, PLAN, readFrame, writeFailed, writeFrame, writeReady } from '../../web/page/frames.js';
import { killAll, run, same, serve, serveRing, stop, until, write } from './ring.mjs';
import { openWebSocket } from './websocket.mjs';

const [kin, model, dir, modules] = process.argv.slice(2);

// ---- the tab

// hangs: it opens its layers but answers no step
async function joinAsTab(base, code, hangs = false) {
  const tab = { layers: 0, steps: 0, files: new Map(), said: [] };
  const host = {
    code: (name) => readFile(`${modules}/${name}`),
    log: console.error,
    size: (name) => tab.files.get(name)?.length ?? -1,
    read: (name, at, bytes) => (bytes.set(tab.files.get(name).subarray(at, at + bytes.length)), true),
  };
  const engine = await Engine.open(host, { threads: 1, unit: 'simd128' });
  let weights;
  async function fetchWeights() {
    for (const { name, size } of weights.files) tab.files.set(name, new Uint8Array(size));
    for (const [hash, file, offset] of weights.chunks) {
      const bytes = Buffer.from(await (await fetch(`${base}/join/chunks/${hash}`, { headers: { 'X-Kin-Tab': weights.token } })).arrayBuffer());
      if (createHash('sha256').update(bytes).digest('hex') !== hash) throw new Error('a chunk is damaged');
      tab.files.get(weights.files[file].name).set(bytes, offset);
    }
  }
  async function answerTo({ type, epoch, payload }) {
    if (type === END) return engine.reset();
    if (type === ECHO) {
      setTimeout(() => socket.send(JSON.stringify({ type: 'rested' })), 1);
      return writeFrame(type, epoch, payload);
    }
    tab.steps += type !== PLAN;
    if (type !== PLAN && hangs) return null;
    if (type !== PLAN) return writeFrame(type, epoch, engine.take(payload, type));
    await fetchWeights();
    engine.openPlan(payload, weights.files[0].name);
    tab.layers = weights.windows.reduce((n, [from, to]) => n + to - from, 0);
    return writeReady(epoch, engine.sizes());
  }
  let work = Promise.resolve();
  async function takeFrame(buffer) {
    const frame = readFrame(buffer);
    const answer = await answerTo(frame).catch((e) => writeFailed(frame.epoch, e.message));
    if (answer) socket.send(answer);
  }
  function take(message) {
    if (message instanceof ArrayBuffer) return (work = work.then(() => takeFrame(message)));
    const m = JSON.parse(message);
    tab.said.push(m);
    if (m.type === 'ping') socket.send(JSON.stringify({ type: 'pong' }));
    if (m.type === 'ahead') socket.send(JSON.stringify({ type: 'ahead', ticket: m.ticket, here: true })); // it fetches later
    if (m.type === 'weights') work = work.then(() => (weights = m));
  }
  const socket = openWebSocket(`${base}/join/ws`, take, () => (tab.ended = true));
  socket.send(JSON.stringify({ type: 'hello', code, name: 'node', cpu: 'node', threads: 1, memory: 2 ** 30 }));
  tab.close = socket.close;
  return tab;
}

// Joins with n tabs that only answer pings, all connected before the first of them says hello. Returns their first messages.
async function joinIdly(base, code, n) {
  const firsts = [];
  const take = (i) => (message) => {
    if (typeof message !== 'string') return;
    const m = JSON.parse(message);
    firsts[i] ??= m;
    if (m.type === 'ping') idle[i].send(JSON.stringify({ type: 'pong' }));
  };
  const idle = Array.from({ length: n }, (_, i) => openWebSocket(`${base}/join/ws`, take(i), () => {}));
  await until('idle tabs are connected', () => idle.every((one) => one.isOpen));
  for (const one of idle) one.send(JSON.stringify({ type: 'hello', code, name: 'idle', cpu: 'node', threads: 1, memory: 2 ** 30 }));
  await until('idle tabs are answered', () => firsts.filter(Boolean).length === n);
  return firsts;
}

try {
  const alone = await serve(kin, model);
  const want = await write(alone.base);
  await stop(alone);
  mkdirSync(dir, { recursive: true });
  const head = await serveRing(kin, model, dir);
  const stranger = await joinAsTab(head.base, '0000-0000-0000-0000');
  await until('a wrong code is refused', () => stranger.ended);
  if (!stranger.said.some((m) => m.type === 'refused' && m.reason.includes('wrong code'))) throw new Error('no sentence');
  const tab = await until('the code is looked at again', async () => { // after a wrong code the head checks none for a second
    const one = await joinAsTab(head.base, head.code);
    await until('an answer', () => one.ended || one.said.some((m) => m.type === 'welcome'));
    return !one.ended && one;
  });
  await until('the tab has layers', () => tab.layers);
  await until('the ring is up', async () => (await fetch(`${head.base}/health`)).ok);
  same(await write(head.base), want, 'a ring with a tab writes what one machine writes');
  if (!tab.steps) throw new Error('the tab was not asked for anything');
  const long = await write(head.base, 400);
  same(await write(head.base, 400, tab.close), long, 'a text goes on when the tab is lost');
  same(await write(head.base), want, 'the head goes on alone');
  const stuck = await joinAsTab(head.base, head.code, true);
  await until('the tab that hangs has layers', () => stuck.layers);
  same(await write(head.base), want, 'a text goes on when a tab answers echoes, but no step');
  if (!stuck.steps || !stuck.said.some((m) => m.type === 'refused' && m.reason.includes('computation hangs'))) throw new Error('no sentence for a tab that hangs');
  for (const n of [8, 7]) await joinIdly(head.base, head.code, n);
  const [in16, in17] = await joinIdly(head.base, head.code, 2); // connected while there was room
  if (in16.type !== 'welcome' || in17.type !== 'refused' || !in17.reason.includes('too many tabs')) throw new Error(`17 tabs: ${JSON.stringify([in16, in17])}`);
  await stop(head);
  const one = await run(kin, model, dir, '-n', '40', '--browsers', '0');
  const last = await joinAsTab(one.base, one.code);
  await until('kin run has ended', () => one.exitCode !== null || one.signalCode);
  same(one.wrote, `${want}\n`, "kin run's text with a tab is that of one machine");
  if (one.exitCode !== 0 || !last.steps || !last.ended) throw new Error(`${one.exitCode}, ${last.steps} steps: ${one.said}`);
} catch (e) {
  console.log(`not ok - ${e.stack}`);
  process.exitCode = 1;
} finally {
  killAll();
}
process.exit();
