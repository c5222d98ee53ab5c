// The chat: one conversation at a time, its branch on the page, and the answer that is being written.

import { complete } from './complete.js';
import { h, iconButton } from './dom.js';
import { count } from './format.js';
import { MessageView } from './message.js';
import { contextLength, server, takeError, untilReady } from './server.js';
import { askForKey } from './settings.js';
import * as store from './store.js';
import { Tree } from './tree.js';

const SAVE_MS = 300; // a text that is being written is kept so often
const LOST_MS = 5000; // another tab's answer that was not kept for that long is not written any more
// What the demo model can; and what others can.
const STORIES = ['Tell me a story about a brave little dragon.', 'Tell me a story about a girl named Mia and a ball.', 'Tell me a story about two good friends.', 'What can you do?'];
const STARTERS = ['Tell me a story about a brave little dragon.', 'Explain how a rainbow is made, in three sentences.', 'Write a haiku about the sea.', 'Compare tea and coffee in a table.'];

export class Chat {
  /** changed(conversation): its title or time is another. */
  constructor(box, changed) {
    this.changed = changed;
    this.views = [];
    this.tree = new Tree();
    this.conversation = null;
    this.abort = null;
    this.scrolledTo = 0;
    this.isAtEnd = true;
    this.build(box);
    addEventListener('pagehide', () => this.writing && store.putLast(this.writing.message));
    server.addEventListener('changed', () => (this.log.querySelector('.empty')?.replaceWith(this.empty()), this.drawMeter()));
  }

  build(box) {
    this.log = h('div', { class: 'log', role: 'log', 'aria-label': 'Messages', 'aria-live': 'polite', tabindex: '0' });
    this.scroller = h('div', { class: 'scroller' }, this.log);
    this.input = h('textarea', { id: 'prompt', rows: 1, placeholder: 'Write a message', 'aria-label': 'Message', autocomplete: 'off' });
    this.button = iconButton('send', 'Send', () => (this.abort ? this.stop() : this.submit()), { class: 'send' });
    this.meter = h('span', { class: 'meter-text' });
    this.bar = h('i');
    this.toEnd = iconButton('down', 'To the end', () => this.scrollToEnd(true), { class: 'icon-button to-end', hidden: true });
    const composer = h('form', { class: 'composer', onsubmit: (e) => (e.preventDefault(), this.submit()) },
      h('div', { class: 'entry' }, this.input, this.button),
      h('div', { class: 'under' }, h('span', { class: 'hint' }, 'Enter sends, Shift+Enter starts a line'), h('span', { class: 'meter', title: 'How much of the context this conversation fills' }, h('span', { class: 'meter-bar', 'aria-hidden': 'true' }, this.bar), this.meter)));
    box.append(this.scroller, h('div', { class: 'bottom' }, this.toEnd, composer));
    this.input.addEventListener('input', () => this.grow());
    this.input.addEventListener('keydown', (e) => {
      if (e.key === 'Enter' && !e.shiftKey && !e.isComposing) (e.preventDefault(), this.submit());
    });
    box.addEventListener('keydown', (e) => e.key === 'Escape' && this.abort && this.stop());
    this.scroller.addEventListener('scroll', () => this.noteScroll(), { passive: true });
    new ResizeObserver(() => this.scrollToEnd()).observe(this.log); // messages get their height when they come into sight
  }

  grow() {
    this.input.style.height = 'auto';
    this.input.style.height = `${Math.min(this.input.scrollHeight, innerHeight * 0.4)}px`;
  }

  // ---- conversations

  async open(conversation) {
    this.stop();
    this.conversation = conversation;
    const messages = conversation ? await store.listMessages(conversation.id) : [];
    if (conversation !== this.conversation) return; // another one was opened meanwhile
    for (const m of messages) await this.mend(m);
    this.tree = new Tree(messages);
    this.showBranch();
    this.isAtEnd = true;
    this.scrollToEnd(true);
    if (matchMedia('(hover: hover)').matches) this.input.focus();
  }

