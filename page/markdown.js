// Converts Markdown to DOM nodes. Text becomes text nodes, so it can never become markup, a script or a handler. Links are http, https and
// mailto only. Supports headings, lists, tables, code, quotes, rules, emphasis, links, formulas; everything else is shown as it is.

import { colourCode } from './code.js';
import { copyText, h, icon } from './dom.js';
import { displayOf, endOfMath, isMath, mathAt } from './math.js';

const FENCE = /^ {0,3}(`{3,}|~{3,})\s*([^`]*)$/, HEADING = /^(#{1,6})\s+(.*)$/, RULE = /^ {0,3}([-*_])(\s*\1){2,}\s*$/;
const QUOTE = /^ {0,3}> ?/, ITEM = /^( *)([-*+]|\d{1,9}[.)])(\s+|$)(.*)$/;
const TABLE_LINE = /^\s*\|?\s*:?-+:?\s*(\|\s*:?-+:?\s*)*\|?\s*$/;
const MAX_SPAN = 2000; // characters of a link, an emphasis or an inline formula
const MAX_DEPTH = 12; // nesting of lists, quotes and emphasis

// ---- blocks: splits the source into lines by kind

const isBlank = (line) => /^\s*$/.test(line);
const isTable = (lines, i) => lines[i].includes('|') && i + 1 < lines.length && /[|:]/.test(lines[i + 1]) && TABLE_LINE.test(lines[i + 1]);
const isBreak = (lines, i) =>
  isBlank(lines[i]) || FENCE.test(lines[i]) || HEADING.test(lines[i]) || RULE.test(lines[i]) || QUOTE.test(lines[i]) ||
  /^ {0,3}([-*+]|1[.)])\s+\S/.test(lines[i]) || isTable(lines, i) || isMath(lines[i]);

