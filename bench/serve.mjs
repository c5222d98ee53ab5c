// How fast servers write many texts at once, in turns:
//
//   node bench/serve.mjs [--streams 1,2,4,8,16,32,64] [--tokens 32] [--prompt 32] [--rounds 3] [--long 4096] NAME=URL...
//
// Each URL is a server with llama.cpp's native API (kin serve, llama-server). Every stream has its own prompt of about so many tokens,
// greedy, without prefix cache. Prints for each number of streams and each server: tokens per second of all streams together (prompts
// included), the same while all of them are written (steady; 0: that was never so), time to first token, time between tokens (p50, p95, p99); medians of the rounds, and their ratio to the last server's.
// --cut 1: when one text has all its tokens, the others end with those that they have: what is steady is over.
// --long N: a prompt of about N tokens comes in among 4 streams; the longest gap between their tokens meanwhile, their steady gap, and the longest in two
// seconds before.

import { readArguments } from './arguments.mjs';

const options = { streams: '1,2,4,8,16,32,64', tokens: 32, prompt: 32, rounds: 3, long: 0, cut: 0 };
const servers = readArguments(options, 'serve.mjs [OPTIONS] NAME=URL...').map((word) => word.split(/=(.*)/s).slice(0, 2));

const quantile = (list, q) => [...list].sort((a, b) => a - b)[Math.min(list.length - 1, Math.floor(q * list.length))];
const words = 'the quick brown fox jumps over the lazy dog and then it sleeps under a tall tree '.split(' ');
const text = (seed, n) => `${seed}: ` + Array.from({ length: n - 3 }, (_, i) => words[(i * (seed % 7 + 1) + seed) % words.length]).join(' ');
let serial = Date.now() % 100000;

// When each event came, in ms, and how many tokens there were by then: an event has several where a character is of more than one.
async function stream(url, nPrompt, nPredict, signal) {
  const begun = performance.now(), times = [], counts = [];
  const body = JSON.stringify({ prompt: text(serial++, nPrompt), n_predict: nPredict, stream: true, temperature: 0, ignore_eos: true, cache_prompt: false });
  const response = await fetch(`${url}/completion`, { method: 'POST', headers: { 'content-type': 'application/json' }, body, signal });
  if (!response.ok) throw new Error(`${url}: ${response.status} ${await response.text()}`);
  const decoder = new TextDecoder();
  let rest = '';
  try {
    for await (const piece of response.body) {
      rest += decoder.decode(piece, { stream: true });
      const events = rest.split('\n\n');
      rest = events.pop();
      for (const event of events) {
        if (!event.startsWith('data:') || event.includes('"stop":true')) continue;
        times.push(performance.now());
        counts.push(+/"tokens_predicted":(\d+)/.exec(event)[1]);
      }
    }
  } catch (error) {
    if (!signal?.aborted) throw error;
  }
  return { begun, times, counts };
}

async function measure(url, n) {
  const begun = performance.now(), over = new AbortController();
  const one = async () => {
    const s = await stream(url, +options.prompt, +options.tokens, over.signal);
    if (+options.cut) over.abort();
    return s;
  };
  const all = await Promise.all(Array.from({ length: n }, one));
  const seconds = (performance.now() - begun) / 1000;
  const gaps = all.flatMap((s) => s.times.slice(1).map((t, i) => t - s.times[i]));
  const from = Math.max(...all.map((s) => s.times[0] ?? Infinity)), to = Math.min(...all.map((s) => s.times.at(-1) ?? 0));
  const half = quantile(gaps, 0.5) / 2; // tokens of one step come one after the other: the ends are between steps
  const steady = all.flatMap((s) => s.times).filter((t) => t > from + half && t <= to + half).length / Math.max(1e-3, to - from) * 1000;
  return { rate: all.reduce((sum, s) => sum + s.times.length, 0) / seconds, steady, first: quantile(all.map((s) => s.times[0] - s.begun), 0.5),
    p50: quantile(gaps, 0.5), p95: quantile(gaps, 0.95), p99: quantile(gaps, 0.99) };
}

// The longest gap of four streams while a long prompt is computed, and their gap before.
async function disturb(url) {
  const four = Promise.all(Array.from({ length: 4 }, () => stream(url, 16, 160)));
  await new Promise((resolve) => setTimeout(resolve, 3000));
  const arrived = performance.now();
  const long = await stream(url, +options.long, 2);
  const gaps = (await four).flatMap((s) => s.times.slice(1).map((t, i) => ({ at: t, gap: (t - s.times[i]) / (s.counts[i + 1] - s.counts[i]) })));
  const steady = gaps.filter((g) => g.at < arrived && g.at > arrived - 2000).map((g) => g.gap);
  const during = gaps.filter((g) => g.at > arrived && g.at - g.gap < long.times[0]).map((g) => g.gap);
  return { steady: quantile(steady, 0.5), before: Math.max(...steady), p95: quantile(during, 0.95), longest: Math.max(...during),
    first: long.times[0] - long.begun };
}

async function table(what, run, columns) {
  const rounds = servers.map(() => []);
  for (let round = 0; round < +options.rounds; round++) for (let i = 0; i < servers.length; i++) rounds[i].push(await run(servers[i][1]));
  const median = (i, column) => quantile(rounds[i].map((r) => r[column]), 0.5);
  servers.forEach(([name], i) => {
    const figures = columns.map((c) => `${c} ${median(i, c).toFixed(2)} (${(median(i, c) / median(servers.length - 1, c)).toFixed(2)})`);
    console.log(`${what.padEnd(12)} ${name.padEnd(14)} ${figures.join('   ')}`);
  });
}

if (+options.long) await table(`${options.long} among 4`, disturb, ['steady', 'before', 'p95', 'longest', 'first']);
else for (const n of options.streams.split(',').map(Number)) await table(`${n} streams`, (url) => measure(url, n), ['rate', 'steady', 'first', 'p50', 'p95', 'p99']);
