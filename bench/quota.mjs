// What a token costs while one of kin's threads may use 5 % of a processor: root, Linux, cgroup v1.
//
//   node bench/quota.mjs [--kin build/kin] [--tokens 200] [--rounds 3] [--percent 5] MODEL.gguf
//
// Starts `kin serve -t 2` and generates texts, in turns: without a limit, and with a limit for the thread that computes beside the
// caller. The kernel stops a thread of which 5 ms in 100 are used up, wherever it is: in a chunk, too. Prints the median, the 99th
// percentile and the longest time of a token, with one thread as well, which is what remains at best. Fails if a text differs.
import { spawn } from 'node:child_process';
import fs from 'node:fs';
import process from 'node:process';

import { readArguments } from './arguments.mjs';

const options = { kin: 'build/kin', tokens: 200, rounds: 3, percent: 5 };
const model = readArguments(options, 'quota.mjs [OPTIONS] MODEL.gguf').at(-1);

const group = `/sys/fs/cgroup/cpu/kin-quota-${process.pid}`, port = 20000 + (process.pid % 9000);
const quantile = (list, q) => [...list].sort((a, b) => a - b)[Math.min(list.length - 1, Math.floor(q * list.length))];

async function serve(threads) {
  const child = spawn(options.kin, ['serve', '-m', model, '-t', String(threads), '--port', String(port)], { stdio: 'ignore' });
  for (;;) {
    const ok = await fetch(`http://127.0.0.1:${port}/health`).then((r) => r.ok, () => false);
    if (ok) return child;
    if (child.exitCode !== null) throw new Error('kin serve ended');
    await new Promise((resolve) => setTimeout(resolve, 100));
  }
}

async function stop(child) {
  const over = new Promise((resolve) => child.once('exit', resolve));
  child.kill();
  await over;
}

// Generates one text; returns it, and the times between its tokens in ms.
async function generate() {
  const body = JSON.stringify({ prompt: 'Once', n_predict: +options.tokens, ignore_eos: true, seed: 7, stream: true, cache_prompt: false });
  const response = await fetch(`http://127.0.0.1:${port}/completion`, { method: 'POST', body });
  let text = '', last = 0;
  const gaps = [];
  for await (const piece of response.body) {
    const now = performance.now();
    for (const match of Buffer.from(piece).toString().matchAll(/"content":"((?:[^"\\]|\\.)*)"/g)) text += match[1];
    if (last) gaps.push(now - last);
    last = now;
  }
  return { text, gaps };
}

// The threads of a process by the processor time that they used, the busiest first: [id, ticks].
const threads_of = (pid) => fs.readdirSync(`/proc/${pid}/task`)
  .map((tid) => [+tid, +fs.readFileSync(`/proc/${pid}/task/${tid}/stat`, 'utf8').split(') ')[1].split(' ')[11]])
  .sort((a, b) => b[1] - a[1]);

const results = {};
let expected;
async function measure(name) {
  const { text, gaps } = await generate();
  expected ??= text;
  if (text !== expected) throw new Error(`${name}: another text`);
  (results[name] ??= []).push(...gaps);
}

let child = await serve(1);
try {
  await generate();
  for (let i = 0; i < options.rounds; i++) await measure('one thread');
  await stop(child);
  child = await serve(2);
  await generate();
  const helper = String(Math.max(...threads_of(child.pid).slice(0, 2).map(([tid]) => tid))); // started after the caller
  fs.mkdirSync(group);
  fs.writeFileSync(`${group}/cpu.cfs_period_us`, '100000');
  fs.writeFileSync(`${group}/cpu.cfs_quota_us`, String(1000 * options.percent));
  for (let i = 0; i < options.rounds; i++) {
    await measure('two threads');
    fs.writeFileSync(`${group}/tasks`, helper);
    await measure('helper limited');
    fs.writeFileSync('/sys/fs/cgroup/cpu/tasks', helper);
  }
} finally {
  await stop(child);
  if (fs.existsSync(group)) fs.rmdirSync(group);
}
console.log('                        median    p99  longest ms per token');
for (const [name, gaps] of Object.entries(results))
  console.log(`${name.padEnd(22)}${[0.5, 0.99, 1].map((q) => quantile(gaps, q).toFixed(1).padStart(8)).join('')}`);
