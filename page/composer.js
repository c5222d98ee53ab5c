// The entry below the conversation: what is being typed, the button that sends it or stops the answer, and how full the context is.

import { h, iconButton } from './dom.js';
import { count } from './format.js';

export class Composer {
  /** actions: send(text), true once it is taken; stop(); isBusy(). */
  constructor(actions) {
    this.actions = actions;
    this.input = h('textarea', { id: 'prompt', rows: 1, placeholder: 'Write a message', 'aria-label': 'Message', autocomplete: 'off' });
    this.button = this.makeButton();
    this.meter = h('span', { class: 'meter-text' });
    this.bar = h('i');
    this.node = h('form', { class: 'composer', onsubmit: (e) => (e.preventDefault(), this.submit()) },
      h('div', { class: 'entry' }, this.input, this.button),
      h('div', { class: 'under' }, h('span', { class: 'hint' }, 'Enter sends, Shift+Enter starts a line'), h('span', { class: 'meter', title: 'How much of the context this conversation fills' }, h('span', { class: 'meter-bar', 'aria-hidden': 'true' }, this.bar), this.meter)));
    this.input.addEventListener('input', () => this.grow());
    this.input.addEventListener('keydown', (e) => {
      if (e.key === 'Enter' && !e.shiftKey && !e.isComposing) (e.preventDefault(), this.submit());
    });
  }

  submit() {
    const text = this.input.value.trim();
    if (!text || !this.actions.send(text)) return;
    this.input.value = '';
    this.grow();
  }

  grow() {
    this.input.style.height = 'auto';
    this.input.style.height = `${Math.min(this.input.scrollHeight, innerHeight * 0.4)}px`;
  }

  makeButton() {
    const isBusy = this.actions.isBusy();
    return iconButton(isBusy ? 'stop' : 'send', isBusy ? 'Stop' : 'Send', () => (this.actions.isBusy() ? this.actions.stop() : this.submit()), { class: 'send' });
  }

  /** After a turn has begun or ended. */
  update() {
    if (this.button.getAttribute('aria-label') === (this.actions.isBusy() ? 'Stop' : 'Send')) return;
    const made = this.makeButton(), had = document.activeElement === this.button;
    this.button.replaceWith(made);
    this.button = made;
    if (had) made.focus();
  }

  /** used of n tokens; n is 0 while it is not known. */
  drawMeter(used, n) {
    this.meter.textContent = n ? (used ? `${count(used)} of ${count(n)} tokens` : `${count(n)} tokens of context`) : '';
    this.bar.style.width = n ? `${Math.min(100, (100 * used) / n)}%` : '0';
    this.bar.classList.toggle('full', n > 0 && used > 0.85 * n);
  }
}
