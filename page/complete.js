// Generates one answer: sends the request to /v1/chat/completions and applies its events to the message; waits until the server is ready.
// Independent of the page.

import { stream } from './api.js';
import { withFiles } from './files.js';
import { server, noteError, untilReady } from './server.js';
import { askForKey, requestFields, systemPrompt } from './settings.js';

const MAX_TRIES = 3; // for an answer that fails before its first word although the server is reachable

const forServer = (m) => {
  if (m.role === 'tool') return { role: 'tool', tool_call_id: m.call, content: m.content };
  const out = { role: m.role, content: withFiles(m.content, m.files) };
  if (m.calls?.length) out.tool_calls = m.calls.map((c) => ({ id: c.id, type: 'function', function: { name: c.name, arguments: c.arguments } }));
  return out;
};

export const isEmpty = (message) => !message.content && !message.reasoning && !message.calls?.length;

/** Marks an answer that has not reached its end. */
export function interrupt(message) {
  message.state = isEmpty(message) ? 'error' : 'interrupted';
  if (isEmpty(message)) message.error = 'Stopped before the first word.';
}

// Answers without content are not sent to the model.
const counts = (m) => m.role !== 'assistant' || m.content || m.calls?.length;

function addCalls(message, deltas) {
  message.calls ??= [];
  for (const d of deltas) {
    const call = (message.calls[d.index ?? 0] ??= { id: '', name: '', arguments: '' });
    if (d.id) call.id = d.id;
    call.name += d.function?.name ?? '';
    call.arguments += d.function?.arguments ?? '';
  }
}

function addStats(message, event) {
  const { usage, timings } = event;
  if (usage) Object.assign(message.stats, { prompt: usage.prompt_tokens, cached: usage.prompt_tokens_details?.cached_tokens ?? 0, tokens: usage.completion_tokens });
  if (timings) {
    const { predicted_per_second: rate, prompt_ms, draft_n: drafted, draft_n_accepted: accepted } = timings;
    Object.assign(message.stats, { rate, first_ms: prompt_ms, drafted, accepted });
  }
}

function take(message, event, progress) {
  if (event.error) throw Object.assign(new Error(event.error.message ?? 'the server failed'), { isServer: true });
  addStats(message, event);
  const p = event.prompt_progress;
  if (p?.total) progress.prompt = (p.processed ?? 0) / p.total;
  const choice = event.choices?.[0];
  if (!choice) return;
  const delta = choice.delta ?? {};
  if (delta.content || delta.reasoning_content || delta.tool_calls) {
    progress.first ??= performance.now();
    progress.n++;
    message.reasoning += delta.reasoning_content ?? '';
    message.content += delta.content ?? '';
    if (delta.tool_calls) addCalls(message, delta.tool_calls);
  }
  if (choice.finish_reason) message.finish = choice.finish_reason;
}

/**
 * Generates `message` after the messages of `branch`; calls `changed(progress)` after each event. A message that already has text is
 * continued. Returns when the answer ends, or throws.
 */
async function complete({ message, branch, model, signal, changed }) {
  const messages = branch.filter(counts).map(forServer);
  if (systemPrompt() && messages[0]?.role !== 'system') messages.unshift({ role: 'system', content: systemPrompt() });
  if (message.content) messages.push({ role: 'assistant', content: message.content });
  const body = { ...requestFields(), messages, stream: true, stream_options: { include_usage: true }, return_progress: true };
  if (model) body.model = model;
  const progress = { n: 0, first: null, prompt: null };
  message.stats = {};
  delete message.finish;
  await stream('v1/chat/completions', { body, signal }, (_, event) => {
    take(message, event, progress);
    changed(progress);
  });
  if (!message.finish) throw Object.assign(new Error('The server ended the answer early.'), { status: 0 });
}

async function waitForServer(signal, waiting) {
  const show = () => waiting(`Waiting: ${server.state === 'unreachable' ? 'the server does not answer' : `${server.doing || 'the model is being loaded'}${server.progress}`}`);
  server.addEventListener('changed', show);
  show();
  const aborted = new Promise((_, no) => signal.addEventListener('abort', () => no(new DOMException('stopped', 'AbortError')), { once: true }));
  try {
    await Promise.race([untilReady(), aborted]);
  } finally {
    server.removeEventListener('changed', show);
  }
}

/**
 * Does the same once it is possible: waits while the model is loading, the server is unreachable or a key is missing. `waiting(words)`
 * receives the reason; `model()` returns the model chosen at that time. An answer that has begun is not retried.
 */
export async function completeWhenReady({ model, waiting, ...options }) {
  const { message, signal } = options;
  for (let tries = 1; ; ) {
    try {
      return await complete({ ...options, model: model() });
    } catch (err) {
      if (signal.aborted) throw err;
      if (err.status === 401 && (await askForKey('This request was refused: its key is missing or wrong.'))) continue;
      const isAway = err.status === 0 && isEmpty(message) && tries++ < MAX_TRIES;
      if (!isAway && !(err.status === 503 && err.loading)) throw err;
      noteError(err);
      await waitForServer(signal, waiting);
    }
  }
}