function endOfFence(lines, i) {
  const mark = lines[i].match(FENCE)[1];
  let end = i + 1;
  while (end < lines.length && !(lines[end].trim().startsWith(mark) && /^[`~]+$/.test(lines[end].trim()))) end++;
  return Math.min(end + 1, lines.length);
}

// A list continues while lines are items, indented, or blank before such a line.
function endOfList(lines, i) {
  let end = i + 1;
  for (; end < lines.length; end++) {
    if (isBlank(lines[end])) {
      const next = lines[end + 1];
      if (next === undefined || !(ITEM.test(next) || /^\s{2,}\S/.test(next))) break;
    } else if (!ITEM.test(lines[end]) && !/^\s{2,}/.test(lines[end]) && isBreak(lines, end)) break;
    else if (RULE.test(lines[end])) break;
    if (isBlank(lines[end - 1]) && !ITEM.test(lines[end]) && !/^\s{2,}/.test(lines[end]) && !isBlank(lines[end])) break;
  }
  return end;
}

function endWhile(lines, i, test) {
  while (i < lines.length && test(i)) i++;
  return i;
}

/** Returns [{kind, text}], in order: the units that are redrawn when one of them changes. */
export function splitBlocks(source) {
  const lines = source.replace(/\r\n?/g, '\n').split('\n');
  const blocks = [];
  for (let i = 0; i < lines.length; ) {
    let kind, end;
    if (isBlank(lines[i])) {
      i++;
      continue;
    }
    if (FENCE.test(lines[i])) (kind = 'code'), (end = endOfFence(lines, i));
    else if (isMath(lines[i])) (kind = 'math'), (end = endOfMath(lines, i));
    else if (HEADING.test(lines[i])) (kind = 'heading'), (end = i + 1);
    else if (RULE.test(lines[i])) (kind = 'rule'), (end = i + 1);
    else if (QUOTE.test(lines[i])) (kind = 'quote'), (end = endWhile(lines, i, (k) => !isBlank(lines[k])));
    else if (ITEM.test(lines[i]) && lines[i].match(ITEM)[1].length < 4) (kind = 'list'), (end = endOfList(lines, i));
    else if (isTable(lines, i)) (kind = 'table'), (end = endWhile(lines, i + 2, (k) => lines[k].includes('|')));
    else (kind = 'text'), (end = endWhile(lines, i + 1, (k) => !isBreak(lines, k)));
    blocks.push({ kind, text: lines.slice(i, end).join('\n') });
    i = end;
  }
  return blocks;
}

// ---- inline

const safeLink = (to) => {
  try {
    const link = new URL(to);
    return ['http:', 'https:', 'mailto:'].includes(link.protocol) ? link.href : null;
  } catch {
    return null;
  }
};

const anchor = (to, children) => h('a', { href: to, rel: 'noopener noreferrer nofollow', target: '_blank' }, children);

const INLINE = [
  [/^\\([\\`*_{}[\]()#+\-.!|>~$])/, (m) => m[1]],
  [/^(`+)([^]*?[^`])\1(?!`)/, (m) => h('code', {}, m[2].replace(/^ (.*) $/s, '$1'))],
  [/^\*\*\*(?=\S)([^]*?\S)\*\*\*/, (m, d) => h('strong', {}, h('em', {}, inline(m[1], d)))],
  [/^\*\*(?=\S)([^]*?\S)\*\*(?!\*)/, (m, d) => h('strong', {}, inline(m[1], d))],
  [/^__(?=\S)([^]*?\S)__(?!\w)/, (m, d, before) => (/\w$/.test(before) ? null : h('strong', {}, inline(m[1], d)))],
  [/^\*(?=[^\s*])([^]*?[^\s*])\*(?!\*)/, (m, d) => h('em', {}, inline(m[1], d))],
  [/^_(?=[^\s_])([^]*?[^\s_])_(?!\w)/, (m, d, before) => (/\w$/.test(before) ? null : h('em', {}, inline(m[1], d)))],
  [/^~~(?=\S)([^]*?\S)~~/, (m, d) => h('del', {}, inline(m[1], d))],
  [/^!?\[([^\]]*)\]\(\s*<?([^\s)>]+)>?(?:\s+"[^"]*")?\s*\)/, (m, d) => {
    const to = safeLink(m[2]);
    return to ? anchor(to, inline(m[1] || m[2], d)) : null;
  }],
  [/^<((?:https?:\/\/|mailto:)[^\s<>]+)>/, (m) => (safeLink(m[1]) ? anchor(safeLink(m[1]), m[1]) : null)],
  [/^https?:\/\/[^\s<>"'`]*[^\s<>"'`.,;:!?)\]*_]/, (m, d, before) => (/\w$/.test(before) || !safeLink(m[0]) ? null : anchor(safeLink(m[0]), m[0]))],
  [/^ {2,}\n/, () => h('br')],
];

function inline(source, depth = 0) {
  const out = [];
  let text = '';
  for (let i = 0; i < source.length; ) {
    const step = isSpecial(source, i) && depth < MAX_DEPTH ? special(source, i, depth) : null;
    if (!step) {
      text += source[i++];
      continue;
    }
    if (typeof step.node === 'string') text += step.node;
    else {
      if (text) out.push(text);
      text = '';
      out.push(step.node);
    }
    i += step.n;
  }
  if (text) out.push(text);
  return out;
}

const isSpecial = (source, i) =>
  '\\$`*_~[!<'.includes(source[i]) || (source[i] === 'h' && source.startsWith('http', i)) || (source[i] === ' ' && source[i + 1] === ' ' && source[i - 1] !== ' ');

function special(source, i, depth) {
  const rest = source.slice(i, i + MAX_SPAN), before = source.slice(Math.max(0, i - 1), i); // an emphasis must close within MAX_SPAN
  const formula = mathAt(rest, before);
  if (formula) return formula;
  for (const [pattern, make] of INLINE) {
    const m = rest.match(pattern);
    const node = m && make(m, depth + 1, before);
    if (node) return { node, n: m[0].length };
  }
  return null;
}

// ---- drawing blocks

function drawCode(text) {
  const lines = text.split('\n');
  const [, mark, language] = lines[0].match(FENCE);
  const isClosed = lines.length > 1 && lines.at(-1).trim().startsWith(mark);
  const code = lines.slice(1, isClosed ? -1 : undefined).join('\n');
  const name = language.trim().split(/\s/)[0];
  const button = h('button', { type: 'button', class: 'copy', 'aria-label': `Copy the ${name || 'code'}`, onclick: copy }, icon('copy'), h('span', {}, 'Copy'));
  async function copy() {
    await copyText(code);
    button.lastChild.textContent = 'Copied';
    setTimeout(() => (button.lastChild.textContent = 'Copy'), 1500);
  }
  return h('div', { class: 'code' }, h('div', { class: 'code-head' }, h('span', {}, name || 'text'), button), h('pre', { tabindex: '0' }, h('code', {}, colourCode(code, name))));
}

const cells = (line) => line.trim().replace(/^\||\|$/g, '').split(/(?<!\\)\|/).map((c) => c.trim().replace(/\\\|/g, '|'));

function drawTable(text) {
  const [head, marks, ...rows] = text.split('\n');
  const sides = cells(marks).map((c) => (/^:-+:$/.test(c) ? 'center' : /-:$/.test(c) ? 'right' : undefined));
  const names = cells(head);
  const row = (tag, values) => h('tr', {}, names.map((_, i) => h(tag, { class: sides[i] }, inline(values[i] ?? ''))));
  return h('div', { class: 'table', tabindex: '0' }, h('table', {}, h('thead', {}, row('th', names)), h('tbody', {}, rows.map((r) => row('td', cells(r))))));
}

// "Title ##" -> "Title", but "In C#" stays. In steps, because one pattern for all of it takes time quadratic in the length.
function withoutClosing(text) {
  const title = text.trim();
  let end = title.length;
  while (title[end - 1] === '#') end--;
  return end && title[end - 1] !== ' ' ? title : title.slice(0, end).trimEnd();
}

const TASK = /^\[([ xX])\](?:\s+|$)/;
const drawBox = (isDone) => h('span', { class: isDone ? 'box done' : 'box', role: 'img', 'aria-label': isDone ? 'done' : 'open' }, isDone && icon('check'));

function drawList(text, depth) {
  const lines = text.split('\n');
  const [, indent, first] = lines[0].match(ITEM);
  const isOrdered = /\d/.test(first);
  const items = [];
  for (const line of lines) {
    const m = line.match(ITEM);
    if (m && m[1].length <= indent.length + 1) items.push({ width: m[0].length - m[4].length, lines: [m[4]] });
    else items.at(-1).lines.push(line.slice(Math.min(line.search(/\S|$/), items.at(-1).width)));
  }
  const start = isOrdered && parseInt(first, 10) !== 1 ? parseInt(first, 10) : undefined;
  return h(isOrdered ? 'ol' : 'ul', { start }, items.map((item) => {
    const task = item.lines[0].match(TASK);
    const inside = (task ? [item.lines[0].slice(task[0].length), ...item.lines.slice(1)] : item.lines).join('\n');
    const blocks = splitBlocks(inside);
    const box = task && drawBox(task[1] !== ' ');
    const isTight = blocks.length === 0 || (blocks[0].kind === 'text' && !/\n\s*\n/.test(inside));
    const props = { class: task ? 'task' : undefined };
    if (!isTight) return h('li', props, box, blocks.map((b) => draw(b, depth + 1)));
    const lead = blocks[0] ? inline(blocks[0].text) : [];
    return h('li', props, box, lead, blocks.slice(1).map((b) => draw(b, depth + 1)));
  }));
}

function drawDisplay(text) {
  const found = displayOf(text);
  if (!found) return h('p', {}, inline(text));
  return found.rest ? h('div', {}, found.node, h('p', {}, inline(found.rest))) : found.node;
}

function draw(block, depth = 0) {
  const { kind, text } = block;
  if (depth > MAX_DEPTH || kind === 'text') return h('p', {}, inline(text));
  if (kind === 'code') return drawCode(text);
  if (kind === 'table') return drawTable(text);
  if (kind === 'list') return drawList(text, depth);
  if (kind === 'rule') return h('hr');
  if (kind === 'math') return drawDisplay(text);
  if (kind === 'quote') return h('blockquote', {}, splitBlocks(text.split('\n').map((l) => l.replace(QUOTE, '')).join('\n')).map((b) => draw(b, depth + 1)));
  const [, marks, title] = text.match(HEADING);
  return h(`h${Math.min(6, marks.length + 2)}`, {}, inline(withoutClosing(title))); // the page's own headings rank above them
}

/** Shows the source in `box`. Unchanged blocks keep their nodes: while a text grows only its end is redrawn. */
export function showMarkdown(box, source) {
  const before = box.kinBlocks ?? [];
  const blocks = splitBlocks(source);
  let same = 0;
  while (same < blocks.length && same < before.length && before[same].kind === blocks[same].kind && before[same].text === blocks[same].text) same++;
  while (box.childNodes.length > same) box.lastChild.remove();
  box.append(...blocks.slice(same).map((b) => draw(b)));
  box.kinBlocks = blocks;
}
