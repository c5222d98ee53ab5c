import './dom.mjs';
import { element } from './dom.mjs';
import assert from 'node:assert/strict';
import test from 'node:test';

const { drawMath } = await import('../../page/math.js');
const { showMarkdown } = await import('../../page/markdown.js');

// The MathML without attributes that concern only spaces and sizes.
const plain = (node) => node?.inner.replace(/ (?:stretchy|lspace|rspace|form|fence|mathvariant|columnalign|accent|accentunder|movablelimits|width)="[^"]*"/g, '').replace(/<mspace><\/mspace>/g, '');
const math = (source, isDisplay = false) => plain(drawMath(source, isDisplay));

function show(source) {
  const box = element();
  showMarkdown(box, source);
  return box;
}

const formulas = (source) => show(source).all('math').map((m) => m.textContent);

test('fractions, roots and scripts', () => {
  assert.equal(math('\\frac{a}{b}'), '<mfrac><mi>a</mi><mi>b</mi></mfrac>');
  assert.equal(math('\\frac12'), '<mfrac><mn>1</mn><mn>2</mn></mfrac>');
  assert.equal(math('\\sqrt[3]{x}'), '<mroot><mi>x</mi><mn>3</mn></mroot>');
  assert.equal(math('x_1^{2n}'), '<msubsup><mi>x</mi><mn>1</mn><mrow><mn>2</mn><mi>n</mi></mrow></msubsup>');
  assert.equal(math("f'"), '<msup><mi>f</mi><mo>′</mo></msup>');
  assert.equal(math('{n \\choose k}'), '<mrow><mo>(</mo><mfrac linethickness="0"><mi>n</mi><mi>k</mi></mfrac><mo>)</mo></mrow>');
});

test('letters, operators, functions and alphabets', () => {
  assert.equal(math('\\alpha \\le \\Omega'), '<mi>α</mi><mo>≤</mo><mi>Ω</mi>');
  assert.equal(math('\\sin x'), '<mi>sin</mi><mi>x</mi>');
  assert.equal(math('\\mathbb{R} \\mathbf{v} \\mathcal{L}'), '<mi>ℝ</mi><mi>𝐯</mi><mi>ℒ</mi>');
  assert.equal(math('\\not= x'), '<mo>≠</mo><mi>x</mi>');
  assert.equal(math('3.14'), '<mn>3.14</mn>');
});

test('limits stand above and below in a display, beside in a line', () => {
  assert.match(math('\\sum_{i=1}^n i', true), /^<munderover><mo>∑<\/mo>/);
  assert.match(math('\\sum_{i=1}^n i'), /^<msubsup><mo>∑<\/mo>/);
  assert.match(math('\\int_0^1 x', true), /^<msubsup><mo>∫<\/mo>/);
  assert.match(math('\\lim_{x \\to 0} x', true), /^<munder><mo>lim<\/mo>/);
});

test('matrices, cases and lines of equations', () => {
  assert.equal(math('\\begin{pmatrix} a & b \\\\ c & d \\end{pmatrix}'),
    '<mrow><mo>(</mo><mtable><mtr><mtd><mi>a</mi></mtd><mtd><mi>b</mi></mtd></mtr><mtr><mtd><mi>c</mi></mtd><mtd><mi>d</mi></mtd></mtr></mtable><mo>)</mo></mrow>');
  assert.match(math('\\begin{cases} 1 & x > 0 \\\\[2pt] 0 & \\text{else} \\end{cases}'), /<mtd class="left"><mrow><mtext>else/);
  assert.match(math('\\begin{align*} a &= b \\\\ c &= d \\end{align*}', true), /^<mtable class="aligned" displaystyle="true"><mtr><mtd class="right"><mi>a<\/mi>/);
  assert.match(math('\\begin{array}{r|l} 1 & 2 \\\\ \\hline 3 & 4 \\end{array}'), /<mtr class="line">/);
});

test('fences, accents and words', () => {
  assert.equal(math('\\left( x \\middle| y \\right.'), '<mrow><mo>(</mo><mi>x</mi><mo>|</mo><mi>y</mi></mrow>');
  assert.equal(math('\\vec{v}'), '<mover><mi>v</mi><mo>→</mo></mover>');
  assert.equal(math('\\text{if } x'), '<mrow><mtext>if\u00a0</mtext></mrow><mi>x</mi>');
  assert.equal(math('\\text{for $n$ in 5\\%}').replace(/\u00a0/g, '_'), '<mrow><mtext>for_</mtext><mi>n</mi><mtext>_in 5%</mtext></mrow>');
});

test('a command that is not known is shown by its name, and the rest as it is meant', () => {
  assert.equal(math('\\foo{x} + 1'), '<mtext class="unknown">\\foo</mtext><mi>x</mi><mo>+</mo><mn>1</mn>');
});

test('a formula that does not parse is null, and shown as its source', () => {
  for (const source of ['\\frac{1}{2', '\\left( x', 'a } b', 'x^', 'a_1_2', '\\begin{pmatrix} 1', '\\begin{foo} 1 \\end{foo}', '\\right)', 'a & b', '\\begin{constructor}x\\end{constructor}']) assert.equal(drawMath(source, true), null, source);
  assert.equal(show('It is $\\frac{1}{2$ and $$\\left( x$$.').textContent, 'It is $\\frac{1}{2$ and $$\\left( x$$.');
  assert.equal(show('\\[\n\\left( x\n\\]').textContent, '\\[\n\\left( x\n\\]');
  assert.equal(drawMath('{'.repeat(5000) + 'x' + '}'.repeat(5000), false), null);
  assert.equal(drawMath('x'.repeat(30000), false), null);
});

