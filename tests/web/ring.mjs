// Helpers for tests of rings with tabs: native kin as processes, and requests to them over HTTP.
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { readFileSync } from 'node:fs';

const MOST_MS = 60000, PROMPT = 'Once upon a time';
const children = [];

export async function until(what, test) {
  for (const end = Date.now() + MOST_MS; Date.now() < end; await new Promise((later) => setTimeout(later, 20))) {
    const value = await test();
    if (value) return value;
  }
  throw new Error(`never: ${what}`);
}

/** Starts a process that killAll ends; its stdout is in .wrote, its stderr in .said. */
export function start(path, words, env = {}) {
  const child = spawn(path, words, { stdio: ['ignore', 'pipe', 'pipe'], env: { ...process.env, ...env } });
  children.push(child);
  child.wrote = child.said = '';
  child.stdout.on('data', (text) => (child.wrote += text));
  child.stderr.on('data', (text) => (child.said += text));
  child.on('error', () => (child.isMissing = true));
  return child;
}

export async function serve(kin, model, ...words) {
  const child = start(kin, ['serve', model, '--port', '0', '-t', '1', '--ctx', '512', ...words], { KIN_PLAN: 'even' });
  child.base = await until('kin serves', () => child.said.match(/serving .* at (http:\/\/\S+)/)?.[1]).catch((e) => { throw new Error(`${e.message}: ${child.said}`); });
  return child;
}

const ringOf = (dir) => ['--cluster', '--devices', '1', '--key-file', `${dir}/key`, '--listen', '127.0.0.1', '--hidden'];

/** Starts a head for one more device, the tab. .code: the code that the tab enters. */
export async function serveRing(kin, model, dir) {
  const head = await serve(kin, model, ...ringOf(dir), '--cluster-port', String(8100 + (process.pid % 800)));
  head.code = readFileSync(`${dir}/key.code`, 'utf8').trim();
  return head;
}

/** Starts kin run, which writes one text, in the ring whose key is in `dir`; .base and .code are for a tab. */
export async function run(kin, model, dir, ...words) {
  const child = start(kin, ['run', model, '-t', '1', '--ctx', '512', '-p', PROMPT, '--no-echo', '--temp', '0', '--ignore-eos', ...ringOf(dir), '--port', String(8100 + (process.pid % 800)), ...words], { KIN_PLAN: 'even' });
  child.base = await until('kin run lets browsers join', () => child.said.match(/browsers join at (http:\S+)\/join/)?.[1]).catch((e) => { throw new Error(`${e.message}: ${child.said}`); });
  child.code = readFileSync(`${dir}/key.code`, 'utf8').trim();
  return child;
}

export async function stop(child) {
  child.kill('SIGKILL');
  await once(child, 'exit');
}

export function killAll() {
  for (const child of children) child.kill('SIGKILL');
}

const textOf = (lines) => lines.split('\n').filter((line) => /^data: {.*}$/.test(line)).map((line) => JSON.parse(line.slice(6)).content ?? '').join('');

/** Requests a text and returns it. begun: called when its first bytes have arrived. */
export async function write(base, n = 40, begun = () => {}) {
  const body = JSON.stringify({ prompt: PROMPT, n_predict: n, temperature: 0, ignore_eos: true, stream: true });
  const signal = AbortSignal.timeout(MOST_MS);
  let lines = '';
  try {
    const response = await until('a text begins', async () => {
      const r = await fetch(`${base}/completion`, { method: 'POST', body, signal });
      return r.ok && r;
    });
    for await (const part of response.body.pipeThrough(new TextDecoderStream())) {
      if (lines === '') begun();
      lines += part;
    }
  } catch (e) {
    throw signal.aborted ? new Error(`never: the end of a text of ${n} words, after ${JSON.stringify(textOf(lines))}`) : e;
  }
  return textOf(lines);
}

export function same(got, want, what) {
  if (got !== want) throw new Error(`${what}: ${JSON.stringify(got)}, not ${JSON.stringify(want)}`);
  console.log(`ok - ${what}`);
}
