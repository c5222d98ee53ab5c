// The ring as a picture: devices on an ellipse in the order in which a token passes them, the links between them, and outside of
// it, dashed, those that compute nothing now. Devices that share each of their layers are side by side in one box.

import { svg } from './dom.js';
import { bytes, ms, plural } from './format.js';

const NODE_W = 164, NODE_H = 76, MAX_LABEL = 15, CELL_W = 148, CELL_H = 44, GAP = 8;
let W = 760; // of the picture; the pages of phones have a narrower one

const cut = (text, most = MAX_LABEL) => (text.length > most ? `${text.slice(0, most - 1)}…` : text);
const text = (x, y, what, cls, anchor = 'middle') => svg('text', { x, y, class: cls, 'text-anchor': anchor }, what);

/** "0-3, 8-11" of windows. */
export const layersOf = (device) =>
  (device.windows ?? []).map((w) => (w.layer_end - w.layer_begin > 1 ? `${w.layer_begin}–${w.layer_end - 1}` : `${w.layer_begin}`)).join(', ');

/** Devices of the ring, in its order, those together that share each of their layers: in a ring of others no two have the same ones. */
export function stopsOf(members) {
  const stops = [];
  for (const d of members) {
    const before = stops.at(-1);
    if (before && d.windows?.length && layersOf(d) === layersOf(before[0])) before.push(d);
    else stops.push([d]);
  }
  return stops;
}

/** The plan's group of exactly these devices, or undefined. */
export const groupOf = (plan, stop) => plan?.groups?.find((g) => g.devices.length === stop.length && stop.every((d) => g.devices.includes(d.name)));

/** "33 %" of each layer; "": not known. */
export function shareOf(group, device) {
  const i = group ? group.devices.indexOf(device.name) : -1;
  return i < 0 ? '' : `${Math.round(100 * group.shares[i])} %`;
}

function describe(device, stop, group) {
  const n = device.layers ?? 0;
  if (!device.stage) return device.state;
  if (!n) return device.role === 'head' ? 'embedding and output' : 'no layers';
  const on = device.gpu_layers ? (device.gpu_layers === n ? ' on GPU' : `, ${device.gpu_layers} on GPU`) : device.os === 'browser' ? ', browser' : '';
  const share = shareOf(group, device);
  return `${plural(n, 'layer')}${on}${stop.length > 1 ? `, shared by ${stop.length}${share && `, ${share} of each`}` : ''}`;
}

function drawNode(device, x, y, index) {
  const isActive = device.state === 'computing', isOut = !device.stage;
  const cls = ['node', `c${index % 8}`, isActive && 'active', isOut && 'out', ['lost', 'failed', 'left'].includes(device.state) && 'gone'].filter(Boolean).join(' ');
  const left = x - NODE_W / 2, top = y - NODE_H / 2;
  return svg('g', { class: cls },
    svg('rect', { x: left, y: top, width: NODE_W, height: NODE_H, rx: 14, class: 'box' }),
    svg('rect', { x: left + 12, y: top + NODE_H - 14, width: NODE_W - 24, height: 5, rx: 2.5, class: 'track' }),
    svg('rect', { x: left + 12, y: top + NODE_H - 14, width: Math.max(0, (NODE_W - 24) * load(device)), height: 5, rx: 2.5, class: 'load' }),
    svg('circle', { cx: left + 18, cy: top + 21, r: 5, class: 'dot' }),
    text(left + 31, top + 26, cut(device.name ?? ''), 'name', 'start'),
    text(left + 14, top + 48, describe(device, [device]), 'what', 'start'));
}

// A group on its own has its devices in columns, one in a ring below each other.
const columns = (stop, isAlone, narrow) => (isAlone ? Math.min(stop.length, narrow ? 2 : 4) : 1);

const sizeOf = (stop, n) => (stop.length < 2 ? { w: NODE_W, h: NODE_H } : { w: n * (CELL_W + GAP) + GAP, h: 56 + Math.ceil(stop.length / n) * (CELL_H + GAP) });

function drawCell(device, x, y, group, index) {
  const cls = ['node', `c${index % 8}`, device.state === 'computing' && 'active'].filter(Boolean).join(' ');
  const share = shareOf(group, device);
  return svg('g', { class: cls },
    svg('rect', { x, y, width: CELL_W, height: CELL_H, rx: 10, class: 'box' }),
    svg('rect', { x: x + 10, y: y + CELL_H - 10, width: CELL_W - 20, height: 4, rx: 2, class: 'track' }),
    svg('rect', { x: x + 10, y: y + CELL_H - 10, width: (CELL_W - 20) * load(device), height: 4, rx: 2, class: 'load' }),
    svg('circle', { cx: x + 15, cy: y + 18, r: 5, class: 'dot' }),
    text(x + 26, y + 23, cut(device.name ?? '', share ? 10 : MAX_LABEL), 'name', 'start'),
    share && text(x + CELL_W - 10, y + 23, share, 'what', 'end'));
}

// Devices that share each of their layers; what adding up their parts is expected to take, where it is known.
function drawGroup(stop, n, x, y, group, index) {
  const { w, h } = sizeOf(stop, n), left = x - w / 2, top = y - h / 2;
  const sums = group?.sums_ms >= 0 ? `, sums ${ms(group.sums_ms)}` : '';
  const g = svg('g', { class: 'group' },
    svg('rect', { x: left, y: top, width: w, height: h, rx: 16, class: 'around' }),
    text(left + 12, top + 24, cut(`layers ${layersOf(stop[0])}`, n > 1 ? 40 : 18), 'name', 'start'),
    text(left + 12, top + 43, `shared${sums}`, 'what', 'start'));
  stop.forEach((d, i) => g.append(drawCell(d, left + GAP + (i % n) * (CELL_W + GAP), top + 54 + Math.floor(i / n) * (CELL_H + GAP), group, index(d))));
  return g;
}

