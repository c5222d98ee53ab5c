// The ring as a picture: devices on an ellipse in the order in which a token passes them, the links between them, and outside of
// it, dashed, those that compute nothing now.

import { svg } from './dom.js';
import { bytes, ms, plural } from './format.js';

const NODE_W = 164, NODE_H = 76, MAX_LABEL = 15;
let W = 760; // of the picture; the pages of phones have a narrower one

const cut = (text) => (text.length > MAX_LABEL ? `${text.slice(0, MAX_LABEL - 1)}…` : text);
const text = (x, y, what, cls, anchor = 'middle') => svg('text', { x, y, class: cls, 'text-anchor': anchor }, what);

/** "0-3, 8-11" of windows. */
export const layersOf = (device) =>
  (device.windows ?? []).map((w) => (w.layer_end - w.layer_begin > 1 ? `${w.layer_begin}–${w.layer_end - 1}` : `${w.layer_begin}`)).join(', ');

// Devices that share each of their layers, with the device itself: in a ring of others no two have the same layers.
const groupOf = (device, members) => (device.layers ? members.filter((m) => m.layers && layersOf(m) === layersOf(device)) : [device]);

function describe(device, members) {
  const n = device.layers ?? 0;
  if (!device.stage) return device.state;
  if (!n) return device.role === 'head' ? 'embedding and output' : 'no layers';
  const on = device.gpu_layers ? (device.gpu_layers === n ? ' on GPU' : `, ${device.gpu_layers} on GPU`) : '';
  const inGroup = groupOf(device, members).length;
  return `${plural(n, 'layer')}${on}${inGroup > 1 ? `, shared by ${inGroup}` : ''}`;
}

function drawNode(device, members, x, y, index) {
  const isActive = device.state === 'computing', isOut = !device.stage;
  const cls = ['node', `c${index % 8}`, isActive && 'active', isOut && 'out', ['lost', 'failed', 'left'].includes(device.state) && 'gone'].filter(Boolean).join(' ');
  const left = x - NODE_W / 2, top = y - NODE_H / 2;
  return svg('g', { class: cls },
    svg('rect', { x: left, y: top, width: NODE_W, height: NODE_H, rx: 14, class: 'box' }),
    svg('rect', { x: left + 12, y: top + NODE_H - 14, width: NODE_W - 24, height: 5, rx: 2.5, class: 'track' }),
    svg('rect', { x: left + 12, y: top + NODE_H - 14, width: Math.max(0, (NODE_W - 24) * load(device)), height: 5, rx: 2.5, class: 'load' }),
    svg('circle', { cx: left + 18, cy: top + 21, r: 5, class: 'dot' }),
    text(left + 31, top + 26, cut(device.name ?? ''), 'name', 'start'),
    text(left + 14, top + 48, describe(device, members), 'what', 'start'));
}

// How much of the last second it computed.
const load = (device) => Math.min(1, device.compute_share ?? 0);

// A curve from one node to the next, bent outward, with an arrow and what the link takes.
function drawLink(a, b, center, link, isBusy, isInGroup) {
  const mid = { x: (a.x + b.x) / 2, y: (a.y + b.y) / 2 };
  const out = { x: mid.x - center.x, y: mid.y - center.y }, length = Math.hypot(out.x, out.y) || 1;
  const nx = a.n === 2 ? 0 : out.x / length, ny = a.n === 2 ? (a.x < b.x ? -1 : 1) : out.y / length;
  const bend = a.n === 2 ? 96 : W < 500 ? 26 : 40;
  const c = { x: mid.x + nx * bend, y: mid.y + ny * bend };
  const g = svg('g', { class: ['link', isBusy && 'busy', isInGroup && 'shares'].filter(Boolean).join(' ') }, svg('path', { d: `M${a.x} ${a.y} Q${c.x} ${c.y} ${b.x} ${b.y}`, 'marker-mid': 'none' }));
  const at = { x: (a.x + 2 * c.x + b.x) / 4, y: (a.y + 2 * c.y + b.y) / 4 };
  const angle = (Math.atan2(b.y - a.y, b.x - a.x) * 180) / Math.PI;
  g.append(svg('path', { class: 'arrow', d: 'M-6 -6 L6 0 L-6 6 Z', transform: `translate(${at.x} ${at.y}) rotate(${angle})` }));
  if (link) {
    const anchor = Math.abs(nx) < 0.4 ? 'middle' : nx > 0 ? 'start' : 'end';
    const [far, up, down] = W < 500 && a.n > 2 ? [30, -8, 4] : [18, -24, 24];
    const lx = at.x + nx * far, ly = at.y + (ny < -0.1 ? up : ny > 0.1 ? down : -4);
    if (link.rtt_ms > 0) g.append(text(lx, ly, ms(link.rtt_ms), 'latency', anchor));
    if (link.bytes_s > 0) g.append(text(lx, ly + 15, `${bytes(link.bytes_s)}/s`, 'speed', anchor));
  }
  return g;
}

