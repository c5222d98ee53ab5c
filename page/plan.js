// The plan: the predicted time per token, where the time goes, why each device has its layers, and the effect of losing one.

import { h } from './dom.js';
import { count, ms, plural, rate, sentence } from './format.js';

const PARTS = [['compute', 'computing'], ['sums', 'sums of groups'], ['disk', 'waiting for disks'], ['network', 'network'], ['windows', 'starting windows']];

function partsOf(plan) {
  const sums = (plan.groups ?? []).reduce((sum, g) => sum + g.sums_ms, 0);
  const of = { compute: plan.compute_ms - sums, sums, disk: plan.disk_wait_ms + (plan.disk_bound_ms ?? 0), network: plan.hops_ms, windows: plan.windows_ms };
  return PARTS.map(([key, name]) => ({ key, name, ms: of[key] ?? 0 })).filter((p) => p.ms > 0.005 * plan.tpot_ms);
}

function stack(parts, total) {
  const box = h('div', { class: 'stack', role: 'img', 'aria-label': parts.map((p) => `${p.name} ${ms(p.ms)}`).join(', ') });
  for (const p of parts) {
    const i = h('i', { class: p.key, title: `${p.name}: ${ms(p.ms)}` });
    i.style.width = `${(100 * p.ms) / total}%`;
    box.append(i);
  }
  return box;
}

// A token's path round the ring: each device's time, then its hop, in sequence; the devices of a group in parallel.
function pathRows(plan, index) {
  const whole = plan.tpot_ms || 1;
  let at = 0;
  const rows = [];
  for (const stop of plan.ring ?? []) {
    const d = plan.devices.find((x) => x.name === stop.name);
    if (!d || d.compute_ms === undefined) continue;
    const group = stop.relay ? null : plan.groups?.find((g) => g.devices.includes(d.name)), isLast = !group || group.devices.at(-1) === d.name;
    const own = (d.compute_ms ?? 0) + (d.windows_ms ?? 0) + (d.disk_wait_ms ?? 0) + (d.experts_ms ?? 0), hop = isLast ? (d.hop_ms ?? 0) : 0;
    const bar = h('span', { class: `way c${index(d) % 8}` }), a = h('i', { class: 'own' }), b = h('i', { class: 'hop' });
    a.style.marginLeft = `${Math.min(99, (100 * at) / whole)}%`;
    a.style.width = `${(100 * own) / whole}%`;
    b.style.width = `${(100 * hop) / whole}%`;
    bar.append(a, b);
    rows.push(h('li', {}, h('span', { class: 'who' }, d.name), bar, h('span', { class: 'took' }, ms(own))));
    if (isLast) at += own + hop;
  }
  return rows.length > 1 ? h('ol', { class: 'ways', 'aria-label': 'Path of a token around the ring' }, rows) : null;
}

// The devices that share layers, their shares, and the costs and gains of sharing.
function groups(plan, index) {
  return (plan.groups ?? []).map((g) => {
    const bar = h('div', { class: 'stack', 'aria-hidden': 'true' }, g.devices.map((name, i) => {
      const part = h('i', { class: `share c${index({ name }) % 8}` });
      part.style.width = `${100 * g.shares[i]}%`;
      return part;
    }));
    const sums = g.sums_ms >= 0 ? `: ${count(g.sums)} sums of ${ms(g.sum_ms)} take ${ms(g.sums_ms)} of a token, and sharing ${g.saves_ms < 0 ? 'loses' : 'gains'} ${ms(Math.abs(g.saves_ms))} in all` : '';
    return h('div', { class: 'shared' }, bar, h('p', {}, g.devices.map((name, i) => [i > 0 ? ', ' : '', h('strong', {}, name), ` ${Math.round(100 * g.shares[i])} %`]), ` of each of ${plural(g.layers, 'layer')}${sums}.`));
  });
}

// A sentence such as "a ring is faster: kitchen + attic share 8 layers, …" may describe groups that the plan does not use.
const ofGroups = ({ group, group_tried: isTried, groups }) => group && (isTried && !groups?.length ? `Considered, but not used: ${group.slice(group.indexOf(': ') + 2)}` : sentence(group));

// The reasons, in the planner's words: one sentence; the devices' and groups' details can be expanded.
function reasons(plan) {
  const list = [ofGroups(plan), ...plan.devices.map((d) => d.why)].filter(Boolean);
  const details = list.length ? h('details', { class: 'reasons' }, h('summary', {}, 'Details'), h('ul', {}, list.map((why) => h('li', {}, why)))) : null;
  if (!plan.reason && !details) return [];
  return [h('h3', {}, 'Reasons'), plan.reason ? h('p', {}, `${sentence(plan.reason)}.`) : null, details];
}

// A plan made by a fixed rule, without predicted times.
function unmeasured(plan, index) {
  const out = plan.devices.slice(1).filter((d) => !d.layers).map((d) => d.name);
  return [
    h('p', { class: 'quiet' }, `The time per token is unknown: ${plan.not_predicted ?? 'no device was measured'}.`), groups(plan, index),
    out.length ? h('p', {}, `Without layers: ${out.join(', ')}.`) : null,
  ].flat().filter(Boolean);
}

// "; generation pauses for about 1.9 s": the expected cost of losing the device.
const pauses = (lost) => (lost?.pause_ms > 0 ? `; generation pauses for about ${ms(lost.pause_ms)}` : '');

function leaving(plan) {
  const list = plan.devices.filter((d) => d.without);
  if (!list.length) return null;
  const cost = (more) => `a token takes ${ms(Math.abs(more))} ${more < 0 ? 'less' : 'more'}`;
  return [h('h3', {}, 'If a device leaves'), h('ul', { class: 'leaves' }, list.map(({ name, without, if_lost: lost }) => h('li', { class: without.fits ? '' : 'bad' }, h('strong', {}, name),
    `: ${without.fits ? `${cost(without.more_ms)}${pauses(lost)}` : 'the model does not fit on the others, so generation stops'}`)))];
}

export function drawPlan(plan, index) {
  const round = plan.rounds > 1 ? `, ${plan.rounds} passes around the ring` : '';
  if (plan.not_predicted || !(plan.tpot_ms > 0)) return unmeasured(plan, index);
  const parts = partsOf(plan);
  return [
    h('p', { class: 'expect' }, h('strong', {}, ms(plan.tpot_ms)), ` expected per token (${rate(1000 / plan.tpot_ms)} tokens/s)${round}`),
    stack(parts, plan.tpot_ms),
    h('ul', { class: 'legend' }, parts.map((p) => h('li', {}, h('i', { class: p.key }), `${p.name} ${ms(p.ms)}`))),
    pathRows(plan, index),
    groups(plan, index),
    reasons(plan), leaving(plan),
  ].flat().filter(Boolean);
}
