// Converts the tokens of a formula to MathML: rows, scripts, fractions, fences, tables.

import { mathml as m } from './dom.js';
import { ACCENTS, ARROWS, FENCES, FONTS, FUNCTIONS, inFont, INTEGRALS, LARGE, LETTERS, LIMITS, NOT, NOTHING, OPERATORS, SIGNS, SIZES, SPACES, STYLES, TEXTS, UNDER, WIDE } from './math_symbols.js';
import { readRows, readTable } from './math_tables.js';
import { Unreadable, Words } from './math_words.js';

const MAX_DEPTH = 60; // nesting of groups

const row = (nodes) => (nodes.length === 1 ? nodes[0].node : m('mrow', {}, nodes.map((n) => n.node)));
const unknown = (name) => m('mtext', { class: 'unknown' }, `\\${name}`);
export const item = (node, kind = 'ord', more) => ({ node, kind, ...more });
const fixed = { lspace: '0', rspace: '0' };
const space = (width) => item(m('mspace', { width }), 'space');
const fence = (text, kind, props) => item(m('mo', { stretchy: 'false', ...fixed, ...props }, text), kind);
export const stretched = (text, form) => text && m('mo', { form, fence: 'true', stretchy: 'true', ...fixed }, text);
const nbsp = (text) => text.replace(/\s+/g, ' ').replace(/^ | $/g, '\u00a0');

export class Reader {
  constructor(source, isDisplay, depth = 0) {
    this.words = new Words(source);
    this.isDisplay = isDisplay;
    this.font = null;
    this.depth = depth;
  }

  /** Reads the whole formula. */
  whole() {
    const list = this.list();
    if (!this.words.is('end')) throw new Unreadable('more than a formula');
    return list;
  }

  /** Returns a reader for a text nested in this one. */
  child(source) {
    if (this.depth === MAX_DEPTH) throw new Unreadable('too deep');
    const reader = new Reader(source, false, this.depth + 1);
    reader.font = this.font;
    return reader;
  }

  inside(source) {
    return row(this.child(source).whole());
  }

  deeper(read) {
    if (++this.depth > MAX_DEPTH) throw new Unreadable('too deep');
    const out = read();
    this.depth--;
    return out;
  }

  /** Reads up to the end of a brace, a column, a row or the formula. */
  list() {
    const out = [];
    for (;;) {
      const word = this.words.look();
      if (word.type === 'end' || word.type === '}' || word.type === '&') return out;
      if (word.type === 'command') {
        if (['\\', 'cr', 'right', 'middle', 'end'].includes(word.text)) return out;
        if (['over', 'choose', 'atop'].includes(word.text)) return this.divided(out, this.words.next().text);
        if (STYLES.has(word.text)) {
          this.words.next();
          const rest = this.deeper(() => this.list());
          return [...out, item(m('mstyle', { displaystyle: STYLES.get(word.text), scriptlevel: word.text.startsWith('script') ? '1' : '0' }, rest.map((n) => n.node)))];
        }
      }
      const one = this.scripted(out.at(-1)?.kind ?? 'open');
      out.push(one);
      if (one.kind === 'function' && !['(', '[', '^', '_', '}', ')', ',', 'end'].includes(this.words.look().type)) out.push(space('0.1667em'));
    }
  }

  divided(above, word) {
    const below = this.deeper(() => this.list());
    const fraction = m('mfrac', word === 'over' ? {} : { linethickness: '0' }, row(above), row(below));
    return [item(word === 'choose' ? m('mrow', {}, stretched('(', 'prefix'), fraction, stretched(')', 'postfix')) : fraction)];
  }

  /** Reads {…} or the next single token. */
  argument() {
    const word = this.words.look();
    if (word.type === '{') return row(this.group());
    if (word.type === 'number') { // \frac12: one digit
      this.words.at++;
      return this.number(word.text[0]).node;
    }
    return this.deeper(() => this.atom('open')).node;
  }

  group() {
    this.words.need('{');
    const list = this.deeper(() => this.list());
    this.words.need('}');
    if (list.length === 1 && list[0].kind === 'punct') list[0].node = m('mo', fixed, list[0].node.textContent); // 1{,}000
    return list;
  }

