// Gets a model: a dialog that names it, and the progress of the server's download (/api/pull).

import { lines } from './api.js';
import { h, openDialog } from './dom.js';
import { bytes, sentence } from './format.js';

// A name at the beginning, such as that of a file, keeps its letters.
const asSentence = (text) => `${/^[a-z]+ /.test(text) ? sentence(text) : text}${/[.!?]$/.test(text) ? '' : '.'}`;

const wordsOf = ({ status, total, completed }) => (total ? `Fetching: ${bytes(completed)} of ${bytes(total)}` : `${sentence(status)} …`);

// Downloads the model; throws an error with a message for the user.
async function pull(model, signal, show) {
  let isHere = false;
  await lines('api/pull', { body: { model }, signal }, (line) => {
    if (line.error) throw new Error(line.error);
    isHere = line.status === 'success';
    show(line);
  });
  if (!isHere) throw new Error('The server ended the download early; the same name continues it.');
}

/** Opens the dialog. fetched(): called when a model has arrived. */
export function openPull(fetched) {
  let abort = null;
  const name = h('input', { type: 'text', id: 'pull-name', autocomplete: 'off', spellcheck: 'false', placeholder: 'qwen3-4b' });
  const bar = h('progress', { max: 1, hidden: true, 'aria-label': 'Progress' });
  const state = h('p', { class: 'help', role: 'status' }), problem = h('p', { class: 'problem', role: 'alert' });
  const button = h('button', { type: 'submit', form: 'pull', class: 'primary' }, 'Get');
  const show = (line) => {
    state.textContent = wordsOf(line);
    bar.hidden = !line.total;
    if (line.total) bar.value = line.completed / line.total;
  };
  async function run() {
    abort = new AbortController();
    button.textContent = 'Stop';
    problem.textContent = '';
    try {
      await pull(name.value.trim(), abort.signal, show);
      state.textContent = `${name.value.trim()} is here.`;
      fetched();
    } catch (err) {
      state.textContent = err.name === 'AbortError' ? 'Stopped; the same name continues the download.' : '';
      problem.textContent = err.name === 'AbortError' ? '' : asSentence(err.message);
    }
    abort = null;
    bar.hidden = true;
    button.textContent = 'Get';
  }
  const form = h('form', { id: 'pull', onsubmit: (e) => (e.preventDefault(), abort ? abort.abort() : name.value.trim() && run()) },
    h('div', { class: 'field' }, h('label', { for: name.id }, 'Name'), name,
      h('p', { class: 'help' }, 'A short name, hf:OWNER/REPO, ollama:NAME, or an address at huggingface.co. The server fetches it; closing this window stops that.')),
    bar, state, problem);
  openDialog('Get a model', form, button).addEventListener('close', () => abort?.abort());
  name.focus();
}
