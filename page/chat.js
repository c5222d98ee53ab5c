// The chat: one conversation at a time, the branch on the page, and the answer that is being generated.

import { completeWhenReady, interrupt, isEmpty } from './complete.js';
import { Composer } from './composer.js';
import { h, iconButton, toast } from './dom.js';
import { acceptDrops } from './files.js';
import { MessageView } from './message.js';
import { contextLength, server, noteError, untilReady } from './server.js';
import * as store from './store.js';
import { Tree } from './tree.js';
import { drawWelcome } from './welcome.js';

const SAVE_MS = 300; // interval at which a growing answer is stored
const BEAT_MS = 2000; // maximum interval, so that other tabs know that it is still growing

export class Chat {
  /** changed(conversation): called when its title or time has changed. */
  constructor(box, changed) {
    this.changed = changed;
    this.views = [];
    this.thread = null; // {conversation, tree, isKept} on the page; null while one is opened. A request belongs to the thread in which it was sent
    this.abort = null; // of the turn: set before any wait, so that there is one turn at a time
    this.scrolledTo = 0;
    this.welcome = () => drawWelcome(server.model === 'demo', (text) => this.submit(text));
    this.isAtEnd = true;
    this.build(box);
    addEventListener('pagehide', () => this.writing && store.putLast(this.writing.message));
    store.hearTabs((news) => this.hear(news));
    server.addEventListener('changed', () => (this.log.querySelector('.empty')?.replaceWith(this.welcome()), this.drawMeter()));
  }

  build(box) {
    this.log = h('div', { class: 'log', role: 'log', 'aria-label': 'Messages', 'aria-live': 'polite', tabindex: '0' });
    this.scroller = h('div', { class: 'scroller' }, this.log);
    this.composer = new Composer({ send: (text, files) => this.submit(text, files), stop: () => this.stop(), isBusy: () => Boolean(this.abort) });
    this.toEnd = iconButton('down', 'To the end', () => this.scrollToEnd(true), { class: 'icon-button to-end', hidden: true });
    box.append(this.scroller, h('div', { class: 'bottom' }, this.toEnd, this.composer.node));
    box.addEventListener('keydown', (e) => e.key === 'Escape' && this.abort && this.stop());
    acceptDrops(box, (files) => this.composer.addFiles(files));
    this.scroller.addEventListener('scroll', () => this.noteScroll(), { passive: true });
    new ResizeObserver(() => this.scrollToEnd()).observe(this.log); // messages get their height when they become visible
  }

  // ---- conversations

  get conversation() {
    return this.thread?.conversation ?? null;
  }

  async open(conversation) {
    this.stop();
    this.thread = null;
    this.composer.open(conversation?.id ?? null);
    const opening = (this.opening = {});
    const messages = conversation ? await store.listMessages(conversation.id) : [];
    for (const m of messages) await this.mend(m);
    if (opening !== this.opening) return; // another one was opened meanwhile
    this.thread = { conversation, tree: new Tree(messages), isKept: Boolean(conversation) };
    this.showBranch();
    this.watch();
    this.isAtEnd = true;
    this.scrollToEnd(true);
    if (matchMedia('(hover: hover)').matches) this.composer.input.focus();
  }

  /** Marks an answer as interrupted whose tab was closed or reloaded while it was generated. */
  async mend(m) {
    if (m.state !== 'writing' || store.isElsewhere(m)) return;
    const last = store.popLast(m.id);
    if (last) Object.assign(m, { content: last.content, reasoning: last.reasoning, calls: last.calls });
    interrupt(m);
    await store.putMessage(m);
  }

  // ---- other tabs

  /** Another tab has stored a message or a conversation: updates the view. */
  hear({ message, conversation }) {
    const { thread } = this, id = thread?.conversation?.id;
    if (id && message?.conversation === id) this.hearMessage(message);
    if (id && conversation?.id === id && !this.abort) {
      Object.assign(thread.conversation, conversation);
      this.showBranch();
      this.scrollToEnd();
    }
  }

  hearMessage(message) {
    const { tree } = this.thread, own = tree.byId.get(message.id);
    if (own && own === this.writing?.message) return;
    if (own) Object.assign(own, message);
    else tree.add(message);
    this.views.find((v) => v.message === own)?.update();
    this.watch();
    this.scrollToEnd();
  }

  /** Detects that a tab was closed in the middle of an answer: it no longer sends updates. */
  watch() {
    clearTimeout(this.watching);
    const view = this.views.findLast((v) => store.isElsewhere(v.message));
    if (view) this.watching = setTimeout(() => this.mend(view.message).then(() => (view.update(), this.watch())), BEAT_MS);
  }

  // ---- the branch on the page

  showBranch() {
    const { tree, conversation } = this.thread;
    const branch = tree.branch(conversation?.current);
    let same = 0;
    while (same < branch.length && this.views[same]?.message === branch[same]) same++;
    for (const view of this.views.splice(same)) view.node.remove();
    this.log.querySelector('.empty')?.remove();
    for (const m of branch.slice(same)) this.append(m);
    this.views.forEach((v) => v.setSiblings(tree.siblings(v.message)));
    if (branch.length === 0) this.log.append(this.welcome());
    this.drawMeter();
  }

  append(message) {
    const actions = { edit: (m, text) => this.ask({ role: 'user', parent: m.parent, content: text, files: m.files }), again: (m) => this.answer(m.parent), go: (m) => this.proceed(m),
      choose: (m) => this.choose(m), result: (m, call, text) => this.ask({ role: 'tool', parent: m.id, call: call.id, content: text }) };
    const view = new MessageView(message, this.thread.tree.siblings(message), actions, contextLength);
    this.views.push(view);
    this.log.querySelector('.empty')?.remove();
    this.log.append(view.node);
    return view;
  }