test('whatever a formula is made of, none of its characters is lost without a word', () => {
  const words = ['\\frac', '{', '}', '^', '_', '&', '\\\\', '\\left', '\\right', '(', ')', 'x', '2', '\\begin{cases}', '\\end{cases}', '\\text', '\\sqrt', '[', ']', '\\zzz', "'", '$', '%', '\\', '~', '\\big', '\\not', '\\hat', '\\over', '\\mathbf', ' '];
  let seed = 1;
  const random = (n) => (seed = (seed * 48271) % 2147483647) % n;
  for (let i = 0; i < 20000; i++) {
    const source = Array.from({ length: 1 + random(9) }, () => words[random(words.length)]).join('');
    const node = drawMath(source, i % 2 === 0);
    if (!node) continue;
    const count = (text, c) => text.split(c).length - 1;
    if (!source.includes('%')) for (const c of ['x', '2', 'zzz']) assert.ok(count(node.textContent.normalize('NFKC'), c) >= count(source.replace(/\\(begin|end)\{cases\}|\\text|\\right|\\sqrt/g, ''), c), `${source}: ${node.outer}`);
  }
});

test('a formula that means to be too deep is none, and throws nothing', () => {
  for (const part of ['\\displaystyle ', 'a\\over ', '\\substack{', '\\text{$', '\\sqrt[', '\\hat', '\\not', '\\left(', '\\begin{cases}', '{', '\\mathbf', 'x^{', '\\frac{', '\\overset', '\\big']) {
    for (const n of [70, 1400]) {
      const source = part.repeat(n), closed = source + '}'.repeat(part.endsWith('{') ? n : 0);
      for (const s of [source, closed]) drawMath(s, true), show(`$$${s}$$ and \\(${s}\\)`);
    }
  }
});

test('dollars and brackets in a text', () => {
  assert.deepEqual(formulas('With $a$ and \\(b\\), $c_1$-wise.'), ['a', 'b', 'c1']);
  assert.deepEqual(formulas('**bold $x_1$** and *it $y_1$*'), ['x1', 'y1']);
  assert.deepEqual(formulas('$$x = 1$$'), ['x=1']);
  assert.deepEqual(formulas('\\[\nx = 1\n\\]\nand then'), ['x=1']);
  assert.deepEqual(formulas('1. one:\n\n   \\[ x = 1 \\]\n2. two $y$'), ['x=1', 'y']);
  assert.deepEqual(formulas('\\begin{align}\na &= b \\\\\n\n&+ c\n\\end{align}'), ['a=b+c']);
  assert.deepEqual(formulas('| a |\n|---|\n| $x^2$ |'), ['x2']);
  assert.equal(show('\\[ x = 1 \\] where it ends.').textContent, 'x=1where it ends.');
});

test('prices, variables of a shell and escaped brackets are no formulas', () => {
  for (const source of ['It costs $5 and $6.', 'From $5 to 10$ a day', '$5-$6', 'US$5 or CA$6', '$HOME and $PATH', '$HOME/$USER', 'See \\[1\\] and \\(optional\\) words', '\\[1\\] A book of 2020', 'a \\$5 note and \\$6',
    '`$x$` and `\\(y\\)`', '$ x $', 'only $5', '5$ and 6$', '$20k for two people, 10$ each', '```\n$x$\n```', '$$', '$$$']) assert.deepEqual(formulas(source), [], source);
  assert.equal(show('It costs $5 and $6.').textContent, 'It costs $5 and $6.');
  assert.equal(show('a \\$5 note').textContent, 'a $5 note');
});

test('while a text grows a formula is its source until it is whole', () => {
  const source = 'So \\[ \\frac{a_1}{b} * c * d \\] and $x^2$ it is.\n\n$$\n\\sum_i a_i\n$$\n\nEnd.';
  const box = element();
  for (let n = 1; n <= source.length; n++) {
    showMarkdown(box, source.slice(0, n));
    const isOpen = (source.slice(0, n).match(/\$\$/g) ?? []).length === 1;
    if (isOpen) assert.ok(box.lastChild.textContent.startsWith('$$'), box.lastChild.textContent);
  }
  assert.deepEqual(box.all('math').map((m) => m.textContent), ['a1b∗c∗d', 'x2', '∑iai']);
});

test('nothing of a formula becomes markup, an attribute or a link', () => {
  const hostile = ['<img src=x onerror=alert(1)>', '\\href{javascript:alert(1)}{x}', '\\style{color:red}{x}', '\\class{evil}{x}', '\\text{<script>alert(1)</script>}', '\\mathrm{<b>}', '\\begin{<i>}x\\end{<i>}', '\\left<x\\right>', '\\hspace{1em" onload="x}',
    '\\color{red" style="x}{y}', '\\tag{<u>}', '\\operatorname{<svg/onload=1>}', '\\xrightarrow[<a>]{<b>}'];
  const names = new Set(), tags = new Set();
  const walk = (e) => (tags.add(e.tag), Object.entries(e.attributes ?? {}).forEach(([k, v]) => names.add(k === 'class' || k === 'width' ? `${k}=${v}` : k)), (e.childNodes ?? []).filter((c) => c.tag).forEach(walk));
  for (const source of hostile) for (const isDisplay of [true, false]) {
    const node = drawMath(source, isDisplay);
    if (node) walk(node);
    const text = show(`Then $${source}$ and \\(${source}\\).`).all('a');
    assert.deepEqual(text, []);
  }
  for (const tag of tags) assert.match(tag, /^m[a-z]+$/);
  for (const name of names) assert.doesNotMatch(name, /^(on|style|href|src)|red|evil|onload/);
});
