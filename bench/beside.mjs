// What four streams notice of others at the same server: the time between their tokens, alone and beside them.
//
//   node bench/beside.mjs [--idle 10000] [--readers 8] [--seconds 10] [--pid PID] URL
//
// URL is a server with llama.cpp's native API (kin serve, llama-server), just started. Beside the four streams are, in turns: so many connections
// that asked once, long ago; nobody; so many readers of streams with many bytes per token, who read; the same who take no byte of them; nobody.
// With --pid also the memory of that process, and what one of the idle connections takes.
import fs from 'node:fs';
import net from 'node:net';
import process from 'node:process';

const options = { idle: 10000, readers: 8, seconds: 10, pid: 0 };
let url;
for (let i = 2; i < process.argv.length; i++) {
  const word = process.argv[i];
  if (word.startsWith('--')) options[word.slice(2)] = +process.argv[++i];
  else url = new URL(word);
}
if (!url) {
  console.error('usage: node bench/beside.mjs [OPTIONS] URL');
  process.exit(2);
}

const quantile = (list, q) => [...list].sort((a, b) => a - b)[Math.min(list.length - 1, Math.floor(q * list.length))];
const rss = () => (options.pid ? +/VmRSS:\s*(\d+)/.exec(fs.readFileSync(`/proc/${options.pid}/status`, 'utf8'))[1] * 1024 : 0);
const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
let serial = 0;

async function stream(until, gaps) {
  while (Date.now() < until) {
    const body = JSON.stringify({ prompt: `${serial++} days ago a fox went up the hill`, n_predict: 100, stream: true, temperature: 0, ignore_eos: true });
    const response = await fetch(new URL('/completion', url), { method: 'POST', body });
    if (!response.ok) throw new Error(`${response.status} ${await response.text()}`);
    let last = 0;
    for await (const piece of response.body) {
      const now = performance.now();
      if (last) gaps.push(now - last);
      last = piece && now;
    }
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
  await pause(500);
  await measure(`${options.readers} ${what}`);
  console.log(`${''.padEnd(28)} of them ${readers.filter((r) => r.open).length} still open, with ${(readers.reduce((sum, r) => sum + r.bytes, 0) / 2 ** 20).toFixed(0)} MiB read`);
  for (const { socket } of readers) socket.destroy();
  await pause(500);
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
await beside('who read', true);
await beside('who stall', false);
await measure('nobody');
process.exit(0);
