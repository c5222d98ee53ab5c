// The worker that computes (web/page/computer.js), with node in place of a browser: the variant by which it multiplies rows, and its
// message when its engine has failed.
//
//   node computer.mjs MODULES       exit 0, or 1
import { basename } from 'node:path';
import { readFile } from 'node:fs/promises';
import { bestWay } from '../../web/engine.js';
import { STEP, writeFrame } from '../../web/page/frames.js';

const [modules] = process.argv.slice(2);
const said = [], waiting = [];

globalThis.onmessage = null;
console.warn = () => {}; // hides the messages about traps
globalThis.postMessage = (message) => (waiting.length ? waiting.shift()(message) : said.push(message));
globalThis.fetch = async (url) => ({ ok: true, arrayBuffer: async () => new Uint8Array(await readFile(`${modules}/${basename(url.pathname)}`)).buffer });
const next = () => (said.length ? Promise.resolve(said.shift()) : new Promise((done) => waiting.push(done)));

// Seconds of the variants 0 to 3 (kernels/kernels.h); 1 and 3 use two streams.
for (const [seconds, way] of [[[10, 20, 9, 21], 2], [[10, 11, 9, 10], 3], [[20, 24, 19, 21], 3], [[10, 11, 30, 31], 1], [[10], 0], [[-1, -1, -1, -1], 0]])
  if (bestWay(seconds) !== way) throw new Error(`of ${seconds} way ${bestWay(seconds)} is taken`);
console.log('ok - a tab takes the fastest way, and two streams unless they take longer by much');

const { instantiate } = WebAssembly, set = {};
WebAssembly.instantiate = async (...args) => {
  const { exports } = await instantiate(...args);
  return { exports: { ...exports, set_way: (type, way) => { set[type] = way; } } };
};

await import('../../web/page/computer.js');
globalThis.onmessage({ data: { type: 'start', threads: 1, cap: 0, rates: { ways: { 12: 3, 14: 1 } } } });
if ((await next()).type !== 'engine') throw new Error('no engine');
if (set[12] !== 3 || set[14] !== 1 || set[8] !== 0) throw new Error(`ways that were kept are not set: ${JSON.stringify(set)}`);
console.log('ok - a tab that was reloaded multiplies in the ways that were measured before');
globalThis.onmessage({ data: writeFrame(STEP, 1, new Uint8Array(32)) }); // without a plan, as no head sends it: the module traps
const message = await next();
if (message.type !== 'broken' || !message.reason.includes('Reload this page')) throw new Error('a module that has trapped goes on');
console.log('ok - a module that has trapped computes no more');