  scripted(before) {
    const { words } = this;
    const base = ['^', '_', "'"].includes(words.look().type) ? item(m('mrow', {})) : this.atom(before);
    let sub = null, sup = null, primes = '', limits = base.limits;
    for (;;) {
      if (words.take('command', 'limits')) limits = true;
      else if (words.take('command', 'nolimits')) limits = false;
      else if (words.take("'")) primes += '′';
      else if (!sup && words.take('^')) sup = this.argument();
      else if (!sub && words.take('_')) sub = this.argument();
      else break;
    }
    if (words.is('^') || words.is('_')) throw new Unreadable('two scripts');
    if (primes) sup = sup ? m('mrow', {}, m('mo', fixed, primes), sup) : m('mo', fixed, primes);
    if (!sub && !sup) return base;
    const where = limits && (this.isDisplay || limits === true || base.kind === 'brace') ? ['munder', 'mover', 'munderover'] : ['msub', 'msup', 'msubsup'];
    const tag = sub && sup ? where[2] : sub ? where[0] : where[1];
    return item(m(tag, {}, base.node, sub, sup), base.kind);
  }

  // ---- single things

  number(text) {
    return item(m('mn', {}, inFont(text, this.font)));
  }

  letter(text) {
    const shown = inFont(text, this.font);
    const isUpright = this.font === 'upright' || (shown !== text && this.font !== 'italic');
    return item(m('mi', { mathvariant: isUpright ? 'normal' : undefined }, shown));
  }

  /** Makes an operator. A sign after another operator, or at the beginning, is a prefix of what follows. */
  operator(text, before, props) {
    const isSign = '+−±∓'.includes(text) && ['open', 'op', 'punct', 'function'].includes(before);
    return item(m('mo', isSign ? { form: 'prefix', ...fixed } : props, text), 'op');
  }

  atom(before) {
    if (['end', '}', '&', '^', '_'].includes(this.words.look().type)) throw new Unreadable('no symbol');
    const { type, text } = this.words.next();
    if (type === 'command') return this.command(text, before);
    if (type === 'number') return this.number(text);
    if (type === '{') {
      this.words.at--;
      return item(row(this.group()));
    }
    if (/\p{L}/u.test(type)) return this.letter(text);
    if ('([⟨⌈⌊'.includes(type)) return fence(text, 'open', { form: 'prefix' });
    if (')]⟩⌉⌋!'.includes(type)) return fence(text, 'close', { form: 'postfix' });
    if (type === '|') return fence(text, ['open', 'op', 'punct'].includes(before) ? 'open' : 'close');
    if (type === ',' || type === ';') return item(m('mo', { lspace: '0', rspace: '0.1667em' }, text), 'punct');
    if (type === '.' || type === '"' || type === '`' || type === '?' || type === '@') return item(m('mo', fixed, text));
    if (type === '~') return space('0.3em');
    if (type === '/') return this.operator(text, before, fixed);
    if (type === ':') return this.operator(text, before, { lspace: '0.2778em', rspace: '0.2778em' });
    return this.operator(type === '-' ? '−' : type === '*' ? '∗' : text, before);
  }

  command(name, before) {
    return this.symbol(name, before) ?? this.construct(name, before) ?? item(unknown(name));
  }

  symbol(name, before) {
    if (LETTERS.has(name)) return this.letter(LETTERS.get(name));
    if (SIGNS.has(name)) return item(m('mi', { mathvariant: 'normal' }, this.font === 'bold' ? inFont(SIGNS.get(name), 'bold') : SIGNS.get(name)));
    if (OPERATORS.has(name)) return this.operator(OPERATORS.get(name), before, name === 'mid' ? { lspace: '0.2778em', rspace: '0.2778em' } : name === 'colon' ? { lspace: '0', rspace: '0.2778em' } : undefined);
    if (LARGE.has(name)) return item(m('mo', {}, LARGE.get(name)), 'op', { limits: 'display' });
    if (INTEGRALS.has(name)) return item(m('mo', {}, INTEGRALS.get(name)), 'op');
    if (LIMITS.has(name)) return item(m('mo', { movablelimits: 'true', ...fixed }, name.replace(/^(lim|arg)(?=.)/, '$1 ')), 'function', { limits: 'display' });
    if (FUNCTIONS.has(name)) return item(m('mi', {}, name), 'function');
    if (FENCES.has(name)) return this.fenceOf(name, before);
    if (SPACES.has(name)) return space(SPACES.get(name));
    if (/^\s?$/.test(name)) return space('0.3em');
    return NOTHING.has(name) ? space('0') : null;
  }

