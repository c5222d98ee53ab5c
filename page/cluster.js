// The cluster view: live activity of the machines, and the plan with its reasons.

import { h, svg, toast } from './dom.js';
import { drawCards } from './devices.js';
import { count, plural, progress, rate, sentence, shortCount, uptime } from './format.js';
import { drawJoin } from './join.js';
import { Live } from './live.js';
import { drawPlan } from './plan.js';
import { drawRing } from './ring.js';
import { server } from './server.js';

const HISTORY = 60; // seconds

export class ClusterView {
  constructor(box) {
    this.history = [];
    this.colors = new Map(); // a device keeps its colour for the life of the page
    this.live = new Live((name, data) => this.take(name, data), (why) => this.lose(why));
    this.figures = h('div', { class: 'figures' });
    this.picture = h('div', { class: 'picture' });
    this.cards = h('div', { class: 'cards' });
    this.plan = h('div', { class: 'plan' });
    this.texts = h('div', { class: 'texts' });
    this.join = h('div', { class: 'join' });
    this.note = h('p', { class: 'note', role: 'status', hidden: true });
    const part = (title, ...content) => h('section', { class: 'part', 'aria-label': title }, h('h2', {}, title), content);
    box.append(h('div', { class: 'cluster-body' }, h('h1', { class: 'off-screen' }, 'Cluster'), this.note, this.figures,
      h('div', { class: 'columns' }, h('div', { class: 'wide' }, (this.ringPart = part('The ring', this.picture)), part('Devices', this.cards)),
        h('div', { class: 'narrow' }, part('Active requests', this.texts), (this.planPart = part('The plan', this.plan)), part('Add a device', this.join)))));
    this.planPart.hidden = true;
  }

  show(on) {
    this.live.want(on);
    if (!on) this.history = [];
  }

  take(name, data) {
    if (name === 'plan') this.planData = data;
    if (name === 'state') this.applyState(data);
    if (this.state) this.draw();
  }

  lose(why) {
    this.note.hidden = false;
    this.note.textContent = `${server.state === 'unreachable' ? '' : `${why} `}This page shows the last known state.`;
  }

  applyState(state) {
    this.note.hidden = state.is_up;
    this.note.textContent = state.is_up ? '' : `${sentence(state.doing ?? '') || 'Loading the model'}${progress(state.percent, state.seconds_left)}`;
    this.announce(this.state?.cluster, state.cluster);
    this.state = state;
    this.history.push({ at: performance.now(), tokens: state.generated_tokens ?? 0 });
    if (this.history.length > HISTORY + 1) this.history.shift();
  }

  /** Also announces devices that joined or left. */
  announce(before, now) {
    if (!before || !now) return;
    const was = new Map(before.devices.map((d) => [d.name, d]));
    for (const d of now.devices) {
      const old = was.get(d.name);
      if (old && !['lost', 'failed', 'left'].includes(old.state) && ['lost', 'failed', 'left'].includes(d.state)) toast(`${d.name}: ${d.state}.`);
      if (!old) toast(`${d.name} has joined.`);
      was.delete(d.name);
    }
    for (const name of was.keys()) toast(`${name} is gone.`);
  }

  index(device) {
    if (!this.colors.has(device.name)) this.colors.set(device.name, this.colors.size);
    return this.colors.get(device.name);
  }

  speeds() {
    const out = [];
    for (let i = 1; i < this.history.length; i++) {
      const a = this.history[i - 1], b = this.history[i];
      out.push(Math.max(0, ((b.tokens - a.tokens) * 1000) / (b.at - a.at)));
    }
    return out;
  }

  // ---- drawing: only what has changed

  replace(box, key, make) {
    const text = JSON.stringify(key);
    if (box.kinKey === text) return;
    box.kinKey = text;
    box.replaceChildren(...[make()].flat());
  }