  async choose(message) {
    if (this.abort) return;
    await this.setCurrent(this.thread, this.thread.tree.leaf(message).id);
    this.views.find((v) => v.message.id === message.id)?.node.scrollIntoView({ block: 'nearest' });
  }

  async setCurrent(thread, id) {
    thread.conversation.current = id;
    thread.conversation.updated = Date.now();
    if (thread === this.thread) this.showBranch();
    if (await this.keep(store.putConversation(thread.conversation))) thread.isKept = true;
    this.changed(thread.conversation);
  }

  /** Waits for the store. If the browser cannot store more, the user is told, and the page continues with its state in memory. */
  async keep(done) {
    try {
      await done;
      return true;
    } catch (err) {
      toast(`This message could not be stored: ${err.message}`);
      return false;
    }
  }

  drawMeter() {
    const stats = this.views.findLast((v) => v.message.stats?.prompt)?.message.stats;
    this.composer.drawMeter(stats ? stats.prompt + (stats.tokens ?? 0) : 0, contextLength());
  }

  // ---- writing

  /** Begins a turn: until its end nothing else is sent. Returns null if one is running, or no conversation is open yet. */
  begin() {
    if (this.abort || !this.thread) return null;
    if (this.views.some((v) => store.isElsewhere(v.message))) return toast('Another tab is writing in this conversation.'), null;
    this.abort = new AbortController();
    this.composer.update();
    return { thread: this.thread, abort: this.abort };
  }

  async add({ thread }, message) {
    const m = { id: store.newId(), conversation: thread.conversation.id, created: Date.now(), state: 'done', content: '', reasoning: '', ...message };
    thread.tree.add(m);
    if (thread === this.thread) this.isAtEnd = true;
    await this.keep(store.putMessage(m));
    await this.setCurrent(thread, m.id);
    return m;
  }

  /** Returns true if the message is being sent. */
  submit(text, files = []) {
    const turn = this.begin();
    if (!turn) return false;
    if (!turn.thread.conversation) {
      const title = (text || files[0].name).replace(/\s+/g, ' ').slice(0, 60);
      turn.thread.conversation = { id: store.newId(), title, created: Date.now(), updated: Date.now(), current: null };
      this.composer.rename(turn.thread.conversation.id);
    }
    this.run(turn, { role: 'user', parent: turn.thread.conversation.current, content: text, ...(files.length && { files }) });
    return true;
  }

  ask(message) {
    const turn = this.begin();
    if (turn) this.run(turn, message);
    return Boolean(turn);
  }

  answer(parent) {
    const turn = this.begin();
    if (turn) this.run(turn, null, parent);
  }

  proceed(message) {
    const turn = this.begin();
    if (turn) this.write(turn, message);
  }

  /** Adds the user's message, if any, and generates the answer. */
  async run(turn, message, parent) {
    const to = message ? (await this.add(turn, message)).id : parent;
    this.write(turn, await this.add(turn, { role: 'assistant', parent: to, model: server.model, state: 'writing', tab: store.tab, kept: Date.now() }));
  }

  /** Generates this answer, or continues it. */
  async write(turn, message) {
    const { signal } = turn.abort;
    const job = { message, view: this.views.find((v) => v.message === message), progress: null };
    Object.assign(message, { state: 'writing', error: undefined, tab: store.tab, kept: Date.now() });
    this.writing = job;
    this.draw(job);
    const beat = setInterval(() => ((message.kept = Date.now()), this.keep(store.putMessage(message))), BEAT_MS);
    const branch = turn.thread.tree.branch(message.parent);
    try {
      signal.throwIfAborted(); // the page may show another conversation by now
      await completeWhenReady({ message, branch, model: () => server.model, signal, changed: (p) => this.wrote(job, p), waiting: (words) => ((job.progress = { waiting: words }), this.draw(job)) });
      message.state = 'done';
    } catch (err) {
      this.handleFailure(job, err);
    }
    clearInterval(beat);
    if (this.writing === job) this.writing = null;
    if (this.abort === turn.abort) this.abort = null;
    this.composer.update();
    await this.keep(store.putMessage(message));
    if (!contextLength() || server.models.length > 1) await untilReady(); // the model may have been loaded for this answer, replacing others
    this.views.find((v) => v.message === message)?.update();
    if (turn.thread === this.thread) (this.drawMeter(), this.scrollToEnd());
  }

  handleFailure(job, err) {
    const m = job.message;
    if (err.name === 'AbortError') return void interrupt(m);
    noteError(err);
    if (err.status === 0) untilReady();
    if (err.status === 0 && !isEmpty(m)) return void interrupt(m); // the page shows that the server is unreachable
    m.state = 'error';
    m.error = err.message;
  }

  wrote(job, progress) {
    job.progress = progress;
    const now = Date.now();
    if (now - job.message.kept > SAVE_MS) {
      job.message.kept = now;
      this.keep(store.putMessage(job.message));
    }
    this.draw(job);
  }

  /** Draws at most once per frame, however many tokens arrive. */
  draw(job) {
    if (job.frame) return;
    job.frame = requestAnimationFrame(() => {
      job.frame = null;
      if (job.message.state !== 'writing') return;
      job.view?.update(job.progress);
      this.scrollToEnd();
    });
  }

  stop() {
    this.abort?.abort();
    this.abort = null;
    this.composer.update();
  }

  // ---- scrolling: follows the end, unless the user has scrolled up

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

  /** Called by settings and import: the shown conversation may have changed. */
  async reload(conversations) {
    const here = conversations.find((c) => c.id === this.conversation?.id);
    if (here) this.conversation.title = here.title; // it may have been renamed
    if (this.thread?.isKept && !here) await this.open(null); // one that is not stored yet cannot have been removed
  }
}
