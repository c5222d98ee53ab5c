// Parameters of requests, and the API key. Stored in this browser.

import { getKey, setKey } from './api.js';
import { h, openDialog } from './dom.js';
import { local } from './storage.js';

const NUMBERS = [
  ['temperature', 'Temperature', 'Randomness; 0: always the likeliest token', { min: 0, max: 5, step: 0.05 }, 'default'],
  ['top_p', 'Top P', 'Keep the likeliest tokens up to this total probability', { min: 0.01, max: 1, step: 0.01 }, 'default'],
  ['top_k', 'Top K', 'Keep this many of the likeliest tokens; 0: all', { min: 0, max: 1000, step: 1 }, 'default'],
  ['min_p', 'Min P', 'Keep tokens with at least this share of the highest probability', { min: 0, max: 1, step: 0.01 }, 'default'],
  ['max_tokens', 'Longest answer', 'In tokens', { min: 1, max: 1000000, step: 1 }, 'no limit'],
  ['seed', 'Seed', 'The same seed gives the same answer', { min: 0, max: 4294967295, step: 1 }, 'random'],
];

let current = read();

function read() {
  try {
    return JSON.parse(local.get('kin.settings')) ?? {};
  } catch {
    return {};
  }
}

function save(values) {
  current = values;
  local.set('kin.settings', JSON.stringify(values));
}

export const systemPrompt = () => current.system ?? '';

/** Returns request fields; the server chooses what is not set. */
export function requestFields() {
  const fields = {};
  for (const [name] of NUMBERS) if (Number.isFinite(current[name])) fields[name] = current[name];
  if (current.tools) fields.tools = current.tools;
  return fields;
}

function numberField([name, label, help, limits, none]) {
  const input = h('input', { type: 'number', id: `set-${name}`, name, ...limits, placeholder: none, value: current[name] ?? '', inputmode: 'decimal', 'aria-describedby': `help-${name}` });
  return h('div', { class: 'field' }, h('label', { for: input.id }, label), input, h('p', { class: 'help', id: `help-${name}` }, help));
}

function readTools(text) {
  if (!text.trim()) return undefined;
  const tools = JSON.parse(text);
  if (!Array.isArray(tools)) throw new Error('must be an array');
  return tools.map((t) => (t.type ? t : { type: 'function', function: t }));
}

/** Opens the dialog. changed() is called when something was saved; getModel() opens the dialog that fetches models. */
export function openSettings(changed, getModel) {
  const system = h('textarea', { id: 'set-system', rows: 4, value: systemPrompt(), placeholder: 'You are a helpful assistant.' });
  const tools = h('textarea', { id: 'set-tools', rows: 4, class: 'mono', value: current.tools ? JSON.stringify(current.tools, null, 2) : '', placeholder: '[{"name": "get_weather", "parameters": {…}}]', spellcheck: 'false' });
  const key = h('input', { type: 'password', id: 'set-key', value: getKey(), autocomplete: 'off', placeholder: 'none' });
  const numbers = h('div', { class: 'grid' }, NUMBERS.map(numberField));
  const problem = h('p', { class: 'problem', role: 'alert' });
  const form = h('form', { method: 'dialog', id: 'settings', novalidate: true },
    h('div', { class: 'field' }, h('label', { for: 'set-system' }, 'System prompt'), system, h('p', { class: 'help' }, 'Sent at the start of every conversation.')),
    h('h3', {}, 'Sampling'), numbers,
    h('details', {}, h('summary', {}, 'Tools'), h('div', { class: 'field' }, h('label', { for: 'set-tools' }, 'Functions that the model may call, as JSON'), tools,
      h('p', { class: 'help' }, 'Calls are shown in the answer; you enter their results.'))),
    h('h3', {}, 'Server'),
    h('div', { class: 'field' }, h('label', { for: 'set-key' }, 'API key'), key, h('p', { class: 'help' }, 'Stored in this browser, sent only to this server.')),
    h('button', { type: 'button', class: 'plain', onclick: () => (dialog.close(), getModel()) }, 'Get a model …'),
    problem);
  form.addEventListener('submit', (event) => {
    event.preventDefault();
    const values = {};
    for (const [name] of NUMBERS) {
      const input = form.elements[name];
      if (input.value !== '' && !input.checkValidity()) return void ((problem.textContent = `${input.labels[0].textContent}: ${input.validationMessage}`), input.focus());
      if (input.value !== '') values[name] = Number(input.value);
    }
    if (system.value.trim()) values.system = system.value;
    try {
      values.tools = readTools(tools.value);
    } catch (err) {
      return void (problem.textContent = `Tools: ${err.message}`);
    }
    save(values);
    setKey(key.value.trim());
    dialog.close();
    changed();
  });
  const reset = h('button', { type: 'button', class: 'plain', onclick: () => (save({}), dialog.close(), changed()) }, 'Reset');
  const dialog = openDialog('Settings', form, [reset, h('button', { type: 'submit', form: 'settings', class: 'primary' }, 'Save')]);
  system.focus();
}

/** Asks for the key that the server requires. Resolves to true once there is one. */
export function askForKey(message) {
  return new Promise((answer) => {
    const key = h('input', { type: 'password', id: 'ask-key', autocomplete: 'off', required: true });
    const form = h('form', { method: 'dialog', id: 'key-form', onsubmit: (event) => (event.preventDefault(), key.value.trim() && (setKey(key.value.trim()), answer(true), dialog.close())) },
      h('p', {}, message), h('div', { class: 'field' }, h('label', { for: 'ask-key' }, 'API key'), key));
    const dialog = openDialog('This server needs a key', form, h('button', { type: 'submit', form: 'key-form', class: 'primary' }, 'Use this key'));
    dialog.addEventListener('close', () => answer(false));
    key.focus();
  });
}
