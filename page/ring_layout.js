// Positions of a ring's stops and links: on an ellipse, or if they do not fit, on the border of a grid. The head, the last stop, is at the
// bottom; a token goes round clockwise.

import { svg } from './dom.js';
import { bytes, ms } from './format.js';

const MAX_ELLIPSE = 6, MAX_NARROW_ELLIPSE = 4; // stops: with more, the labels of links do not fit between them
const MARGIN = 44, ROOM = 52; // space above and below the grid, and between its rows, for the labels of links

const text = (x, y, what, cls, anchor = 'middle') => svg('text', { x, y, class: cls, 'text-anchor': anchor }, what);

const overlap = (a, b, room) => Math.abs(a.x - b.x) < (a.w + b.w) / 2 + room && Math.abs(a.y - b.y) < (a.h + b.h) / 2 + room;

function onEllipse(sizes, width) {
  const n = sizes.length, tallest = Math.max(...sizes.map((s) => s.h)), widest = Math.max(...sizes.map((s) => s.w));
  const height = n === 2 ? 174 + tallest : 218 + 2 * tallest + Math.max(0, n - 4) * (width < 500 ? 90 : 50);
  const center = { x: width / 2, y: height / 2 };
  const rx = n === 2 ? width / 4 + 10 : Math.min(262, (width - widest) / 2 - 4), ry = n === 2 ? 0 : height / 2 - tallest / 2 - 8;
  const at = sizes.map((size, i) => {
    const angle = n === 2 ? Math.PI * (1 - i) : Math.PI / 2 + ((i + 1) * 2 * Math.PI) / n;
    return { x: center.x + rx * Math.cos(angle), y: center.y + ry * Math.sin(angle), ...size };
  });
  return { at, height, center };
}

// Rows of the border: `columns` stops at the top and as many, or one fewer, at the bottom; two in each row between.
function onBorder(sizes, width) {
  const n = sizes.length, columns = width < 500 ? 2 : 4;
  const bottom = (n - columns) % 2 === 0 ? columns : columns - 1, middle = (n - columns - bottom) / 2;
  const x = (i, of) => width / 2 + (i - (of - 1) / 2) * (width / columns);
  // Starts at the right end of the bottom row and goes left, up, right and down; then rotated so that the head is in the middle of the
  // bottom row.
  const cells = [
    ...Array.from({ length: bottom }, (_, i) => ({ row: middle + 1, x: x(bottom - 1 - i, bottom) })), ...Array.from({ length: middle }, (_, i) => ({ row: middle - i, x: x(0, columns) })),
    ...Array.from({ length: columns }, (_, i) => ({ row: 0, x: x(i, columns) })), ...Array.from({ length: middle }, (_, i) => ({ row: i + 1, x: x(columns - 1, columns) })),
  ];
  const first = Math.floor(bottom / 2) + (bottom % 2);
  const placed = sizes.map((size, i) => ({ ...size, ...cells[(first + i) % n] }));
  const heights = Array.from({ length: middle + 2 }, (_, row) => Math.max(...placed.filter((p) => p.row === row).map((p) => p.h)));
  const tops = heights.map((_, row) => MARGIN + heights.slice(0, row).reduce((sum, h) => sum + h + ROOM, 0));
  const height = tops.at(-1) + heights.at(-1) + MARGIN;
  return { at: placed.map((p) => ({ ...p, y: tops[p.row] + heights[p.row] / 2 })), height, isGrid: true };
}

/** Returns {at: [{x, y, w, h}], height} for stops of the given sizes, [{w, h}], in a picture of this width. */
export function placeStops(sizes, width) {
  if (sizes.length === 1) return { at: [{ x: width / 2, y: sizes[0].h / 2 + 20, ...sizes[0] }], height: sizes[0].h + 40 };
  const ellipse = onEllipse(sizes, width);
  const isTight = ellipse.at.some((a, i) => ellipse.at.some((b, k) => k > i && overlap(a, b, 30)));
  return sizes.length > (width < 500 ? MAX_NARROW_ELLIPSE : MAX_ELLIPSE) || (isTight && sizes.length > 3) ? onBorder(sizes, width) : ellipse;
}

