// One message on the page: an article whose parts are updated in place while it is generated.

import { copyText, h, icon, iconButton, toast } from './dom.js';
import { drawFiles } from './files.js';
import { plural, rate, statsText } from './format.js';
import { showMarkdown } from './markdown.js';
import { isElsewhere } from './store.js';

const pretty = (json) => {
  try {
    return JSON.stringify(JSON.parse(json), null, 2);
  } catch {
    return json; // incomplete so far
  }
};

function progressText(message, progress) {
  if (isElsewhere(message)) return 'Being written in another tab';
  if (progress?.waiting) return ''; // already shown above
  if (progress?.first && progress.n > 1) {
    const perSecond = ((progress.n - 1) * 1000) / (performance.now() - progress.first);
    return `${rate(perSecond)} tokens/s · ${plural(progress.n, 'token')}`;
  }
  return progress?.prompt !== null && progress?.prompt !== undefined && progress.prompt < 1 ? `Reading the prompt: ${Math.floor(100 * progress.prompt)} %` : '';
}

/** actions: edit(message, text), true if accepted; again, go (continue), choose(message), result(call, text). nContext(): the server's. */
export class MessageView {
  constructor(message, siblings, actions, nContext) {
    this.message = message;
    this.actions = actions;
    this.nContext = nContext;
    this.body = h('div', { class: 'body' });
    this.foot = h('footer', { class: 'foot' });
    const who = { user: 'You', assistant: message.model || 'Assistant', tool: 'Result of a tool', system: 'System' }[message.role];
    this.node = h('article', { class: `message ${message.role}`, 'aria-label': who, 'data-id': message.id }, this.body, this.foot);
    if (message.role === 'assistant') this.makeAnswer();
    this.setSiblings(siblings);
    this.update();
  }

  makeAnswer() {
    this.thought = h('div', { class: 'thought' });
    this.thoughtTitle = h('summary', {}, 'Reasoning');
    this.reasoning = h('details', { class: 'reasoning', hidden: true }, this.thoughtTitle, this.thought);
    this.text = h('div', { class: 'markdown' });
    this.calls = h('div', { class: 'calls' });
    this.note = h('div', { class: 'note', hidden: true });
    this.pulse = h('div', { class: 'pulse', hidden: true }, h('span', { class: 'dots', 'aria-hidden': 'true' }, h('i'), h('i'), h('i')), h('span', {}));
    this.body.append(this.reasoning, this.text, this.calls, this.pulse, this.note);
  }

  /** Redraws the changed parts. progress: of an answer that is being generated. */
  update(progress) {
    const m = this.message, isWriting = m.state === 'writing';
    this.node.setAttribute('aria-busy', String(isWriting));
    this.node.classList.toggle('writing', isWriting);
    if (m.role !== 'assistant') this.body.replaceChildren(...[m.files?.length && drawFiles(m.files), m.content].filter(Boolean));
    else this.updateAnswer(m, isWriting, progress);
    if (isWriting !== this.wasWriting || !isWriting) this.drawFoot(isWriting);
    this.wasWriting = isWriting;
    if (isWriting) this.stats.textContent = progressText(m, progress);
  }

  updateAnswer(m, isWriting, progress) {
    this.reasoning.hidden = !m.reasoning;
    if (m.reasoning) {
      const isThinking = isWriting && !m.content && !m.calls?.length;
      this.thoughtTitle.textContent = isThinking ? 'Thinking …' : 'Reasoning';
      this.thought.textContent = m.reasoning;
    }
    showMarkdown(this.text, m.content);
    this.drawCalls(m, isWriting);
    this.pulse.hidden = !isWriting || Boolean(m.content || m.reasoning || m.calls?.length);
    this.pulse.lastChild.textContent = progress?.waiting ?? '';
    this.drawNote(m);
  }

