// Tokenizes a formula in TeX notation: commands, numbers, braces, characters.

/** Thrown for a formula that does not parse. */
export class Unreadable extends Error {}

const SPACE = /\s/;

/** Tokens of a formula: {type: 'command', 'space', 'number', 'end' or the character itself, text, n characters of the source}. */
export class Words {
  constructor(source) {
    this.source = source;
    this.at = 0;
  }

  peek() {
    const { source, at } = this;
    if (at >= source.length) return { type: 'end', text: '', n: 0 };
    if (source[at] === '\\') {
      const text = source.slice(at + 1).match(/^(?:[A-Za-z]+\*?|[^]?)/)[0];
      return { type: 'command', text, n: text.length + 1 };
    }
    if (source[at] === '%') return { type: 'space', n: source.slice(at).match(/^[^\n]*\n?/)[0].length };
    if (SPACE.test(source[at])) return { type: 'space', n: source.slice(at).match(/^\s+/)[0].length };
    const number = source.slice(at, at + 400).match(/^\d+(?:\.\d+)?/);
    if (number) return { type: 'number', text: number[0], n: number[0].length };
    const c = String.fromCodePoint(source.codePointAt(at));
    return { type: c, text: c, n: c.length };
  }

  next() {
    const word = this.peek();
    this.at += word.n;
    return word;
  }

  /** Returns the next token that is not a space. */
  look() {
    while (this.peek().type === 'space') this.next();
    return this.peek();
  }

  is(type, text) {
    const word = this.look();
    return word.type === type && (text === undefined || word.text === text);
  }

  take(type, text) {
    if (!this.is(type, text)) return false;
    this.next();
    return true;
  }

  need(type) {
    if (!this.take(type)) throw new Unreadable(`no ${type}`);
  }

  /** Returns the text of {…} unchanged; "" if there is none. */
  raw() {
    if (!this.take('{')) return '';
    const begin = this.at;
    for (let depth = 1; depth > 0; ) {
      const word = this.next();
      if (word.type === 'end') throw new Unreadable('no }');
      if (word.type === '{') depth++;
      if (word.type === '}') depth--;
    }
    return this.source.slice(begin, this.at - 1);
  }

  /** The same for […]; null if there is none. */
  option() {
    if (!this.take('[')) return null;
    const begin = this.at;
    for (let depth = 0; ; ) {
      const word = this.next();
      if (word.type === 'end') throw new Unreadable('no ]');
      if (word.type === '{') depth++;
      if (word.type === '}') depth--;
      if (word.type === ']' && depth === 0) return this.source.slice(begin, this.at - 1);
    }
  }
}