  fenceOf(name, before) {
    const opens = /^(\{|l|ul)/.test(name), closes = /^(\}|r|ur)/.test(name);
    return fence(FENCES.get(name), opens || (!closes && ['open', 'op', 'punct'].includes(before)) ? 'open' : 'close', opens ? { form: 'prefix' } : closes ? { form: 'postfix' } : {});
  }

  construct(name, before) {
    const plain = name.replace(/\*$/, '');
    if (/^[dtc]?frac$/.test(name)) return this.fraction(name);
    if (/^[dt]?binom$/.test(name)) return item(m('mrow', {}, stretched('(', 'prefix'), m('mfrac', { linethickness: '0' }, this.argument(), this.argument()), stretched(')', 'postfix')));
    if (name === 'sqrt') return this.root();
    if (ACCENTS.has(name)) return item(m('mover', { accent: 'true' }, this.argument(), m('mo', { stretchy: String(WIDE.has(name)) }, ACCENTS.get(name))), name === 'overbrace' ? 'brace' : 'ord', { limits: name === 'overbrace' });
    if (UNDER.has(name)) return item(m('munder', { accentunder: 'true' }, this.argument(), m('mo', { stretchy: 'true' }, UNDER.get(name))), name === 'underbrace' ? 'brace' : 'ord', { limits: name === 'underbrace' });
    if (ARROWS.has(name)) return this.longArrow(ARROWS.get(name));
    if (FONTS[name]) return this.inFont(FONTS[name]);
    if (TEXTS.has(plain)) return plain === 'operatorname' ? this.named(name) : item(this.text(plain));
    if (name === 'left') return this.leftRight();
    if (name === 'begin') return readTable(this);
    return this.sized(name, before) ?? this.rest(name);
  }

  fraction(name) {
    const fraction = m('mfrac', {}, this.argument(), this.argument());
    return item(name === 'frac' ? fraction : m('mstyle', { displaystyle: String(name !== 'tfrac'), scriptlevel: '0' }, fraction));
  }

  root() {
    const index = this.words.option();
    const of = this.argument();
    return item(index ? m('mroot', {}, of, this.inside(index)) : m('msqrt', {}, of));
  }

  longArrow(arrow) {
    const below = this.words.option(), above = this.argument();
    const mo = m('mo', { stretchy: 'true' }, arrow), over = m('mpadded', { lspace: '0.4em', width: '+0.8em' }, above);
    return item(below ? m('munderover', {}, mo, this.inside(below), over) : m('mover', {}, mo, over), 'op');
  }

  inFont(font) {
    const before = this.font;
    this.font = font;
    const isWord = font === 'upright' && /^\s*\{\s*[A-Za-z]{2,}\s*\}/.test(this.words.source.slice(this.words.at));
    const node = isWord ? m('mi', {}, this.words.raw().trim()) : this.argument();
    this.font = before;
    return item(node);
  }

  named(name) {
    const isLimits = name.endsWith('*');
    return item(m(isLimits ? 'mo' : 'mi', isLimits ? { movablelimits: 'true', ...fixed } : { mathvariant: 'normal' }, this.words.raw().replace(/\\[,;! ]/g, ' ').trim()), 'function', { limits: isLimits && 'display' });
  }