  drawCalls(m, isWriting) {
    const calls = (m.calls ?? []).filter(Boolean);
    const key = JSON.stringify(calls) + isWriting;
    if (key === this.callsKey) return;
    this.callsKey = key;
    this.calls.replaceChildren(...calls.map((c) => h('details', { class: 'call', open: true },
      h('summary', {}, icon('tool'), `Calls ${c.name}`), h('pre', { tabindex: '0' }, pretty(c.arguments)), !isWriting && this.resultForm(c))));
  }

  resultForm(call) {
    const input = h('input', { type: 'text', 'aria-label': `Result of ${call.name}`, placeholder: 'Result' });
    return h('form', { class: 'result', onsubmit: (event) => (event.preventDefault(), this.actions.result(this.message, call, input.value)) }, input, h('button', { class: 'plain' }, 'Answer'));
  }

  drawNote(m) {
    const words = m.state === 'error' ? m.error : m.state === 'interrupted' ? 'Interrupted: this is what was written so far.' : m.finish === 'length' ? 'Cut off: the longest answer, or the end of the context.' : '';
    this.note.hidden = !words;
    this.note.className = m.state === 'error' ? 'note bad' : 'note';
    if (words !== this.noteWords) this.note.replaceChildren(h('span', {}, words));
    this.noteWords = words;
    if (m.state === 'error') this.note.setAttribute('role', 'alert');
    else this.note.removeAttribute('role');
  }

  drawFoot(isWriting) {
    const m = this.message;
    this.stats ??= h('span', { class: 'stats' });
    this.stats.textContent = isWriting ? '' : statsText(m.stats ?? {}, this.nContext());
    const buttons = isWriting ? [] : [
      m.content && iconButton('copy', 'Copy the text', async () => (await copyText(m.content), toast('Copied.'))),
      m.role === 'user' && iconButton('edit', 'Edit and send again', () => this.edit()),
      m.role === 'assistant' && m.content && (m.state !== 'done' || m.finish === 'length') && iconButton('go', 'Continue this answer', () => this.actions.go(m)),
      m.role === 'assistant' && iconButton('again', 'Another answer', () => this.actions.again(m)),
    ];
    this.foot.replaceChildren(...[this.branches, ...buttons, this.stats].filter(Boolean));
  }

  /** Shows ‹ 2/3 › if this turn has other versions. */
  setSiblings(siblings) {
    const i = siblings.findIndex((s) => s.id === this.message.id), n = siblings.length;
    if (this.branches) this.branches.remove();
    this.branches = null;
    if (n < 2) return;
    const step = (by, name, label) => iconButton(name, label, () => this.actions.choose(siblings[i + by]), { disabled: !siblings[i + by] });
    this.branches = h('span', { class: 'branches', role: 'group', 'aria-label': `Version ${i + 1} of ${n}` },
      step(-1, 'left', 'Previous version'), h('span', { class: 'branch-at' }, `${i + 1}/${n}`), step(1, 'right', 'Next version'));
    this.foot.prepend(this.branches);
  }

  edit() {
    const area = h('textarea', { 'aria-label': 'Edit the message', rows: 3, value: this.message.content });
    const close = () => {
      this.node.classList.remove('editing');
      this.update();
    };
    // While another answer is generated the text is not accepted and stays in the field.
    const send = () => {
      const text = area.value.trim(), isEmpty = !text && !this.message.files?.length;
      if (isEmpty || this.actions.edit(this.message, text)) close();
    };
    area.addEventListener('keydown', (e) => {
      if (e.key === 'Escape') close();
      if (e.key === 'Enter' && !e.shiftKey && !e.isComposing) (e.preventDefault(), send());
    });
    this.node.classList.add('editing');
    this.body.replaceChildren(area, h('div', { class: 'edit-foot' }, h('button', { type: 'button', class: 'plain', onclick: close }, 'Cancel'), h('button', { type: 'button', class: 'primary', onclick: send }, 'Send')));
    area.focus();
    area.setSelectionRange(area.value.length, area.value.length);
  }
}
