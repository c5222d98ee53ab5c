// What four streams notice of others at the same server: the time between their tokens, alone and beside them.
//
//   node bench/beside.mjs [--idle 10000] [--vanish 1000] [--slow 200] [--large 20] [--readers 8] [--seconds 10] [--pid PID] URL
//
// URL is a server with llama.cpp's native API (kin serve, llama-server) and its metrics, just started. Beside the four streams are, in turns: so many
// connections that asked once, long ago; nobody; so many that vanish in the middle of a stream; so many whose header comes byte by byte; so many
// bodies that are too large; as much garbage; so many readers of streams with many bytes per token, who read; the same who take no byte of them; nobody.
// With --pid also the memory of that process, and what one of the idle connections takes. Ends with 1 if a stream had another text than before, one of
// the others got what is not due, or something of them is left at the end.
import fs from 'node:fs';
import net from 'node:net';
import process from 'node:process';

import { readArguments } from './arguments.mjs';

const options = { idle: 10000, vanish: 1000, slow: 200, large: 20, readers: 8, seconds: 10, pid: 0 };
const url = new URL(readArguments(options, 'beside.mjs [OPTIONS] URL').at(-1));

const WITHIN_MS = 60000; // for what takes milliseconds, however busy the machine is
const quantile = (list, q) => [...list].sort((a, b) => a - b)[Math.min(list.length - 1, Math.floor(q * list.length))];
const rss = () => (options.pid ? +/VmRSS:\s*(\d+)/.exec(fs.readFileSync(`/proc/${options.pid}/status`, 'utf8'))[1] * 1024 : 0);
const settle = Math.min(500, options.seconds * 1000); // until readers have begun, or are forgotten
const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
let serial = 0, n_failed = 0;
const fail = (what) => n_failed++ < 20 && console.log(`failed: ${what}`);
const first = new Map(); // the text of each prompt

function check(prompt, text) {
  const events = text.split('\n').filter((line) => line.startsWith('data: ')).map((line) => JSON.parse(line.slice(6)));
  const got = events.map((e) => e.content).join('');
  if (!events.at(-1)?.stop) return fail(`${prompt}: ends with ${JSON.stringify(text.slice(-100))}`);
  if (!first.has(prompt)) first.set(prompt, got);
  if (first.get(prompt) !== got) fail(`${prompt}: ${JSON.stringify(got)}, and before ${JSON.stringify(first.get(prompt))}`);
}

async function stream(until, gaps) {
  while (Date.now() < until) {
    const prompt = `${serial++ % 16} days ago a fox went up the hill`, decoder = new TextDecoder();
    const body = JSON.stringify({ prompt, n_predict: 100, stream: true, temperature: 0, ignore_eos: true });
    const response = await fetch(new URL('/completion', url), { method: 'POST', body });
    if (!response.ok) throw new Error(`${response.status} ${await response.text()}`);
    let last = 0, text = '';
    for await (const piece of response.body) {
      const now = performance.now();
      if (last) gaps.push(now - last);
      last = now;
      text += decoder.decode(piece, { stream: true });
    }
    check(prompt, text);
  }
}

async function measure(what) {
  const gaps = [], until = Date.now() + options.seconds * 1000;
  await Promise.all(Array.from({ length: 4 }, () => stream(until, gaps)));
  const [p50, p99, most] = [0.5, 0.99, 1].map((q) => quantile(gaps, q).toFixed(1));
  console.log(`${what.padEnd(28)} ${gaps.length} tokens, ms between: p50 ${p50}, p99 ${p99}, longest ${most}${options.pid ? `; rss ${(rss() / 2 ** 20).toFixed(1)} MiB` : ''}`);
}

const connect = () => new Promise((resolve, reject) => {
  const socket = net.connect({ host: url.hostname, port: +url.port }, () => resolve(socket));
  socket.on('error', reject);
});

// A connection that asked once.
async function idler() {
  const socket = await connect();
  socket.write('GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n');
  await new Promise((resolve) => socket.once('data', resolve));
  return socket;
}

// A stream of about 10 kB per token; bytes: those that have come.
async function reader(reads) {
  const state = { socket: await connect(), bytes: 0, open: true };
  const body = JSON.stringify({ prompt: `${serial++} days ago`, n_predict: 100000, stream: true, ignore_eos: true, n_probs: 100 });
  state.socket.on('close', () => (state.open = false)).on('error', () => {});
  if (reads) state.socket.on('data', (piece) => (state.bytes += piece.length));
  else state.socket.pause();
  state.socket.write(`POST /completion HTTP/1.1\r\nHost: localhost\r\nContent-Length: ${body.length}\r\n\r\n${body}`);
  return state;
}