function places(n, height) {
  const center = { x: W / 2, y: height / 2 };
  const rx = n === 2 ? W / 4 + 10 : Math.min(262, (W - NODE_W) / 2 - 4), ry = n === 2 ? 0 : height / 2 - NODE_H / 2 - 8;
  const at = Array.from({ length: n }, (_, i) => {
    const angle = n === 2 ? Math.PI * (1 - i) : Math.PI / 2 + ((i + 1) * 2 * Math.PI) / n; // the head, the last one, is at the bottom
    return { x: center.x + rx * Math.cos(angle), y: center.y + ry * Math.sin(angle), n };
  });
  return { center, at };
}

function drawAlone(device, nLayer) {
  const g = svg('g', { class: 'alone' });
  const w = Math.min(460, W - 110), x = (W - w) / 2, y = 34, n = Math.max(1, nLayer), step = w / n, gap = n > 60 ? 0.5 : 2;
  g.append(svg('rect', { x: x - 34, y, width: w + 68, height: 148, rx: 22, class: 'box' }),
    svg('circle', { cx: x - 2, cy: y + 36, r: 7, class: device.state === 'computing' ? 'dot active' : 'dot' }),
    text(x + 16, y + 42, cut(device.name ?? 'this machine'), 'name', 'start'),
    text(x + w, y + 42, describe(device, [device]), 'what', 'end'));
  for (let i = 0; i < n; i++) g.append(svg('rect', { x: x + i * step + gap / 2, y: y + 66, width: Math.max(0.5, step - gap), height: 36, rx: Math.min(4, step / 4), class: i >= n - (device.gpu_layers ?? 0) ? 'layer gpu' : 'layer' }));
  g.append(text(x, y + 126, 'first layer', 'what', 'start'), text(x + w, y + 126, 'last layer', 'what', 'end'));
  return g;
}

/** The picture. narrow: for a phone. links: [{from, to, rtt_ms, bytes_s}] of the plan. index(device): of its colour. */
export function drawRing(devices, links, nLayer, index, narrow) {
  W = narrow ? 400 : 760;
  const members = devices.filter((d) => d.stage > 0), others = devices.filter((d) => !d.stage);
  const label = `${plural(members.length, 'device')} in the ring: ${members.map((d) => `${d.name}, ${describe(d, members)}, ${d.state}`).join('; ') || 'none'}${others.length ? `. Outside: ${others.map((d) => `${d.name}, ${d.state}`).join('; ')}` : ''}`;
  const ring = members.length < 2 ? 216 : members.length === 2 ? 250 : 370 + Math.max(0, members.length - 4) * (narrow ? 90 : 50);
  const inRow = narrow ? 2 : 4, extra = others.length && members.length ? Math.ceil(others.length / inRow) * (NODE_H + 18) + 26 : 0;
  const picture = svg('svg', { viewBox: `0 0 ${W} ${ring + extra}`, role: 'img', 'aria-label': label, class: 'ring' });
  const isBusy = members.some((d) => d.state === 'computing');
  if (members.length === 1) picture.append(drawAlone(members[0], nLayer));
  const { center, at } = places(members.length, ring);
  if (members.length > 1) {
    members.forEach((d, i) => {
      const next = (i + 1) % members.length;
      const link = links?.find((l) => l.from === d.name && l.to === members[next].name) ?? (d.rtt_ms ? { rtt_ms: d.rtt_ms } : null);
      picture.append(drawLink(at[i], at[next], center, link, isBusy, groupOf(d, members).includes(members[next])));
    });
    members.forEach((d, i) => picture.append(drawNode(d, members, at[i].x, at[i].y, index(d))));
  }
  others.forEach((d, i) => {
    const row = Math.floor(i / inRow), here = Math.min(inRow, others.length - row * inRow);
    const x = W / 2 + ((i % inRow) - (here - 1) / 2) * (NODE_W + 18);
    picture.append(drawNode(d, members, x, (members.length ? ring + 40 : 60) + row * (NODE_H + 18), index(d)));
  });
  return picture;
}
