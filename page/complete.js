// One answer: the request to /v1/chat/completions, and what its events say, put into the message. Without the page.

import { stream } from './api.js';
import { requestFields, systemPrompt } from './settings.js';

const forServer = (m) => {
  if (m.role === 'tool') return { role: 'tool', tool_call_id: m.call, content: m.content };
  const out = { role: m.role, content: m.content };
  if (m.calls?.length) out.tool_calls = m.calls.map((c) => ({ id: c.id, type: 'function', function: { name: c.name, arguments: c.arguments } }));
  return out;
};

// An answer in which nothing was written says nothing to the model.
const counts = (m) => m.role !== 'assistant' || m.content || m.calls?.length;

function takeCalls(message, deltas) {
  message.calls ??= [];
  for (const d of deltas) {
    const call = (message.calls[d.index ?? 0] ??= { id: '', name: '', arguments: '' });
    if (d.id) call.id = d.id;
    call.name += d.function?.name ?? '';
    call.arguments += d.function?.arguments ?? '';
  }
}

function takeStats(message, event) {
  const { usage, timings } = event;
  if (usage) Object.assign(message.stats, { prompt: usage.prompt_tokens, cached: usage.prompt_tokens_details?.cached_tokens ?? 0, tokens: usage.completion_tokens });
  if (timings) Object.assign(message.stats, { rate: timings.predicted_per_second, first_ms: timings.prompt_ms });
}

function take(message, event, progress) {
  if (event.error) throw Object.assign(new Error(event.error.message ?? 'the server failed'), { isServer: true });
  takeStats(message, event);
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
    if (delta.tool_calls) takeCalls(message, delta.tool_calls);
  }
  if (choice.finish_reason) message.finish = choice.finish_reason;
}

/**
 * Writes `message` after the messages of `branch`; `changed(progress)` is called after each event. A message that has text already is
 * continued. Ends when the answer ends, or throws.
 */
export async function complete({ message, branch, model, signal, changed }) {
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
  if (!message.finish) throw Object.assign(new Error('The server ended the answer in the middle.'), { status: 0 });
}
