// Access to the server: requests with the API key, and streams of server-sent events. Paths are relative to the page's folder, so that a
// prefix (--api-prefix) or a reverse proxy needs no configuration.

import { local } from './storage.js';

const BASE = new URL('..', import.meta.url);

export const url = (path) => new URL(path, BASE);

/** The server's address, in the form that users type. */
export const origin = () => BASE.href.replace(/\/$/, '');

export const getKey = () => local.get('kin.key') ?? '';
export const setKey = (key) => local.set('kin.key', key || null);

/** A failed request: `status` is the HTTP status, 0 if the server was unreachable; `loading` is {what, percent, seconds_left} of a 503. */
export class ApiError extends Error {
  constructor(message, status, loading) {
    super(message);
    this.status = status;
    this.loading = loading;
  }
}

async function refused(answer) {
  let error = {};
  try {
    error = (await answer.json()).error ?? {};
  } catch {} // not a kin error
  const words = typeof error === 'string' ? error : error.message; // Ollama's form has only the words
  return new ApiError(words ?? `The server answered ${answer.status}.`, answer.status, error.loading);
}

export async function request(path, { body, signal } = {}) {
  const headers = {};
  if (getKey()) headers.Authorization = `Bearer ${getKey()}`;
  if (body) headers['Content-Type'] = 'application/json';
  let answer;
  try {
    answer = await fetch(url(path), { method: body ? 'POST' : 'GET', headers, signal, body: body && JSON.stringify(body), cache: 'no-store' });
  } catch (err) {
    if (err.name === 'AbortError') throw err;
    throw new ApiError('The server cannot be reached.', 0);
  }
  if (!answer.ok) throw await refused(answer);
  return answer;
}

export const getJson = async (path) => (await request(path)).json();

// Reads an answer in parts: calls take(text) for each text before `separator`, until it returns false.
async function readParts(path, options, separator, take) {
  const answer = await request(path, options);
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = '';
  for (;;) {
    let piece;
    try {
      piece = await reader.read();
    } catch (err) {
      if (err.name === 'AbortError') throw err;
      throw new ApiError('The connection to the server was lost.', 0);
    }
    if (piece.done) return;
    const parts = (rest + piece.value).split(separator);
    rest = parts.pop();
    for (const text of parts) if (take(text) === false) return;
  }
}

/** Reads an event stream: calls take(name, data) for each event; data is JSON, except "[DONE]", which ends the stream. */
export const stream = (path, options, take) => readParts(path, options, /\r?\n\r?\n/, (text) => {
  const event = readEvent(text);
  if (event.data === '[DONE]') return false;
  if (event.data) take(event.name, JSON.parse(event.data));
  return true;
});

/** Reads lines of JSON: calls take(data) for each. */
export const lines = (path, options, take) => readParts(path, options, '\n', (text) => void (text.trim() && take(JSON.parse(text))));

function readEvent(text) {
  let name = 'message';
  const data = [];
  for (const line of text.split(/\r?\n/)) {
    if (line.startsWith('event:')) name = line.slice(6).trim();
    if (line.startsWith('data:')) data.push(line.slice(5).replace(/^ /, ''));
  }
  return { name, data: data.join('\n') };
}
