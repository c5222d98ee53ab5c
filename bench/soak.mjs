// Mixed load: clients of all APIs at once, some of which behave badly, for as long as is wanted.
//
//   node bench/soak.mjs [--minutes 30] [--clients 32] [--seed 1] [--pid PID] URL
//
// URL is kin serve. Each client asks again and again, at random: one of the APIs, streamed or not. A quarter vanish in mid-stream, some stop
// reading for a while, some send garbage. After each third: how many were answered in full, aborted (by the clients), refused (garbage) and failed,
// and with --pid the memory of that process. Failed is: an answer that is not whole, a status that was not due, a text that differs from what the
// same request got before. Ends with 1 if any failed.
import http from 'node:http';
import net from 'node:net';
import fs from 'node:fs';
import process from 'node:process';

import { readArguments } from './arguments.mjs';

const options = { minutes: 30, clients: 32, seed: 1, pid: 0 };
const url = new URL(readArguments(options, 'soak.mjs [OPTIONS] URL').at(-1));

// ---- chance: a generator per client, so that a seed gives the same requests

function generator(seed) {
  let s = seed >>> 0;
  const random = () => {
    s = (s + 0x6d2b79f5) >>> 0;
    let t = Math.imul(s ^ (s >>> 15), 1 | s);
    t ^= t + Math.imul(t ^ (t >>> 7), 61 | t);
    return ((t ^ (t >>> 14)) >>> 0) / 2 ** 32;
  };
  return { random, below: (n) => Math.floor(random() * n), pick: (list) => list[Math.floor(random() * list.length)] };
}

// ---- requests: one of a few dozen per API, so that each comes often, and must get the same text each time

const animals = ['dragon', 'fox', 'mouse', 'king', 'tree', 'boat', 'cloud', 'bear'];
const system = 'You tell stories to children. The stories are short, and end well. ';
const prompt = (k) => `${k % 3 ? system.repeat(1 + (k % 4)) : ''}One day a ${animals[k % 8]} number ${k} went up the hill.`;
const messages = (k) => (k % 3 ? [{ role: 'system', content: system.repeat(1 + (k % 4)) }] : []).concat({ role: 'user', content: prompt(3 * k) });
const most = (k) => 4 + ((k * 7) % 60);
const drawn = (k) => (k % 2 ? { temperature: 0.9, seed: k } : { temperature: 0 });
const schema = { type: 'object', properties: { city: { enum: ['Oslo', 'Rome'] }, warm: { type: 'boolean' } }, required: ['city', 'warm'], additionalProperties: false };
const tool = { type: 'function', function: { name: 'get_weather', parameters: schema } };
const join = (list) => list.join('');
const apis = [
  { path: '/v1/chat/completions', body: (k, stream) => ({ messages: messages(k), max_tokens: most(k), stream, ...drawn(k),
      ...(k % 5 === 0 && { tools: [tool], tool_choice: 'required', parallel_tool_calls: false, max_tokens: 200 }),
      ...(k % 5 === 1 && { response_format: { type: 'json_schema', json_schema: { name: 'x', schema } }, max_tokens: 200 }) }),
    text: (list) => join(list.map((e) => { const c = e.choices[0]?.delta ?? e.choices[0]?.message; return (c?.content ?? '') + join((c?.tool_calls ?? []).map((t) => (t.function.name ?? '') + t.function.arguments)); })) },
  { path: '/v1/completions', body: (k, stream) => ({ prompt: prompt(k), max_tokens: most(k), stream, ...drawn(k) }),
    text: (list) => join(list.map((e) => e.choices[0]?.text ?? '')) },
  { path: '/v1/responses', body: (k, stream) => ({ input: prompt(k), instructions: system, max_output_tokens: most(k), stream, temperature: 0 }),
    text: (list) => join((list.at(-1).response ?? list.at(-1)).output.flatMap((o) => o.content ?? []).map((c) => c.text)) },
  { path: '/v1/messages', body: (k, stream) => ({ model: 'x', system, messages: [{ role: 'user', content: prompt(k) }], max_tokens: most(k), stream, temperature: 0 }),
    text: (list) => join(list.map((e) => e.delta?.text ?? join((e.content ?? []).map((c) => c.text)))) },
  { path: '/v1/embeddings', plain: true, body: (k) => ({ input: [prompt(k), prompt(k + 1)] }), text: (list) => JSON.stringify(list[0].data.map((d) => d.embedding)) },
  { path: '/api/chat', body: (k, stream) => ({ model: 'x', messages: messages(k), stream, options: { num_predict: most(k), ...drawn(k) } }),
    text: (list) => join(list.map((e) => e.message.content)) },
  { path: '/api/generate', body: (k, stream) => ({ model: 'x', prompt: prompt(k), stream, options: { num_predict: most(k), ...drawn(k) } }),
    text: (list) => join(list.map((e) => e.response)) },
  { path: '/completion', body: (k, stream) => ({ prompt: prompt(k), n_predict: most(k), stream, ...drawn(k), cache_prompt: k % 7 !== 0,
      ...(k % 5 === 2 && { n_probs: 5 }), ...(k % 5 === 3 && { grammar: 'root ::= [a-z ]{3,30} "."' }) }),
    text: (list) => join(list.map((e) => e.content)) },
];
const N_KINDS = 48;
const first = new Map(); // what each request got the first time

