// The worker that computes (web/page/computer.js), where node stands in for a browser: what it says when its engine has failed.
//
//   node computer.mjs MODULES       exit 0, or 1
import { basename } from 'node:path';
import { readFile } from 'node:fs/promises';
import { STEP, writeFrame } from '../../web/page/frames.js';

const [modules] = process.argv.slice(2);
const said = [], waiting = [];

globalThis.onmessage = null;
console.warn = () => {}; // what trapped
globalThis.postMessage = (message) => (waiting.length ? waiting.shift()(message) : said.push(message));
globalThis.fetch = async (url) => ({ ok: true, arrayBuffer: async () => new Uint8Array(await readFile(`${modules}/${basename(url.pathname)}`)).buffer });
const next = () => (said.length ? Promise.resolve(said.shift()) : new Promise((done) => waiting.push(done)));

await import('../../web/page/computer.js');
globalThis.onmessage({ data: { type: 'start', threads: 1, cap: 0, rates: { ways: {} } } });
if ((await next()).type !== 'engine') throw new Error('no engine');
globalThis.onmessage({ data: writeFrame(STEP, 1, new Uint8Array(32)) }); // without a plan, which no head sends: the module traps
const message = await next();
if (message.type !== 'broken' || !message.reason.includes('Reload this page')) throw new Error('a module that has trapped goes on');
console.log('ok - a module that has trapped computes no more');
