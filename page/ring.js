// A picture of the ring: devices in the order in which a token passes them, the links between them, and beside it, dashed, the devices that
// compute nothing now. Devices that share their layers are side by side in one box.

import { cutToWidth, svg } from './dom.js';
import { ms, plural } from './format.js';
import { drawLink, placeStops } from './ring_layout.js';

const NODE_W = 164, NODE_H = 76, CELL_W = 148, CELL_H = 44, GAP = 8;
const NAME = '620 15px', WORDS = '13px'; // fonts, as in cluster.css
let W = 760; // width of the picture; narrower on phones

const text = (x, y, what, cls, anchor = 'middle') => svg('text', { x, y, class: cls, 'text-anchor': anchor }, what);

/** Returns the layers of a device's windows: "0-3, 8-11". */
export const layersOf = (device) =>
  (device.windows ?? []).map((w) => (w.layer_end - w.layer_begin > 1 ? `${w.layer_begin}–${w.layer_end - 1}` : `${w.layer_begin}`)).join(', ');

/** Returns the ring's stops in order. Devices with the same windows form a group, because devices of separate stops share no layer. */
export function stopsOf(members) {
  const stops = [];
  for (const d of members) {
    const before = stops.at(-1);
    if (before && d.windows?.length && layersOf(d) === layersOf(before[0])) before.push(d);
    else stops.push([d]);
  }
  return stops;
}

/** Returns the plan's group of exactly these devices, or undefined. */
export const groupOf = (plan, stop) => plan?.groups?.find((g) => g.devices.length === stop.length && stop.every((d) => g.devices.includes(d.name)));

/** Returns the device's share of each layer, "33 %"; "": unknown. */
export function shareOf(group, device) {
  const i = group ? group.devices.indexOf(device.name) : -1;
  return i < 0 ? '' : `${Math.round(100 * group.shares[i])} %`;
}

function describe(device, stop, group) {
  const n = device.layers ?? 0;
  if (!device.stage) return device.state;
  if (!n) return device.role === 'head' ? 'embedding and output' : 'only relays';
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
    text(left + 31, top + 26, cutToWidth(device.name ?? '', NODE_W - 42, NAME), 'name', 'start'),
    text(left + 14, top + 48, cutToWidth(describe(device, [device]), NODE_W - 26, WORDS), 'what', 'start'));
}

// A group without other stops has its devices in columns, otherwise one below the other.
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
    text(x + 26, y + 23, cutToWidth(device.name ?? '', CELL_W - (share ? 76 : 36), NAME), 'name', 'start'),
    share && text(x + CELL_W - 10, y + 23, share, 'what', 'end'));
}

// Draws devices that share their layers, and the predicted time of their reductions, if known.
function drawGroup(stop, n, x, y, group, index) {
  const { w, h } = sizeOf(stop, n), left = x - w / 2, top = y - h / 2;
  const sums = group?.sums_ms >= 0 ? `, sums ${ms(group.sums_ms)}` : '';
  const g = svg('g', { class: 'group' },
    svg('rect', { x: left, y: top, width: w, height: h, rx: 16, class: 'around' }),
    text(left + 12, top + 24, cutToWidth(`layers ${layersOf(stop[0])}`, w - 24, NAME), 'name', 'start'),
    text(left + 12, top + 43, cutToWidth(`shared${sums}`, w - 24, WORDS), 'what', 'start'));
  stop.forEach((d, i) => g.append(drawCell(d, left + GAP + (i % n) * (CELL_W + GAP), top + 54 + Math.floor(i / n) * (CELL_H + GAP), group, index(d))));
  return g;
}

// Share of the last second in which it computed.
const load = (device) => Math.min(1, device.compute_share ?? 0);

function drawAlone(device, nLayer) {
  const g = svg('g', { class: 'alone' });
  const w = Math.min(460, W - 110), x = (W - w) / 2, y = 34, n = Math.max(1, nLayer), step = w / n, gap = n > 60 ? 0.5 : 2;
  g.append(svg('rect', { x: x - 34, y, width: w + 68, height: 148, rx: 22, class: 'box' }),
    svg('circle', { cx: x - 2, cy: y + 36, r: 7, class: device.state === 'computing' ? 'dot active' : 'dot' }),
    text(x + 16, y + 42, cutToWidth(device.name ?? 'this machine', w / 2, '620 17px'), 'name', 'start'),
    text(x + w, y + 42, describe(device, [device]), 'what', 'end'));
  for (let i = 0; i < n; i++) g.append(svg('rect', { x: x + i * step + gap / 2, y: y + 66, width: Math.max(0.5, step - gap), height: 36, rx: Math.min(4, step / 4), class: i >= n - (device.gpu_layers ?? 0) ? 'layer gpu' : 'layer' }));
  g.append(text(x, y + 126, 'first layer', 'what', 'start'), text(x + w, y + 126, 'last layer', 'what', 'end'));
  return g;
}

/** Draws the picture. narrow: for a phone. plan: its links, [{from, to, rtt_ms, bytes_s}], and groups. index(device): colour index. */
export function drawRing(devices, plan, nLayer, index, narrow) {
  W = narrow ? 400 : 760;
  const members = devices.filter((d) => d.stage > 0), others = devices.filter((d) => !d.stage), stops = stopsOf(members), isAlone = stops.length === 1;
  const said = stops.flatMap((stop) => stop.map((d) => `${d.name}, ${describe(d, stop, groupOf(plan, stop))}, ${d.state}`)).join('; ') || 'none';
  const label = `${plural(members.length, 'device')} in the ring: ${said}${others.length ? `. Outside: ${others.map((d) => `${d.name}, ${d.state}`).join('; ')}` : ''}`;
  const sizes = stops.map((stop) => sizeOf(stop, columns(stop, isAlone, narrow)));
  const places = members.length > 1 ? placeStops(sizes, W) : { at: [], height: 216 };
  const inRow = narrow ? 2 : 4, extra = others.length && members.length ? Math.ceil(others.length / inRow) * (NODE_H + 18) + 26 : 0;
  const above = stops.length < 3 || places.isGrid ? 0 : Math.max(0, Math.min(...places.at.map((p) => p.y - p.h / 2)) - 50); // empty space at the top
  const picture = svg('svg', { viewBox: `0 ${above} ${W} ${places.height + extra - above}`, role: 'img', 'aria-label': label, class: places.isGrid ? 'ring whole' : 'ring' });
  const isBusy = members.some((d) => d.state === 'computing');
  if (members.length === 1) picture.append(drawAlone(members[0], nLayer));
  for (let i = 0; i < stops.length && stops.length > 1; i++) {
    const from = stops[i].at(-1), to = stops[(i + 1) % stops.length][0];
    const link = plan?.links?.find((l) => l.from === from.name && l.to === to.name) ?? (from.rtt_ms ? { rtt_ms: from.rtt_ms } : null);
    picture.append(drawLink(places, i, link, isBusy, W));
  }
  stops.forEach((stop, i) => {
    const { x, y } = places.at[i] ?? {};
    if (stop.length > 1) picture.append(drawGroup(stop, columns(stop, isAlone, narrow), x, y, groupOf(plan, stop), index));
    else if (!isAlone) picture.append(drawNode(stop[0], x, y, index(stop[0])));
  });
  others.forEach((d, i) => {
    const row = Math.floor(i / inRow), here = Math.min(inRow, others.length - row * inRow);
    const x = W / 2 + ((i % inRow) - (here - 1) / 2) * (NODE_W + 18);
    picture.append(drawNode(d, x, (members.length ? places.height + 40 : 60) + row * (NODE_H + 18), index(d)));
  });
  return picture;
}
