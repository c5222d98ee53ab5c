// Shared by the checks: running and counting them, the server's model, and a tool and a schema whose texts are bounded.
import assert from 'node:assert/strict';

const TIMEOUT_MS = 120000;
let word = '';
let passed = 0;
const failed = [];

export async function check(name, action) {
  if (!name.includes(word)) return;
  let timer;
  const late = new Promise((_, no) => (timer = setTimeout(() => no(new Error(`not done after ${TIMEOUT_MS / 1000} s`)), TIMEOUT_MS)));
  try {
    await Promise.race([action(), late]);
    passed++;
    console.log(`ok - ${name}`);
  } catch (err) {
    failed.push(name);
    console.log(`not ok - ${name}\n    ${String(err.stack ?? err).split('\n').slice(0, 8).join('\n    ')}`);
  } finally {
    clearTimeout(timer);
  }
}

export function report() {
  console.log(`${passed} passed, ${failed.length} failed${failed.length ? ': ' + failed.join('; ') : ''}`);
  return failed.length ? 1 : 0;
}

export async function setup(base, only = '') {
  word = only;
  const root = base.replace(/\/+$/, '');
  const key = process.env.KIN_API_KEY ?? 'none';
  const begun = Date.now();
  while ((await fetch(`${root}/health`)).status === 503 && Date.now() - begun < TIMEOUT_MS) await new Promise((later) => setTimeout(later, 200));
  const answer = await fetch(`${root}/v1/models`, { headers: { authorization: `Bearer ${key}` } });
  const { data } = await answer.json();
  const model = data?.find((m) => m.id === (process.env.MODEL ?? m.id));
  return { root, v1: `${root}/v1`, key, model: model?.id ?? process.env.MODEL ?? 'default', nContext: model?.meta?.n_ctx ?? 0 };
}

export const ask = [{ role: 'user', content: 'Tell me a story about a dragon.' }];

// Arguments of this schema have at most a few dozen bytes, so they are complete within any limit used here.
export const weather = {
  name: 'get_weather',
  description: 'The weather of a city.',
  parameters: {
    type: 'object',
    properties: { city: { type: 'string', enum: ['Oslo', 'Rome'] }, celsius: { type: 'boolean' } },
    required: ['city', 'celsius'],
    additionalProperties: false,
  },
};

export const clock = {
  name: 'get_time',
  description: 'The time of a zone.',
  parameters: {
    type: 'object',
    properties: { zone: { type: 'string', enum: ['CET', 'UTC'] } },
    required: ['zone'],
    additionalProperties: false,
  },
};

export function expectWeather(args) {
  assert.ok(['Oslo', 'Rome'].includes(args.city), `city ${args.city}`);
  assert.equal(typeof args.celsius, 'boolean');
  assert.equal(Object.keys(args).length, 2);
}

export function expectCall(name, args) {
  if (name === 'get_weather') expectWeather(args);
  else if (name === 'get_time') assert.ok(['CET', 'UTC'].includes(args.zone), `zone ${args.zone}`);
  else assert.fail(`a tool that nobody offered: ${name}`);
}

export const wholeNumber = (n) => assert.ok(Number.isInteger(n) && n >= 0, `${n} is no count`);

// Returns the error that the action must throw.
export async function errorOf(action) {
  try {
    await action();
  } catch (err) {
    return err;
  }
  assert.fail('no error');
}

// Returns a piece from the middle of the text that does not occur earlier, for use as a stop sequence.
export function middleOf(text) {
  for (let at = Math.floor(text.length / 3); at + 6 < text.length; at++) {
    const piece = text.slice(at, at + 6);
    if (piece.trim() === piece && text.indexOf(piece) === at) return piece;
  }
  assert.fail(`no piece in ${JSON.stringify(text)}`);
}

export async function all(stream) {
  const list = [];
  for await (const item of stream) list.push(item);
  return list;
}
