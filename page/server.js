// The page's knowledge of the server: whether it is ready, its models, the context length. Fires `changed` events.

import { ApiError, getJson } from './api.js';
import { progress } from './format.js';
import { askForKey } from './settings.js';
import { local } from './storage.js';

export const server = Object.assign(new EventTarget(), {
  state: 'unknown', // 'ready', 'loading', 'unreachable', 'refused'
  doing: '',
  progress: '', // of the current activity
  models: [],
  model: '',
});

let waiting = null;

function set(state, doing = '', done = '') {
  if (server.state === state && server.doing === doing && server.progress === done) return;
  Object.assign(server, { state, doing, progress: done });
  server.dispatchEvent(new Event('changed'));
}

/** Context length of the chosen model; 0 while it is not loaded. */
export const contextLength = () => server.models.find((m) => m.id === server.model)?.meta?.n_ctx ?? 0;

export function chooseModel(id) {
  server.model = id;
  local.set('kin.model', id);
  server.dispatchEvent(new Event('changed'));
}

let wake = () => {};
const sleep = (ms) => new Promise((later) => ((wake = later), setTimeout(later, ms)));

/** Checks the server at once, if the next check is waiting. */
export const checkNow = () => wake();
addEventListener('online', checkNow);

async function readModels() {
  const { data } = await getJson('v1/models');
  server.models = data ?? [];
  const kept = local.get('kin.model');
  server.model = server.models.some((m) => m.id === kept) ? kept : (server.models[0]?.id ?? '');
}

/** Applies a failed request to the server's state; false: the error is unrelated to it. */
export function noteError(err) {
  if (err.loading || err.status === 503) set('loading', err.loading?.what ?? 'waiting', progress(err.loading?.percent, err.loading?.seconds_left));
  else if (err.status === 0) set('unreachable');
  else return false;
  return true;
}

async function wait() {
  for (;;) {
    try {
      await getJson('health');
      await readModels();
      set('ready');
      server.dispatchEvent(new Event('changed'));
      return true;
    } catch (err) {
      if (!(err instanceof ApiError)) throw err;
      if (err.status === 401) {
        set('refused');
        if (await askForKey('This server was started with an API key; ask its owner for it.')) continue;
        return false;
      }
      if (!noteError(err)) {
        set('unreachable');
      }
      await sleep(server.state === 'loading' ? 500 : 1500);
    }
  }
}

/** Waits until the server answers. False: it requires a key, and none was given. */
export function untilReady() {
  waiting ??= wait().finally(() => (waiting = null));
  return waiting;
}
