// The part of a browser's document that the page's drawing modules need: elements, in which text is text.

class Node {
  constructor(text) {
    this.text = text;
  }

  get textContent() {
    return this.text;
  }

  get outer() {
    return this.text.replace(/&/g, '&amp;').replace(/</g, '&lt;');
  }
}

class Element {
  constructor(tag) {
    Object.assign(this, { tag, attributes: {}, childNodes: [], style: {} });
  }

  append(...nodes) {
    for (const node of nodes) this.childNodes.push(typeof node === 'object' ? Object.assign(node, { parent: this }) : new Node(String(node)));
  }

  remove() {
    this.parent.childNodes.splice(this.parent.childNodes.indexOf(this), 1);
  }

  setAttribute(name, value) {
    this.attributes[name] = String(value);
  }

  set className(value) {
    this.attributes.class = value;
  }

  addEventListener() {}

  /** Measures text as a canvas would, with narrow and wide letters. */
  getContext() {
    return { measureText: (text) => ({ width: [...text].reduce((sum, c) => sum + (/[iljt.,1 ]/.test(c) ? 4 : /[\u3000-\uffffWM]/.test(c) ? 15 : 8), 0) }) };
  }

  get lastChild() {
    return this.childNodes.at(-1);
  }

  get textContent() {
    return this.childNodes.map((c) => c.textContent).join('');
  }

  /** The element as HTML, for expectations of tests. */
  get outer() {
    const attributes = Object.entries(this.attributes).map(([name, value]) => ` ${name}="${value}"`).join('');
    return `<${this.tag}${attributes}>${this.inner}</${this.tag}>`;
  }

  get inner() {
    return this.childNodes.map((c) => c.outer).join('');
  }

  /** All descendants with this tag, or with this class (".x"). */
  all(what) {
    const is = (e) => (what[0] === '.' ? (e.attributes.class ?? '').split(' ').includes(what.slice(1)) : e.tag === what);
    return this.childNodes.filter((c) => c instanceof Element).flatMap((c) => [...(is(c) ? [c] : []), ...c.all(what)]);
  }
}

globalThis.document = { body: new Element('body'), createElement: (tag) => new Element(tag), createElementNS: (_, tag) => new Element(tag) };
globalThis.getComputedStyle = () => ({ fontFamily: 'sans-serif' });

export const element = (tag = 'div') => new Element(tag);