const count = { answered: 0, aborted: 0, refused: 0, failed: 0 };
const fail = (what) => {
  if (count.failed++ < 20) console.log(`failed: ${what}`);
};
const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

// ---- clients that behave

// The events of a stream of server-sent events or of lines, or the one object; null if it is not whole.
function events(type, text) {
  if (type.startsWith('application/x-ndjson')) {
    const list = text.trimEnd().split('\n').map((line) => JSON.parse(line));
    return list.at(-1).done ? list : null;
  }
  if (!type.startsWith('text/event-stream')) return [JSON.parse(text)];
  const list = text.split('\n').filter((line) => line.startsWith('data: ') && line !== 'data: [DONE]').map((line) => JSON.parse(line.slice(6)));
  const whole = text.includes('data: [DONE]') || list.at(-1)?.stop || ['message_stop', 'response.completed', 'response.incomplete'].includes(list.at(-1)?.type);
  return whole ? list : null;
}

function check(api, k, status, type, text) {
  if (status !== 200) return fail(`${api.path} ${k}: ${status} ${text.slice(0, 300)}`);
  let list = null;
  try {
    list = events(type, text);
  } catch {
    // null it stays
  }
  if (!list) return fail(`${api.path} ${k}: ends with ${JSON.stringify(text.slice(-200))}`);
  const got = api.text(list), key = `${api.path} ${k}`;
  if (!first.has(key)) first.set(key, got);
  if (first.get(key) !== got) return fail(`${key}: ${JSON.stringify(got).slice(0, 300)}, and before ${JSON.stringify(first.get(key)).slice(0, 300)}`);
  count.answered++;
}

// Asks; 'vanish' goes away after so many bytes or ms, 'stall' does not read for some seconds in between.
function ask(dice, agent, manner) {
  const api = dice.pick(apis), k = dice.below(N_KINDS), stream = !api.plain && dice.below(4) > 0;
  const body = JSON.stringify(api.body(k, stream));
  return new Promise((resolve) => {
    let text = '', gone = false, n = 0;
    const request = http.request(url, { path: api.path, method: 'POST', agent, headers: { 'content-type': 'application/json', 'content-length': Buffer.byteLength(body) } });
    const vanish = () => {
      gone = true;
      count.aborted++;
      request.destroy();
      resolve();
    };
    if (manner === 'vanish' && dice.below(3) === 0) setTimeout(() => gone || request.closed || vanish(), dice.below(300));
    const broken = (err) => {
      if (!gone) fail(`${api.path} ${k}: ${err.message}`);
      gone = true;
      resolve();
    };
    const n_pieces = dice.below(12);
    request.on('response', (response) => {
      response.setEncoding('utf8');
      response.on('data', (piece) => {
        text += piece;
        n++;
        if (gone) return;
        if (manner === 'vanish' && n > n_pieces) vanish();
        if (manner === 'stall' && n === 1) response.pause() && setTimeout(() => response.resume(), 1000 + dice.below(8000));
      });
      response.on('end', () => {
        if (!gone) check(api, k, response.statusCode, response.headers['content-type'] ?? '', text);
        gone = true;
        resolve();
      });
      response.on('error', broken);
    });
    request.on('error', broken);
    request.end(body);
  });
}

// ---- those that do not