  /** Reads words in a formula; between dollars they contain formulas again. */
  text(name) {
    const parts = this.words.raw().split(/(?<!\\)\$/);
    const style = { textbf: 'bold', textit: 'italic', emph: 'italic', texttt: 'mono' }[name];
    const nodes = parts.map((part, i) => (i % 2 ? this.inside(part) : part && m('mtext', { class: style }, nbsp(part.replace(/\\([%$#&_{} ])/g, '$1').replace(/~/g, '\u00a0')))));
    return m('mrow', {}, nodes.filter(Boolean));
  }

  /** Reads a delimiter after \left, \big and similar; "" for a dot. */
  delimiter() {
    this.words.look();
    const { type, text } = this.words.next();
    if (type === '.') return '';
    if (type === 'command' && FENCES.has(text)) return FENCES.get(text);
    if (type === 'command' && /arrow$/i.test(text) && OPERATORS.has(text)) return OPERATORS.get(text);
    if ('()[]|/<>'.includes(type)) return { '<': '⟨', '>': '⟩' }[type] ?? text;
    throw new Unreadable('no delimiter');
  }

  leftRight() {
    const parts = [stretched(this.delimiter(), 'prefix')];
    for (;;) {
      parts.push(...this.deeper(() => this.list()).map((n) => n.node));
      if (this.words.take('command', 'middle')) parts.push(stretched(this.delimiter(), 'infix'));
      else if (this.words.take('command', 'right')) break;
      else throw new Unreadable('no \\right');
    }
    parts.push(stretched(this.delimiter(), 'postfix'));
    return item(m('mrow', {}, parts.filter(Boolean)));
  }

  sized(name) {
    const [, size, side] = name.match(/^([Bb]igg?)([lrm]?)$/) ?? [];
    if (!size) return null;
    const text = this.delimiter(), height = SIZES.get(size);
    return item(m('mo', { stretchy: 'true', minsize: height, maxsize: height, ...fixed }, text), side === 'l' ? 'open' : side === 'r' ? 'close' : 'ord');
  }

  rest(name) {
    const limits = true;
    if (name === 'overset' || name === 'stackrel') {
      const above = this.argument();
      return item(m('mover', {}, this.argument(), above), name === 'stackrel' ? 'op' : 'ord');
    }
    if (name === 'underset') {
      const below = this.argument();
      return item(m('munder', {}, this.argument(), below));
    }
    if (name === 'not') return this.negated();
    if (name === 'overline' || name === 'underline' || /^[bx]?cancel$/.test(name)) return item(m('mrow', { class: { overline: 'over', underline: 'under' }[name] ?? 'struck' }, this.argument()));
    if (name === 'boxed' || name === 'fbox') return item(m('mrow', { class: 'boxed' }, name === 'fbox' ? this.text('text') : this.argument()));
    if (/^[hv]?phantom$/.test(name)) return item(m('mphantom', {}, this.argument()));
    if (/^math(bin|rel|ord|inner|open|close|punct|op)$/.test(name)) return item(this.argument(), name === 'mathrel' || name === 'mathbin' ? 'op' : 'ord', name === 'mathop' ? { limits } : {});
    if (/^[hmk]?(space|skip|ern)\*?$/.test(name)) return space(`${Math.min(4, Math.abs(parseFloat(this.words.raw()) || 0.2))}em`);
    if (name === 'substack') return item(m('mtable', { class: 'tight' }, readRows(this.child(`${this.words.raw()}\\end`), 'c')));
    if (/^[pb]?mod$/.test(name)) return this.modulo(name);
    if (name === 'tag' || name === 'tag*') return item(m('mrow', {}, m('mspace', { width: '2em' }), m('mtext', {}, name === 'tag' ? `(${this.words.raw()})` : this.words.raw())));
    if (name === 'label') return this.words.raw(), space('0'); // TeX does not show it either
    return null;
  }

  negated() {
    const { node } = this.deeper(() => this.atom('ord')), text = node.textContent;
    if ([...text].length !== 1) return item(m('mrow', {}, unknown('not'), node));
    return item(m('mo', {}, NOT.get(text) ?? `${text}\u0338`), 'op');
  }

  modulo(name) {
    const mod = m('mo', name === 'bmod' ? { lspace: '0.2222em', rspace: '0.2222em' } : { lspace: '0', rspace: '0.3333em' }, 'mod');
    if (name === 'bmod') return item(mod, 'op');
    if (name === 'mod') return item(m('mrow', {}, m('mspace', { width: '1em' }), mod, this.argument()));
    return item(m('mrow', {}, m('mspace', { width: '0.8em' }), m('mo', { stretchy: 'false', ...fixed }, '('), mod, this.argument(), m('mo', { stretchy: 'false', ...fixed }, ')')));
  }
}