const arrow = (at, angle) => svg('path', { class: 'arrow', d: 'M-6 -6 L6 0 L-6 6 Z', transform: `translate(${at.x} ${at.y}) rotate(${angle})` });
const said = (link) => [link?.rtt_ms > 0 && ms(link.rtt_ms), link?.bytes_s > 0 && `${bytes(link.bytes_s)}/s`];

// Draws a curve, bent outward.
function drawCurve(g, a, b, { at, center }, link, width) {
  const n = at.length, mid = { x: (a.x + b.x) / 2, y: (a.y + b.y) / 2 };
  const out = { x: mid.x - center.x, y: mid.y - center.y }, length = Math.hypot(out.x, out.y) || 1;
  const nx = n === 2 ? 0 : out.x / length, ny = n === 2 ? (a.x < b.x ? -1 : 1) : out.y / length;
  const bend = n === 2 ? 96 : width < 500 ? 26 : 40;
  const c = { x: mid.x + nx * bend, y: mid.y + ny * bend }, top = { x: (a.x + 2 * c.x + b.x) / 4, y: (a.y + 2 * c.y + b.y) / 4 };
  g.append(svg('path', { d: `M${a.x} ${a.y} Q${c.x} ${c.y} ${b.x} ${b.y}` }), arrow(top, (Math.atan2(b.y - a.y, b.x - a.x) * 180) / Math.PI));
  const anchor = Math.abs(nx) < 0.4 ? 'middle' : nx > 0 ? 'start' : 'end';
  const [far, up, down] = width < 500 && n > 2 ? [30, anchor === 'middle' ? -58 : -8, 4] : [18, -24, 24]; // above two stops that are close
  const x = top.x + nx * far, y = top.y + (ny < -0.1 ? up : ny > 0.1 ? down : -4), [latency, speed] = said(link);
  if (latency) g.append(text(x, y, latency, 'latency', anchor));
  if (speed) g.append(text(x, y + 15, speed, 'speed', anchor));
}

// Draws a straight link between borders. Its label is outside of a row, on the inner side between rows, or beside the lower end of a
// diagonal link.
function drawStraight(g, a, b, link, width) {
  const isLevel = a.row === b.row, side = Math.sign(b.x - a.x), down = Math.sign(b.y - a.y);
  const from = isLevel ? { x: a.x + (side * a.w) / 2, y: a.y } : { x: a.x, y: a.y + (down * a.h) / 2 };
  const to = isLevel ? { x: b.x - (side * b.w) / 2, y: b.y } : { x: b.x, y: b.y - (down * b.h) / 2 };
  const mid = { x: (from.x + to.x) / 2, y: (from.y + to.y) / 2 };
  g.append(svg('path', { d: `M${from.x} ${from.y} L${to.x} ${to.y}` }), arrow(mid, (Math.atan2(to.y - from.y, to.x - from.x) * 180) / Math.PI));
  const [latency, speed] = said(link);
  if (isLevel) {
    const y = a.row === 0 ? Math.min(a.y - a.h / 2, b.y - b.h / 2) - 22 : Math.max(a.y + a.h / 2, b.y + b.h / 2) + 16;
    if (latency) g.append(text(mid.x, y, latency, 'latency'));
    if (speed) g.append(text(mid.x, y + 15, speed, 'speed'));
  } else {
    const low = a.y > b.y ? a : b, isLeft = mid.x < width / 2, isOblique = Math.abs(from.x - to.x) > 1;
    const [anchor, by] = isLeft === isOblique ? ['end', -1] : ['start', 1];
    const x = isOblique ? low.x + by * (low.w / 2 + 8) : mid.x + by * 13, y = isOblique ? low.y - low.h / 2 + 10 : mid.y - 3;
    if (latency) g.append(text(x, y, latency, 'latency', anchor));
    if (speed) g.append(text(x, y + 15, speed, 'speed', anchor));
  }
}

/** Draws the link from stop i to the next one, with an arrow and its label. */
export function drawLink(places, i, link, isBusy, width) {
  const a = places.at[i], b = places.at[(i + 1) % places.at.length];
  const g = svg('g', { class: isBusy ? 'link busy' : 'link' });
  if (places.isGrid) drawStraight(g, a, b, link, width);
  else drawCurve(g, a, b, places, link, width);
  return g;
}
