// How many prompt tokens of an agent's conversation are computed twice, while `kin serve` is stopped and killed between its turns.
//
//   node bench/replay.mjs [--kin build/kin] [--system 8000] [--turn 300] [--turns 20] [--reply 60] [--stop 8] [--kill 14]
//                         [--ctx 16384] [--memory SIZE] [--kv-disk SIZE] [--share 3] MODEL.gguf
//
// A turn's prompt is the prompt before, its reply, and other tokens up to --turn in all; the first one has --system tokens. Before the turns
// --stop and --kill the server is started again, after SIGTERM and SIGKILL (0: not). Then the last turn's text is compared with that of a
// server that has no caches. Prints for each turn: prompt tokens, those that are new, those found in memory or on the disk, those computed
// twice; the bytes of pages and states on the disk, and the most memory of the processes. Fails if more than --share percent of the new
// tokens were computed twice, if the texts differ, or if bytes exceed --memory or --kv-disk, or what docs/MODELS.md says of checkpoints.
import { execFileSync, spawn } from 'node:child_process';
import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import process from 'node:process';

import { readArguments } from './arguments.mjs';

const options = {
  kin: 'build/kin', system: 8000, turn: 300, turns: 20, reply: 60, stop: 8, kill: 14, ctx: 16384, memory: '', 'kv-disk': '4G', share: 3,
};
const model = readArguments(options, 'replay.mjs [OPTIONS] MODEL.gguf').at(-1);

const UNITS = { '': 1, B: 1, K: 2 ** 10, KiB: 2 ** 10, M: 2 ** 20, MiB: 2 ** 20, G: 2 ** 30, GiB: 2 ** 30 };
const BLOCK = 64; // tokens of a page
const home = fs.mkdtempSync(path.join(os.tmpdir(), 'kin-replay-'));
const env = { ...process.env, HOME: home, XDG_CACHE_HOME: path.join(home, 'cache'), XDG_CONFIG_HOME: path.join(home, 'config') };
const bytes_of = (text) => {
  const [, number, unit] = /^([0-9.]+) ?([A-Za-z]*)$/.exec(text);
  return number * UNITS[unit];
};
const mb = (n) => `${(n / 1e6).toFixed(1)} MB`;
let failed = false, most_memory = 0, server;

function fail(why) {
  console.log(`failed: ${why}`);
  failed = true;
}

async function start(words) {
  const all = ['serve', '-m', model, '--ctx', String(options.ctx), '--port', '0', '--no-webui', '--draft', 'off', ...words];
  if (options.memory) all.push('--memory', options.memory);
  const child = spawn(options.kin, all, { env, stdio: ['ignore', 'ignore', 'pipe'] });
  let log = '';
  child.stderr.on('data', (data) => { log += data; });
  for (;;) {
    const said = /serving .* at (http:\/\/[^ \n]*)/.exec(log);
    if (said) return { child, base: said[1], log: () => log };
    if (child.exitCode !== null) throw new Error(`kin serve ended: ${log}`);
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
}

function measure({ child }) {
  const status = fs.readFileSync(`/proc/${child.pid}/status`, 'utf8');
  most_memory = Math.max(most_memory, /VmHWM:\s*(\d+)/.exec(status)[1] * 1024);
}

async function end(signal) {
  const over = new Promise((resolve) => server.child.once('exit', resolve));
  measure(server);
  server.child.kill(signal);
  await over;
  for (const line of server.log().split('\n')) if (/warning|disabled|damaged/.test(line)) console.log(line);
}

async function ask(prompt, n) {
  const body = JSON.stringify({ prompt, n_predict: n, temperature: 0, ignore_eos: true, return_tokens: true });
  const response = await fetch(`${server.base}/completion`, { method: 'POST', body });
  const answer = await response.json();
  if (!response.ok) throw new Error(JSON.stringify(answer));
  return answer;
}

let seed = 4711;
const other_token = () => {
  seed = (seed * 1103515245 + 12345) % 2 ** 31;
  return 259 + (seed >> 8) % 500;
};

function bytes_on_disk() {
  let sum = 0;
  for (const entry of fs.readdirSync(env.XDG_CACHE_HOME, { recursive: true, withFileTypes: true }))
    if (entry.isFile() && /[/]kv([/]|$)/.test(entry.parentPath ?? entry.path)) sum += fs.statSync(path.join(entry.parentPath ?? entry.path, entry.name)).size;
  return sum;
}

const info = execFileSync(options.kin, ['info', model], { env, encoding: 'utf8' });
const number = (pattern) => { const found = pattern.exec(info); return found ? bytes_of(found[1]) : 0; };
const per_token = number(/; ([0-9.]+ \w+) of KV cache/), checkpoint = number(/checkpoints +([0-9.]+ \w+) of states/);
const state = number(/per sequence ([0-9.]+ \w+) of states/);

const prompt = Array.from({ length: +options.system }, other_token), known = [];
let n_new = 0, n_all = 0, n_twice = 0, answer;
server = await start(['--kv-disk', options['kv-disk']]);
console.log('turn,prompt,new,found,twice');
for (let turn = 1; turn <= +options.turns; turn++) {
  const signal = turn === +options.stop ? 'SIGTERM' : turn === +options.kill ? 'SIGKILL' : '';
  if (signal) {
    await end(signal);
    server = await start(['--kv-disk', options['kv-disk']]);
  }
  answer = await ask(prompt, +options.reply);
  let same = 0;
  while (same < known.length && same < prompt.length - 1 && known[same] === prompt[same]) same++;
  const found = answer.timings.cache_n, twice = Math.max(0, same - found);
  console.log([turn, prompt.length, prompt.length - same, found, twice, ...(signal ? [`after ${signal}`] : [])].join(','));
  n_new += prompt.length - same;
  n_all += prompt.length;
  n_twice += twice;
  known.splice(0, known.length, ...prompt, ...answer.tokens);
  if (turn === +options.turns) break;
  prompt.push(...answer.tokens);
  for (let i = answer.tokens.length; i < +options.turn; i++) prompt.push(other_token());
}
const text = JSON.stringify(answer.tokens);
await end('SIGTERM');

const on_disk = bytes_on_disk(), n_blocks = Math.floor(known.length / BLOCK), pages = n_blocks * BLOCK * per_token;
const n_states = Math.min(64, 4 + Math.floor(+options.ctx / 2048));
console.log(`${n_twice} of ${n_new} prompt tokens were computed twice (${(100 * n_twice / n_new).toFixed(2)} %), of ${n_all} in all prompts`);
console.log(`on the disk: ${mb(on_disk)}; keys and values ${mb(pages)}, a checkpoint ${mb(checkpoint)}`);
console.log(`in memory: at most ${mb(most_memory)}; of these ${n_states} states of ${mb(state)}, KV cache ${mb(per_token * options.ctx)}`);
if (100 * n_twice > options.share * n_new) fail('too many tokens were computed twice');
if (on_disk > bytes_of(options['kv-disk'])) fail(`more than --kv-disk ${options['kv-disk']}`);
if (on_disk > 1.02 * (2 * pages + 4 * checkpoint)) fail('states take more of the disk than docs/MODELS.md says');
if (options.memory && most_memory > bytes_of(options.memory)) fail(`more than --memory ${options.memory}`);

server = await start(['--no-kv-disk', '--no-cache']);
const alone = await ask(prompt, +options.reply);
if (JSON.stringify(alone.tokens) !== text) fail('the last text differs from that without caches');
await end('SIGTERM');
fs.rmSync(home, { recursive: true });
process.exit(failed ? 1 : 0);