// How much of the last second it computed.
const load = (device) => Math.min(1, device.compute_share ?? 0);

// A curve from one node to the next, bent outward, with an arrow and what the link takes.
function drawLink(a, b, center, link, isBusy) {
  const mid = { x: (a.x + b.x) / 2, y: (a.y + b.y) / 2 };
  const out = { x: mid.x - center.x, y: mid.y - center.y }, length = Math.hypot(out.x, out.y) || 1;
  const nx = a.n === 2 ? 0 : out.x / length, ny = a.n === 2 ? (a.x < b.x ? -1 : 1) : out.y / length;
  const bend = a.n === 2 ? 96 : W < 500 ? 26 : 40;
  const c = { x: mid.x + nx * bend, y: mid.y + ny * bend };
  const g = svg('g', { class: isBusy ? 'link busy' : 'link' }, svg('path', { d: `M${a.x} ${a.y} Q${c.x} ${c.y} ${b.x} ${b.y}`, 'marker-mid': 'none' }));
  const at = { x: (a.x + 2 * c.x + b.x) / 4, y: (a.y + 2 * c.y + b.y) / 4 };
  const angle = (Math.atan2(b.y - a.y, b.x - a.x) * 180) / Math.PI;
  g.append(svg('path', { class: 'arrow', d: 'M-6 -6 L6 0 L-6 6 Z', transform: `translate(${at.x} ${at.y}) rotate(${angle})` }));
  if (link) {
    const anchor = Math.abs(nx) < 0.4 ? 'middle' : nx > 0 ? 'start' : 'end';
    const [far, up, down] = W < 500 && a.n > 2 ? [30, anchor === 'middle' ? -58 : -8, 4] : [18, -24, 24]; // above two that are close
    const lx = at.x + nx * far, ly = at.y + (ny < -0.1 ? up : ny > 0.1 ? down : -4);
    if (link.rtt_ms > 0) g.append(text(lx, ly, ms(link.rtt_ms), 'latency', anchor));
    if (link.bytes_s > 0) g.append(text(lx, ly + 15, `${bytes(link.bytes_s)}/s`, 'speed', anchor));
  }
  return g;
}

// h: of the tallest one
function places(n, height, h) {
  const center = { x: W / 2, y: height / 2 };
  const rx = n === 2 ? W / 4 + 10 : Math.min(262, (W - NODE_W) / 2 - 4), ry = n === 2 ? 0 : height / 2 - h / 2 - 8;
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

/** The picture. narrow: for a phone. plan: its links, [{from, to, rtt_ms, bytes_s}], and groups. index(device): of its colour. */
export function drawRing(devices, plan, nLayer, index, narrow) {
  W = narrow ? 400 : 760;
  const members = devices.filter((d) => d.stage > 0), others = devices.filter((d) => !d.stage), stops = stopsOf(members), isAlone = stops.length === 1;
  const said = stops.flatMap((stop) => stop.map((d) => `${d.name}, ${describe(d, stop, groupOf(plan, stop))}, ${d.state}`)).join('; ') || 'none';
  const label = `${plural(members.length, 'device')} in the ring: ${said}${others.length ? `. Outside: ${others.map((d) => `${d.name}, ${d.state}`).join('; ')}` : ''}`;
  const size = (stop) => sizeOf(stop, columns(stop, isAlone, narrow)), tallest = Math.max(NODE_H, ...stops.map((stop) => size(stop).h)), more = tallest - NODE_H;
  const one = members.length > 1 ? tallest + 40 : 216;
  const ring = stops.length < 2 ? one : stops.length === 2 ? 250 + more : 370 + 2 * more + Math.max(0, stops.length - 4) * (narrow ? 90 : 50);
  const inRow = narrow ? 2 : 4, extra = others.length && members.length ? Math.ceil(others.length / inRow) * (NODE_H + 18) + 26 : 0;
  const { center, at } = isAlone ? { at: [{ x: W / 2, y: ring / 2 }] } : places(stops.length, ring, tallest);
  const above = stops.length < 3 ? 0 : Math.max(0, Math.min(...stops.map((stop, i) => at[i].y - size(stop).h / 2)) - 50); // nothing is there
  const picture = svg('svg', { viewBox: `0 ${above} ${W} ${ring + extra - above}`, role: 'img', 'aria-label': label, class: 'ring' });
  const isBusy = members.some((d) => d.state === 'computing');
  if (members.length === 1) picture.append(drawAlone(members[0], nLayer));
  if (stops.length > 1) {
    stops.forEach((stop, i) => {
      const next = (i + 1) % stops.length, from = stop.at(-1), to = stops[next][0];
      const link = plan?.links?.find((l) => l.from === from.name && l.to === to.name) ?? (from.rtt_ms ? { rtt_ms: from.rtt_ms } : null);
      picture.append(drawLink(at[i], at[next], center, link, isBusy));
    });
  }
  stops.forEach((stop, i) => {
    if (stop.length > 1) picture.append(drawGroup(stop, columns(stop, isAlone, narrow), at[i].x, at[i].y, groupOf(plan, stop), index));
    else if (!isAlone) picture.append(drawNode(stop[0], at[i].x, at[i].y, index(stop[0])));
  });
  others.forEach((d, i) => {
    const row = Math.floor(i / inRow), here = Math.min(inRow, others.length - row * inRow);
    const x = W / 2 + ((i % inRow) - (here - 1) / 2) * (NODE_W + 18);
    picture.append(drawNode(d, x, (members.length ? ring + 40 : 60) + row * (NODE_H + 18), index(d)));
  });
  return picture;
}