  draw() {
    const s = this.state, devices = s.cluster?.devices ?? [], index = (d) => this.index(d);
    this.figures.replaceChildren(...this.drawFigures(s));
    this.ringPart.firstChild.textContent = s.has_others ? 'The ring' : 'The model on this machine';
    const shown = devices.map((d) => [d.name, d.stage, d.state, d.windows, d.gpu_layers, Math.round(20 * (d.compute_share ?? 0)), d.rtt_ms && Math.round(d.rtt_ms * 50)]);
    const narrow = this.picture.clientWidth < 480;
    this.replace(this.picture, [shown, this.planData?.links, this.planData?.groups, narrow], () => (devices.length ? drawRing(devices, this.planData, s.cluster.head.layers, index, narrow) : h('p', { class: 'quiet' }, 'The machines are shown when the model is there.')));
    this.replace(this.cards, [devices, this.planData], () => drawCards(devices, s.cluster?.head?.layers ?? 0, this.planData, index));
    this.replace(this.texts, [s.texts, s.waiting], () => this.drawTexts(s));
    this.planPart.hidden = !this.planData;
    if (this.planData) this.replace(this.plan, this.planData, () => drawPlan(this.planData, index));
    this.replace(this.join, [s.has_others, s.head, s.is_up || devices.length > 0], () => drawJoin(s));
  }

  figure(name, value, unit, more) {
    return h('div', { class: 'figure' }, h('span', { class: 'figure-name' }, name), h('span', { class: 'figure-value' }, value, unit && h('small', {}, ` ${unit}`)), more);
  }

  drawFigures(s) {
    const speeds = this.speeds(), used = s.kv_blocks ? 1 - s.kv_blocks_free / s.kv_blocks : 0;
    const head = s.cluster?.head;
    return [
      this.figure('Speed', rate(speeds.at(-1) ?? 0), 'tokens/s', this.sparkline(speeds)),
      this.figure('Requests', count(s.running), `of ${count(s.n_parallel)}`, h('span', { class: 'figure-more' }, s.waiting ? `${count(s.waiting)} in the queue` : 'no queue')),
      this.figure('Context in use', `${Math.round(100 * used)}`, '%', h('span', { class: 'gauge', 'aria-hidden': 'true' }, this.gauge(used))),
      this.figure('Written', shortCount(s.generated_tokens), 'tokens', h('span', { class: 'figure-more' }, `${plural(s.requests, 'request')} in ${uptime(s.uptime_s)}`)),
      this.figure('Model', s.model, '', h('span', { class: 'figure-more' }, head ? `${head.layers} layers, context ${count(s.n_ctx)}` : '')),
    ];
  }

  gauge(share) {
    return svg('svg', { viewBox: '0 0 100 6', preserveAspectRatio: 'none' }, svg('rect', { width: 100, height: 6, class: 'track' }), svg('rect', { width: 100 * share, height: 6, class: 'load' }));
  }

  sparkline(values) {
    const top = Math.max(1, ...values), step = 100 / HISTORY, from = 100 - (values.length - 1) * step;
    const points = values.map((v, i) => `${(from + i * step).toFixed(1)},${(23 - (21 * v) / top).toFixed(1)}`).join(' ');
    return svg('svg', { viewBox: '0 0 100 24', preserveAspectRatio: 'none', class: 'sparkline', 'aria-hidden': 'true' }, svg('polyline', { points }));
  }

  drawTexts(s) {
    if (!s.texts?.length) return h('p', { class: 'quiet' }, s.waiting ? `${count(s.waiting)} waiting.` : 'No active requests.');
    const rows = s.texts.map((t, i) => {
      const isReading = t.n_done < t.n_prompt && !t.n_generated;
      const doing = isReading ? `reading the prompt, ${count(t.n_done)} of ${count(t.n_prompt)}` : `${plural(t.n_generated, 'token')}, prompt of ${count(t.n_prompt)}`;
      return h('li', {}, h('span', { class: isReading ? 'mark reading' : 'mark' }), `Request ${i + 1}`, h('span', { class: 'quiet' }, doing));
    });
    return [h('ul', { class: 'plain-list' }, rows), s.waiting ? h('p', { class: 'quiet' }, `and ${count(s.waiting)} in the queue`) : ''];
  }
}
