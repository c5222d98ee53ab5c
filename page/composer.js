// The input below the conversation: the text being typed, the button that sends it or stops the answer, and the context meter.

import { h, iconButton, toast } from './dom.js';
import { drawFiles, readTextFiles } from './files.js';
import { count } from './format.js';
import { getDraft, putDraft } from './store.js';

export class Composer {
  /** actions: send(text, files) returns true if they were accepted; stop(); isBusy(). */
  constructor(actions) {
    this.actions = actions;
    this.id = undefined; // conversation that the draft belongs to, null for a new one; undefined until one is opened
    this.files = [];
    this.shownFiles = h('div', { class: 'entry-files' });
    this.input = h('textarea', { id: 'prompt', rows: 1, placeholder: 'Write a message', 'aria-label': 'Message', autocomplete: 'off' });
    this.button = this.makeButton();
    this.meter = h('span', { class: 'meter-text' });
    this.bar = h('i');
    this.node = h('form', { class: 'composer', onsubmit: (e) => (e.preventDefault(), this.submit()) },
      this.shownFiles, h('div', { class: 'entry' }, iconButton('attach', 'Add text files', () => this.pickFiles()), this.input, this.button),
      h('div', { class: 'under' }, h('span', { class: 'hint' }, 'Enter sends, Shift+Enter adds a line'), h('span', { class: 'meter', title: 'Share of the context that this conversation uses' }, h('span', { class: 'meter-bar', 'aria-hidden': 'true' }, this.bar), this.meter)));
    this.input.addEventListener('input', () => this.noteChange());
    this.input.addEventListener('keydown', (e) => {
      if (e.key === 'Enter' && !e.shiftKey && !e.isComposing) (e.preventDefault(), this.submit());
    });
  }

  get isEmpty() {
    return !this.input.value.trim() && !this.files.length;
  }

  submit() {
    if (this.isEmpty || !this.actions.send(this.input.value.trim(), this.files)) return;
    this.setDraft('', []);
    this.noteChange();
  }

  // ---- the draft

  /** Restores the draft of that conversation and replaces the present one. */
  open(id) {
    const isTyping = this.id === undefined && !this.isEmpty; // typed before the page was ready
    this.id = id;
    if (isTyping) return this.noteChange();
    const { text, files } = getDraft(id);
    this.setDraft(text, files);
  }

  /** A new conversation has received its id: moves its draft to that id. */
  rename(id) {
    putDraft(this.id, { text: '', files: [] });
    this.id = id;
    this.noteChange();
  }

  setDraft(text, files) {
    this.input.value = text;
    this.files = files;
    this.shownFiles.replaceChildren(...(files.length ? [drawFiles(files, (f) => (this.setDraft(this.input.value, this.files.filter((x) => x !== f)), this.noteChange(), this.input.focus()))] : []));
    this.grow();
    this.dim();
  }

  noteChange() {
    this.grow();
    this.dim();
    if (this.id !== undefined) putDraft(this.id, { text: this.input.value, files: this.files });
  }

  // ---- files

  pickFiles() {
    const pick = h('input', { type: 'file', multiple: true, onchange: () => this.addFiles([...pick.files]) });
    pick.click();
  }

  /** Adds text files that are not too large; reports each other file. */
  async addFiles(files) {
    const id = this.id, said = [];
    const read = await readTextFiles(files, this.files, (sentence) => said.push(sentence));
    if (said.length) toast(said.join(' '));
    if (!read.length || id !== this.id) return; // another conversation was opened meanwhile
    this.setDraft(this.input.value, [...this.files, ...read]);
    this.noteChange();
    this.input.focus();
  }

  // ---- display

  grow() {
    this.input.style.height = 'auto';
    this.input.style.height = `${Math.min(this.input.scrollHeight, innerHeight * 0.4)}px`;
  }

  makeButton() {
    const isBusy = this.actions.isBusy();
    return iconButton(isBusy ? 'stop' : 'send', isBusy ? 'Stop' : 'Send', () => (this.actions.isBusy() ? this.actions.stop() : this.submit()), { class: 'send' });
  }

  /** Dims the button while there is nothing to send. It stays in the tab order. */
  dim() {
    const isIdle = this.isEmpty && !this.actions.isBusy();
    this.button.classList.toggle('idle', isIdle);
    this.button.setAttribute('aria-disabled', String(isIdle));
  }

  /** Call after a turn has begun or ended. */
  update() {
    this.dim();
    if (this.button.getAttribute('aria-label') === (this.actions.isBusy() ? 'Stop' : 'Send')) return;
    const made = this.makeButton(), had = document.activeElement === this.button;
    this.button.replaceWith(made);
    this.button = made;
    this.dim();
    if (had) made.focus();
  }

  /** used of n tokens; n is 0 if unknown. */
  drawMeter(used, n) {
    this.meter.textContent = n ? (used ? `${count(used)} of ${count(n)} tokens` : `${count(n)} tokens of context`) : '';
    this.bar.style.width = n ? `${Math.min(100, (100 * used) / n)}%` : '0';
    this.bar.classList.toggle('full', n > 0 && used > 0.85 * n);
  }
}