async function beside(what, reads) {
  const readers = await Promise.all(Array.from({ length: options.readers }, () => reader(reads)));
  await pause(settle);
  await measure(`${options.readers} ${what}`);
  console.log(`${''.padEnd(28)} of them ${readers.filter((r) => r.open).length} still open, with ${(readers.reduce((sum, r) => sum + r.bytes, 0) / 2 ** 20).toFixed(0)} MiB read`);
  for (const { socket } of readers) socket.destroy();
  await pause(settle);
}

// ---- who does not behave

const head = (length) => `POST /completion HTTP/1.1\r\nHost: localhost\r\nContent-Length: ${length}\r\n\r\n`;

// Sends, and waits for an answer of that status, or for the end.
async function expect(what, sent, answer) {
  const socket = await connect();
  let text = '';
  const closed = new Promise((resolve) => socket.on('close', resolve));
  socket.on('data', (piece) => (text += piece.toString('latin1')));
  socket.write(sent);
  await Promise.race([closed, pause(WITHIN_MS)]);
  socket.destroy();
  if (!answer.test(text)) fail(`${what}: ${JSON.stringify(text.slice(0, 200))}`);
}

// Goes away after a few bytes of a text that has no end.
async function vanish(i) {
  const body = JSON.stringify({ prompt: `${i} years ago`, n_predict: 100000, stream: true, ignore_eos: true });
  const socket = await connect();
  socket.write(head(body.length) + body);
  for (let n = 0; n <= i % 5; n++) await new Promise((resolve) => socket.once('data', resolve).once('close', resolve));
  socket.destroy();
}

// A header that does not end, a byte now and then.
async function slow(i, until) {
  const socket = await connect();
  socket.write('GET /health HTTP/1.1\r\nHost: localhost\r\nX: ');
  for (; Date.now() < until && !socket.destroyed; await pause(100 + (i % 50))) socket.write('x');
  socket.destroy();
}

const large = () => expect('a large body', head(2 ** 32), /^HTTP\/1.1 413 /);
const garbage = (i) => expect('garbage', [`\0${i}\r\n\r\n`, 'PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n', `GET / HTTP/1.1\r\n${'X: y\r\n'.repeat(20000)}\r\n`][i % 3], /^HTTP\/1.1 [45]/);

// n of them beside the streams, a few at a time, all before the streams end.
async function crowd(what, n, one) {
  const until = Date.now() + options.seconds * 1000;
  let next = 0;
  const some = async () => {
    while (next < n) await one(next++, until);
  };
  await Promise.all([measure(`${n} ${what}`), ...Array.from({ length: one === slow ? n : 8 }, some)]);
}

// What is computed for others than these streams, when they have ended.
async function left() {
  let n = 'unknown';
  for (const until = Date.now() + WITHIN_MS; n !== '0' && Date.now() < until; ) {
    n = /requests_processing (\d+)/.exec(await (await fetch(new URL('/metrics', url))).text())?.[1] ?? 'unknown';
    await pause(20);
  }
  if (n !== '0') fail(`still processed: ${n}`);
}

// The second half tells what a connection takes: the first one may find room that the start has left.
const idle = [];
let half = 0;
while (idle.length < options.idle) {
  idle.push(...(await Promise.all(Array.from({ length: Math.min(500, options.idle - idle.length) }, idler))));
  if (!half && idle.length >= options.idle / 2) half = rss();
}
await pause(1000);
if (options.pid && options.idle) console.log(`${`${idle.length} idle`.padEnd(28)} ${(((rss() - half) / options.idle) * 2).toFixed(0)} bytes each`);
await measure('warming up');
await measure(`${idle.length} idle`);
console.log(`${''.padEnd(28)} of them ${idle.filter((s) => s.readyState === 'open').length} still open`);
for (const socket of idle) socket.destroy();
await pause(1000);
await measure('nobody');
await crowd('that vanish', options.vanish, vanish);
await left();
await crowd('slow headers', options.slow, slow);
await crowd('bodies too large', options.large, large);
await crowd('pieces of garbage', options.large, garbage);
if (options.readers) await beside('who read', true);
if (options.readers) await beside('who stall', false);
await measure('nobody');
await left();
process.exit(n_failed ? 1 : 0);