  /** What was being written when the page was left. */
  async mend(m) {
    if (m.state !== 'writing' || (m.tab !== store.tab && Date.now() - m.kept < LOST_MS)) return;
    const last = store.takeLast(m.id);
    if (last) Object.assign(m, { content: last.content, reasoning: last.reasoning, calls: last.calls });
    m.state = 'interrupted';
    await store.putMessage(m);
  }

  // ---- the branch on the page

  showBranch() {
    const branch = this.tree.branch(this.conversation?.current);
    let same = 0;
    while (same < branch.length && this.views[same]?.message === branch[same]) same++;
    for (const view of this.views.splice(same)) view.node.remove();
    this.log.querySelector('.empty')?.remove();
    for (const m of branch.slice(same)) this.append(m);
    this.views.forEach((v) => v.setSiblings(this.tree.siblings(v.message)));
    if (branch.length === 0) this.log.append(this.empty());
    this.drawMeter();
  }

  append(message) {
    const actions = { edit: (m, text) => this.edit(m, text), again: (m) => this.answer(m.parent), go: (m) => this.write(m), choose: (m) => this.choose(m), result: (m, call, text) => this.giveResult(m, call, text) };
    const view = new MessageView(message, this.tree.siblings(message), actions, contextLength);
    this.views.push(view);
    this.log.querySelector('.empty')?.remove();
    this.log.append(view.node);
    return view;
  }

  empty() {
    const use = (text) => ((this.input.value = text), this.grow(), this.submit());
    return h('div', { class: 'empty' }, h('h1', {}, 'What shall we talk about?'),
      h('p', {}, 'The model runs on your own machines. Nothing you write leaves them.'),
      h('div', { class: 'starters' }, (server.model === 'demo' ? STORIES : STARTERS).map((s) => h('button', { type: 'button', class: 'starter', onclick: () => use(s) }, s))));
  }

  async choose(message) {
    if (this.abort) return;
    await this.setCurrent(this.tree.leaf(message).id);
    this.showBranch();
    this.views.find((v) => v.message.id === message.id)?.node.scrollIntoView({ block: 'nearest' });
  }

  async setCurrent(id) {
    this.conversation.current = id;
    this.conversation.updated = Date.now();
    await store.putConversation(this.conversation);
    this.changed(this.conversation);
  }

  drawMeter() {
    const n = contextLength(), stats = this.views.findLast((v) => v.message.stats?.prompt)?.message.stats;
    const used = stats ? stats.prompt + (stats.tokens ?? 0) : 0;
    this.meter.textContent = n ? (used ? `${count(used)} of ${count(n)} tokens` : `${count(n)} tokens of context`) : '';
    this.bar.style.width = n ? `${Math.min(100, (100 * used) / n)}%` : '0';
    this.bar.classList.toggle('full', n > 0 && used > 0.85 * n);
  }

  // ---- writing

  async add(message) {
    const m = { id: store.newId(), conversation: this.conversation.id, created: Date.now(), state: 'done', content: '', reasoning: '', ...message };
    this.tree.add(m);
    await store.putMessage(m);
    await this.setCurrent(m.id);
    this.showBranch();
    return m;
  }

  async submit() {
    const text = this.input.value.trim();
    if (!text || this.abort) return;
    this.input.value = '';
    this.grow();
    if (!this.conversation) this.conversation = { id: store.newId(), title: text.replace(/\s+/g, ' ').slice(0, 60), created: Date.now(), updated: Date.now(), current: null };
    await this.ask({ role: 'user', parent: this.conversation.current, content: text });
  }

  async ask(message) {
    this.isAtEnd = true;
    const m = await this.add(message);
    await this.answer(m.id);
  }

  edit(message, text) {
    if (!this.abort) this.ask({ role: 'user', parent: message.parent, content: text });
  }

  giveResult(message, call, text) {
    if (!this.abort) this.ask({ role: 'tool', parent: message.id, call: call.id, content: text });
  }

  async answer(parent) {
    if (this.abort) return;
    this.isAtEnd = true;
    this.write(await this.add({ role: 'assistant', parent, model: server.model, state: 'writing', tab: store.tab, kept: Date.now() }));
  }

