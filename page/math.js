// Converts formulas in TeX notation to MathML. The text of a formula becomes text nodes in a fixed set of elements; commands for anything
// else (colours, links, styles) are ignored. An unknown command is shown by name; a formula that does not parse (an unbalanced brace)
// yields null, and its source is shown.

import { h, mathml as m } from './dom.js';
import { Reader } from './math_reader.js';
import { Unreadable } from './math_words.js';

const MAX_LENGTH = 20000; // characters of a formula

/** Returns the formula as an element; null if it does not parse. */
export function drawMath(source, isDisplay) {
  if (source.length > MAX_LENGTH) return null;
  try {
    const reader = new Reader(source, isDisplay);
    let list = reader.list();
    if (reader.words.is('command', '\\')) { // lines without an environment
      const table = new Reader(`\\begin{gathered}${source}\\end{gathered}`, isDisplay);
      list = table.whole();
    } else if (!reader.words.is('end')) return null;
    return m('math', isDisplay ? { display: 'block' } : {}, list.map((n) => n.node));
  } catch (err) {
    if (err instanceof Unreadable) return null;
    throw err;
  }
}

// ---- detection

// "$5 and $6" and "\(optional\)" are prose: adjacent words, or one long word, without any mathematical symbol.
const TEXT_COMMANDS = /\\(?:text\w*|mbox|operatorname\*?|math\w+|begin|end|label|tag)\s*\{[^}]*\}|\\[A-Za-z]+/g;

function isProse(source) {
  const bare = source.replace(TEXT_COMMANDS, '\\');
  if (/\p{L}{2}[,.;:]?\s+\p{L}{2}/u.test(bare)) return true;
  if (/[\\^_=+<>{}]/.test(source)) return false;
  return /^\s*[\d.,]+\s*\p{L}{2}/u.test(bare) || /^\P{L}*\p{L}\p{Ll}{3,}\P{L}*$/u.test(bare); // "5 euros", "optional"
}

const IN_TEXT = [
  { open: '$$', find: /^\$\$([^$]*?[^$\\])\$\$/, isDisplay: true },
  { open: '$', find: /^\$(?![\s$])((?:\\[^]|[^\\$])*?)(?<!\s)\$(?![\w$])/, isDisplay: false },
  { open: '\\(', find: /^\\\(([^]*?)\\\)/, isDisplay: false },
  { open: '\\[', find: /^\\\[([^]*?)\\\]/, isDisplay: true },
];

/** Wraps a formula; a display gets its own element. */
const framed = (node, isDisplay, tag) => (isDisplay ? h(tag, { class: 'formula', tabindex: '0' }, node) : node);

/** Parses a formula at the beginning of `source`: {node, n} for n characters; null: none. before: the preceding character. */
export function mathAt(source, before) {
  const kind = IN_TEXT.find(({ open }) => source.startsWith(open));
  const found = kind && !(source[0] === '$' && /[\w\\$]/.test(before)) && source.match(kind.find);
  if (!found || !found[1].trim() || /\n\s*\n/.test(found[1])) return null;
  if (kind.isDisplay ? kind.open === '\\[' && !/[\\^_=+<>]/.test(found[1]) : isProse(found[1])) return null; // \[1\]: brackets that are not a link
  const node = drawMath(found[1].trim(), kind.isDisplay);
  return { node: node ? framed(node, kind.isDisplay, 'span') : found[0], n: found[0].length };
}

// ---- displays that begin a line

const OPEN = /^ {0,3}(?:(\$\$)|(\\\[)|\\begin\{((?:align|alignat|equation|gather|multline|eqnarray|displaymath)\*?)\})/;
const MAX_LINES = 200; // per display

export const isMath = (line) => OPEN.test(line);

const closeOf = ([, dollars, bracket, name]) => (dollars ? '$$' : bracket ? '\\]' : `\\end{${name}}`);

/** Returns the line after the display that begins in line i. An unclosed one ends with the paragraph. */
export function endOfMath(lines, i) {
  const open = lines[i].match(OPEN), close = closeOf(open);
  for (let k = i; k < Math.min(lines.length, i + MAX_LINES); k++) if (lines[k].indexOf(close, k === i ? open[0].length : 0) >= 0) return k + 1;
  let end = i + 1;
  while (end < lines.length && lines[end].trim()) end++;
  return end;
}

/** Parses the lines of a display: {node, rest}, rest being the text after it; null: they are text. */
export function displayOf(text) {
  const open = text.match(OPEN), close = closeOf(open), end = text.indexOf(close, open[0].length);
  if (end < 0) return { node: h('p', { class: 'source' }, text), rest: '' };
  const source = text.slice(open[3] ? 0 : open[0].length, open[3] ? end + close.length : end).trim(), rest = text.slice(end + close.length).trim();
  if (!source || (open[2] && rest && !/[\\^_=+<>]/.test(source))) return null; // "\[1\] A book"
  const node = drawMath(source, true);
  return { node: node ? framed(node, true, 'div') : h('p', { class: 'source' }, text.slice(0, end + close.length)), rest };
}
