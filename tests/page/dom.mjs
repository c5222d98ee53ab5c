// As much of a browser's document as the page's modules need that draw into one: elements, in which text is text.

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
    Object.assign(this, { tag, attributes: {}, childNodes: [] });
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

  addEventListener() {}

  get lastChild() {
    return this.childNodes.at(-1);
  }

  get textContent() {
    return this.childNodes.map((c) => c.textContent).join('');
  }

  /** As HTML would be written, so that tests can say what they expect. */
  get outer() {
    const attributes = Object.entries(this.attributes).map(([name, value]) => ` ${name}="${value}"`).join('');
    return `<${this.tag}${attributes}>${this.inner}</${this.tag}>`;
  }

  get inner() {
    return this.childNodes.map((c) => c.outer).join('');
  }

  /** All elements of this tag below, or of this class (".x"). */
  all(what) {
    const is = (e) => (what[0] === '.' ? (e.attributes.class ?? '').split(' ').includes(what.slice(1)) : e.tag === what);
    return this.childNodes.filter((c) => c instanceof Element).flatMap((c) => [...(is(c) ? [c] : []), ...c.all(what)]);
  }
}

globalThis.document = { createElement: (tag) => new Element(tag), createElementNS: (_, tag) => new Element(tag) };

export const element = (tag = 'div') => new Element(tag);