  /** Writes this answer, or goes on with it. */
  async write(message) {
    if (this.abort) return;
    const abort = (this.abort = new AbortController());
    const job = { message, view: this.views.find((v) => v.message === message), progress: null };
    Object.assign(message, { state: 'writing', error: undefined, tab: store.tab, kept: Date.now() });
    this.writing = job;
    this.setButton();
    this.draw(job);
    const branch = this.tree.branch(message.parent);
    try {
      await this.completeWhenReady(job, branch, abort.signal);
      message.state = 'done';
    } catch (err) {
      this.takeFailure(job, err);
    }
    if (this.writing === job) this.writing = this.abort = null;
    this.setButton();
    await store.putMessage(message);
    if (!contextLength()) await untilReady(); // the model was loaded for this answer
    job.view.update();
    if (message.conversation === this.conversation?.id) (this.drawMeter(), this.scrollToEnd());
  }

  async completeWhenReady(job, branch, signal) {
    for (;;) {
      try {
        return await complete({ message: job.message, branch, model: server.model, signal, changed: (p) => this.wrote(job, p) });
      } catch (err) {
        if (signal.aborted) throw err;
        if (err.status === 401 && (await askForKey('This request was refused: its key is missing or wrong.'))) continue;
        if (err.status !== 503 || !err.loading) throw err;
        takeError(err);
        await this.waitForServer(job, signal);
      }
    }
  }

  async waitForServer(job, signal) {
    const show = () => ((job.progress = { waiting: `Waiting: ${server.doing || 'the model is being loaded'}${server.progress}` }), this.draw(job));
    server.addEventListener('changed', show);
    show();
    const aborted = new Promise((_, no) => signal.addEventListener('abort', () => no(new DOMException('stopped', 'AbortError')), { once: true }));
    try {
      await Promise.race([untilReady(), aborted]);
    } finally {
      server.removeEventListener('changed', show);
    }
  }

  takeFailure(job, err) {
    const m = job.message;
    if (err.name === 'AbortError') return void (m.state = m.content || m.reasoning ? 'interrupted' : 'error', m.content || m.reasoning || (m.error = 'Stopped before the first word.'));
    takeError(err);
    m.state = 'error';
    m.error = err.message;
    if (err.status === 0) untilReady();
  }

  wrote(job, progress) {
    job.progress = progress;
    const now = Date.now();
    if (now - job.message.kept > SAVE_MS) {
      job.message.kept = now;
      store.putMessage(job.message);
    }
    this.draw(job);
  }

  /** Once a frame, however many tokens came. */
  draw(job) {
    if (job.frame) return;
    job.frame = requestAnimationFrame(() => {
      job.frame = null;
      if (job.message.state !== 'writing') return;
      job.view.update(job.progress);
      this.scrollToEnd();
    });
  }

  stop() {
    this.abort?.abort();
    this.abort = null;
    this.setButton();
  }

  setButton() {
    const label = this.abort ? 'Stop' : 'Send';
    if (this.button.getAttribute('aria-label') === label) return;
    const made = iconButton(this.abort ? 'stop' : 'send', label, () => (this.abort ? this.stop() : this.submit()), { class: 'send' });
    const had = document.activeElement === this.button;
    this.button.replaceWith(made);
    this.button = made;
    if (had) made.focus();
  }

  // ---- scrolling: the end is followed, unless one has scrolled up

  noteScroll() {
    const s = this.scroller, left = s.scrollHeight - s.scrollTop - s.clientHeight;
    if (left < 60) this.isAtEnd = true;
    else if (s.scrollTop < this.scrolledTo - 4) this.isAtEnd = false;
    this.scrolledTo = s.scrollTop;
    this.toEnd.hidden = left < 200;
  }

  scrollToEnd(always) {
    if (always || this.isAtEnd) this.scroller.scrollTop = this.scroller.scrollHeight;
  }

  /** For the settings and files: what is shown may be another. */
  async reload(conversations) {
    const here = conversations.find((c) => c.id === this.conversation?.id);
    if (this.conversation && !here) await this.open(null);
  }

}