// Sends bytes, and must get a refusal (4xx or 5xx) or be cut off.
function garbage(dice) {
  const bytes = Buffer.from(Array.from({ length: 1 + dice.below(3000) }, () => dice.below(256)));
  const post = (path, body, length) => `POST ${path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: ${length ?? Buffer.byteLength(body)}\r\n\r\n${body}`;
  const api = dice.pick(apis), good = JSON.stringify(api.body(dice.below(N_KINDS), true));
  const cut = good.slice(0, 1 + dice.below(good.length - 1)), at = dice.below(good.length);
  const sent = [
    () => bytes,
    () => post(api.path, bytes.toString('latin1')),
    () => post(api.path, cut),
    () => post(api.path, good.slice(0, at) + '\u0000' + good.slice(at + 1)),
    () => post(api.path, '[' .repeat(1 + dice.below(100000))),
    () => post(api.path, 'x', 2 ** 40),
    () => post(api.path, cut, cut.length + 1000), // and no more comes
    () => post('/v1/chat/completions', JSON.stringify({ messages: [{ role: 'user', content: 'x' }], [dice.pick(['n', 'max_tokens', 'stop', 'tools', 'response_format', 'grammar'])]: { a: -1 } })),
    () => `GET / HTTP/1.1\r\n${'X: y\r\n'.repeat(20000)}\r\n`,
    () => `GET /${'a'.repeat(100000)} HTTP/1.1\r\n\r\n`,
    () => 'PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n',
    () => `GET /${dice.below(1000)}/nothing HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n`,
  ][dice.below(12)]();
  return new Promise((resolve) => {
    let text = '';
    const socket = net.connect({ host: url.hostname, port: +url.port });
    const timer = setTimeout(() => socket.destroy(), 500 + dice.below(4000));
    socket.on('connect', () => socket.write(sent));
    socket.on('data', (piece) => (text += piece.toString('latin1')));
    socket.on('error', () => {}); // it may be reset while this still writes
    socket.on('close', () => {
      clearTimeout(timer);
      if (text.startsWith('HTTP/1.1 2')) fail(`garbage was taken: ${JSON.stringify(sent.toString('latin1').slice(0, 300))}`);
      else count.refused++;
      resolve();
    });
  });
}

async function client(i, until) {
  const dice = generator(options.seed * 1000 + i);
  const agent = new http.Agent({ keepAlive: true, maxSockets: 1 });
  while (Date.now() < until) {
    const what = dice.random();
    if (what < 0.06) await garbage(dice);
    else await ask(dice, agent, what < 0.31 ? 'vanish' : what < 0.39 ? 'stall' : 'read');
    if (dice.below(4) === 0) await pause(dice.below(400));
  }
  agent.destroy();
}

// ---- the clock

const memory = () => (options.pid ? ` rss ${Math.round(+/VmRSS:\s*(\d+)/.exec(fs.readFileSync(`/proc/${options.pid}/status`, 'utf8'))[1] / 1024)} MiB` : '');
const line = (what) => console.log(`${what}: ${Object.entries(count).map(([name, n]) => `${name} ${n}`).join(', ')}${memory()}`);
const get = (path) => fetch(new URL(path, url)).then((response) => response.text());

const begun = Date.now(), long = options.minutes * 60000;
const healths = [];
const watch = setInterval(async () => {
  const asked = performance.now();
  await get('/health').catch((err) => fail(`/health: ${err.message}`));
  healths.push(performance.now() - asked);
}, 1000);
line('begin');
const thirds = [1, 2, 3].map((third) => setTimeout(() => line(`${((third * options.minutes) / 3).toFixed(1)} min`), (third * long) / 3 - (third === 3 ? 200 : 0)));
await Promise.all(Array.from({ length: options.clients }, (_, i) => client(i, begun + long)));
clearInterval(watch);
thirds.forEach(clearTimeout);
// What the vanished left is gone when the server has computed its next step.
let left = 'unknown';
for (let i = 0; i < 100 && left !== '0'; i++) {
  await pause(100);
  left = /requests_processing (\d+)/.exec(await get('/metrics'))?.[1] ?? 'unknown';
}
if (left !== '0') fail(`requests still processed at the end: ${left}`);
healths.sort((a, b) => a - b);
line('end');
console.log(`/health: p50 ${healths[healths.length >> 1]?.toFixed(1)} ms, p99 ${healths[Math.floor(healths.length * 0.99)]?.toFixed(1)} ms, longest ${healths.at(-1)?.toFixed(1)} ms; ${first.size} different requests`);
process.exit(count.failed ? 1 : 0);
