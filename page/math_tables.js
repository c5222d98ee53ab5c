// Tables in formulas: matrices, cases, lines of equations.

import { mathml as m } from './dom.js';
import { item, stretched } from './math_reader.js';
import { TABLES } from './math_symbols.js';
import { Unreadable } from './math_words.js';

const ROOM = /^\[\s*-?[\d.]+\s*(?:em|ex|pt|mm|cm|in|mu)\s*\]/; // vertical space after a row

// In 'rl' tables columns are pairs that meet at their border; in others each has its own alignment.
const sideOf = (align, i) => ({ l: 'left', r: 'right' })[align === 'rl' ? align[i % 2] : (align[i] ?? align.at(-1))];

/** Reads a table after \begin. */
export function readTable(reader) {
  const { words } = reader, whole = words.raw(), name = whole.replace(/\*$/, ''), before = reader.isDisplay;
  if (!Object.hasOwn(TABLES, name)) throw new Unreadable('no such environment');
  let [left, right, align = 'c'] = TABLES[name];
  words.option();
  if (name === 'array') align = words.raw().replace(/[^lcr]/g, '') || 'c';
  if (name.startsWith('align') && name.includes('at')) words.raw(); // number of columns
  reader.isDisplay = align === 'rl' || /^(dcases|gather|multline|equation|displaymath)/.test(name);
  const displaystyle = reader.isDisplay ? 'true' : undefined;
  const rows = reader.deeper(() => readRows(reader, align));
  reader.isDisplay = before;
  if (words.raw() !== whole) throw new Unreadable('no \\end');
  const table = m('mtable', { class: align === 'rl' || align === 'rcl' ? 'aligned' : name === 'smallmatrix' ? 'tight' : undefined, displaystyle }, rows);
  return item(left || right ? m('mrow', {}, stretched(left, 'prefix'), table, stretched(right, 'postfix')) : table);
}

/** Reads rows up to \end. */
export function readRows(reader, align) {
  const { words } = reader, rows = [];
  let cells = [], hasLine = false;
  const add = (list) => cells.push(m('mtd', { class: sideOf(align, cells.length), columnalign: sideOf(align, cells.length) }, list.map((n) => n.node)));
  const end = () => (rows.push(m('mtr', { class: hasLine ? 'line' : undefined }, cells)), (cells = []), (hasLine = false));
  for (;;) {
    while (words.take('command', 'hline')) hasLine = true;
    const list = reader.list();
    const isLast = words.take('command', 'end');
    if (!isLast || list.length || cells.length) add(list);
    if (isLast) {
      if (cells.length) end();
      return rows;
    }
    if (words.take('&')) continue;
    if (!words.take('command', '\\') && !words.take('command', 'cr')) throw new Unreadable('no \\end');
    if (words.source[words.at] === '*') words.at++;
    if (ROOM.test(words.source.slice(words.at, words.at + 20))) words.option();
    end();
  }
}
