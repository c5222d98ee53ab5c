// Creates elements. Text is inserted only as text nodes: no code of this page parses HTML.

const SVG = 'http://www.w3.org/2000/svg', MATHML = 'http://www.w3.org/1998/Math/MathML';

function fill(node, props, children) {
  for (const [name, value] of Object.entries(props ?? {})) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith('on')) node.addEventListener(name.slice(2), value);
    else if (name === 'value' || name === 'checked') node[name] = value;
    else node.setAttribute(name, value === true ? '' : value);
  }
  node.append(...children.flat(Infinity).filter((c) => c !== null && c !== undefined && c !== false));
  return node;
}

/** Creates an element: h('button', {class: 'plain', onclick: go}, 'Go'). Children that are null or false are skipped. */
export const h = (tag, props, ...children) => fill(document.createElement(tag), props, children);

/** The same for SVG. */
export const svg = (tag, props, ...children) => fill(document.createElementNS(SVG, tag), props, children);

/** The same for MathML. */
export const mathml = (tag, props, ...children) => fill(document.createElementNS(MATHML, tag), props, children);

// Paths in a box of 24 by 24.
const ICONS = {
  menu: 'M4 6h16M4 12h16M4 18h16',
  plus: 'M12 5v14M5 12h14',
  send: 'M12 19V5M5.5 11.5 12 5l6.5 6.5',
  stop: 'M7 7h10v10H7z',
  copy: 'M9 9h10v11H9zM5 15V4h10',
  attach: 'M19.5 11.5l-7.6 7.6a4.6 4.6 0 0 1-6.5-6.5l8-8a3 3 0 0 1 4.3 4.3l-7.9 7.9a1.4 1.4 0 0 1-2-2l7.2-7.2',
  file: 'M7 3.5h7l4.5 4.5v12.5H7zM14 3.5V8h4.5',
  check: 'm5 12.5 4.5 4.5L19 7.5',
  edit: 'M4 20h4L19.5 8.5l-4-4L4 16zM13 7l4 4',
  again: 'M20 11a8 8 0 1 0-1.7 6M20 5v6h-6',
  go: 'M7 5l11 7-11 7z',
  left: 'm14.5 6-6 6 6 6',
  right: 'm9.5 6 6 6-6 6',
  trash: 'M5 7h14M10 7V4h4v3M7 7l1 13h8l1-13',
  settings: 'M4 7h9M17 7h3M4 17h3M11 17h9M13 4.5v5M7 14.5v5',
  sun: 'M12 8a4 4 0 1 0 0 8 4 4 0 0 0 0-8zM12 2v2.5M12 19.5V22M2 12h2.5M19.5 12H22M5 5l1.7 1.7M17.3 17.3 19 19M19 5l-1.7 1.7M6.7 17.3 5 19',
  moon: 'M20 14.5A8.5 8.5 0 0 1 9.5 4a8.5 8.5 0 1 0 10.5 10.5z',
  auto: 'M12 3.5a8.5 8.5 0 1 0 0 17zM12 3.5a8.5 8.5 0 0 1 0 17',
  down: 'M12 5v14M5.5 12.5 12 19l6.5-6.5',
  close: 'M6 6l12 12M18 6 6 18',
  key: 'M8 11a4 4 0 1 0 0 8 4 4 0 0 0 0-8zM11 12.5 20 4M16.5 7.5l3 3',
  download: 'M12 4v11M7 10.5l5 5 5-5M5 20h14',
  upload: 'M12 16V5M7 9.5l5-5 5 5M5 20h14',
  tool: 'M14.5 6.5a4 4 0 0 0-5.3 5L4 16.700 7.3 20l5.2 -5.2 a4 4 0 0 0 5-5.300L15 12l-3-3z',
};

export const icon = (name) =>
  svg('svg', { viewBox: '0 0 24 24', class: 'icon', 'aria-hidden': 'true' }, svg('path', { d: ICONS[name] }));

/** Creates a button with an icon; its label is for screen readers and the tooltip. */
export const iconButton = (name, label, onclick, props) =>
  h('button', { type: 'button', class: 'icon-button', 'aria-label': label, title: label, onclick, ...props }, icon(name));

const measured = new Map(); // widths, by font and text
let pen;

/** Returns the width of a text, in pixels, in `font` ("600 15px") of the page's family. */
function widthOf(text, font) {
  const key = `${font} ${text}`;
  if (!measured.has(key)) {
    pen ??= document.createElement('canvas').getContext('2d');
    pen.font = `${font} ${getComputedStyle(document.body).fontFamily}`;
    if (measured.size > 2000) measured.clear();
    measured.set(key, pen.measureText(text).width);
  }
  return measured.get(key);
}

/** Returns the text, or its beginning with "…" if it is wider than `most` pixels. */
export function cutToWidth(text, most, font) {
  if (widthOf(text, font) <= most) return text;
  const letters = [...text];
  while (letters.length > 1 && widthOf(`${letters.join('').trimEnd()}…`, font) > most) letters.pop();
  return `${letters.join('').trimEnd()}…`;
}

let toastTimer;
/** Shows a line at the bottom that disappears by itself. */
export function toast(text) {
  const box = document.getElementById('toasts');
  clearTimeout(toastTimer);
  box.replaceChildren(h('div', { class: 'toast' }, text));
  toastTimer = setTimeout(() => box.replaceChildren(), 5000);
}

/** Copies text; without a clipboard (plain HTTP from another machine) by means of a selection. */
export async function copyText(text) {
  if (navigator.clipboard) return navigator.clipboard.writeText(text);
  const area = h('textarea', { class: 'off-screen', 'aria-hidden': 'true', value: text });
  document.body.append(area);
  area.select();
  document.execCommand('copy');
  area.remove();
}

/** Opens a modal dialog, which Escape and its buttons close. It is removed when closed. */
export function openDialog(title, content, buttons) {
  const dialog = h(
    'dialog',
    { 'aria-label': title, onclose: () => dialog.remove() },
    h('div', { class: 'dialog-head' }, h('h2', {}, title), iconButton('close', 'Close', () => dialog.close())),
    h('div', { class: 'dialog-body' }, content),
    buttons && h('div', { class: 'dialog-foot' }, buttons),
  );
  document.body.append(dialog);
  dialog.showModal();
  return dialog;
}
