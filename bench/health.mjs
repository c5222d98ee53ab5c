// How long /health takes while a large body is read, parsed, refused or answered, and freed:
//
//   node bench/health.mjs [--numbers 20000000] [--every 2] [--rounds 3] URL
//
// URL is kin serve. Bodies have a field that nobody asked for, an array of so many numbers of one digit (40 MB of 20 million); they go to /completion and
// to /v1/embeddings, from a process of their own. Meanwhile /health is asked every so many milliseconds, over one connection, until half a second behind
// the answer. Prints for nobody and for each endpoint: how often it was asked, and the median, the 99th percentile and the longest of its times, in ms;
// of the rounds that with the median longest. Ends with 1 if a body or /health got another answer than 200.
import { fork } from 'node:child_process';
import http from 'node:http';
import process from 'node:process';

import { readArguments } from './arguments.mjs';

const options = { numbers: 20000000, every: 2, rounds: 3, send: '' };
const url = new URL(readArguments(options, 'health.mjs [OPTIONS] URL').at(-1));

const BEHIND_MS = 500, ALONE_MS = 2000;
const quantile = (list, q) => [...list].sort((a, b) => a - b)[Math.min(list.length - 1, Math.floor(q * list.length))];
const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
const asked = { '/completion': { prompt: 'Once', n_predict: 1 }, '/v1/embeddings': { input: 'Once' } };

// ---- the process that sends

async function send(path) {
  const field = Buffer.from(`,"unknown":[${'1,'.repeat(+options.numbers - 1)}1]}`);
  const body = Buffer.concat([Buffer.from(JSON.stringify(asked[path]).slice(0, -1)), field]);
  process.send('ready');
  await new Promise((resolve) => process.once('message', resolve));
  const response = await fetch(new URL(path, url), { method: 'POST', headers: { 'content-type': 'application/json' }, body });
  await response.arrayBuffer();
  process.send(response.status);
  process.disconnect();
}

// ---- the one that asks

let failed = false;
const agent = new http.Agent({ keepAlive: true, maxSockets: 1 });

function ask() {
  const begun = performance.now();
  return new Promise((resolve, reject) => {
    http.get(new URL('/health', url), { agent }, (response) => {
      failed ||= response.statusCode !== 200;
      response.resume().on('end', () => resolve(performance.now() - begun));
    }).on('error', reject);
  });
}

async function askUntil(over) {
  const times = [];
  while (!over()) {
    const took = await ask();
    times.push(took);
    if (took < +options.every) await pause(+options.every - took);
  }
  return times;
}

async function beside(path) {
  const sender = fork(process.argv[1], ['--send', path, '--numbers', options.numbers, url.href]);
  let end = Infinity;
  await new Promise((resolve) => sender.once('message', resolve));
  sender.once('message', (status) => {
    if (status !== 200) console.log(`${path}: status ${status}`);
    failed ||= status !== 200;
    end = performance.now() + BEHIND_MS;
  });
  sender.send('go');
  return askUntil(() => performance.now() > end);
}

async function measure(name, run) {
  const rounds = [];
  for (let i = 0; i < +options.rounds; i++) rounds.push(await run());
  rounds.sort((a, b) => Math.max(...a) - Math.max(...b));
  const times = rounds[Math.floor(rounds.length / 2)], all = rounds.map((r) => Math.max(...r).toFixed(1)).join(', ');
  const [median, p99] = [0.5, 0.99].map((q) => quantile(times, q).toFixed(2));
  console.log(`${name.padEnd(16)} asked ${times.length}   median ${median}   p99 ${p99}   longest ${Math.max(...times).toFixed(1)} (${all})`);
}

if (options.send) {
  await send(options.send);
} else {
  await measure('nobody', () => {
    const end = performance.now() + ALONE_MS;
    return askUntil(() => performance.now() > end);
  });
  for (const path of Object.keys(asked)) await measure(path, () => beside(path));
  agent.destroy();
  process.exitCode = failed ? 1 : 0;
}
