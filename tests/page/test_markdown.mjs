import './dom.mjs';
import { element } from './dom.mjs';
import assert from 'node:assert/strict';
import test from 'node:test';

const { showMarkdown } = await import('../../page/markdown.js');

function show(source) {
  const box = element();
  showMarkdown(box, source);
  return box;
}

const tasks = (box) => box.all('.task').map((li) => [li.all('.box')[0].attributes['aria-label'], li.childNodes.slice(1).map((c) => c.textContent).join('').trim()]);

test('items that begin with a box are tasks, done or open', () => {
  assert.deepEqual(tasks(show('- [x] milk\n- [ ] bread\n* [X] eggs')), [['done', 'milk'], ['open', 'bread'], ['done', 'eggs']]);
  assert.deepEqual(tasks(show('1. [ ] first\n2. [x] second')), [['open', 'first'], ['done', 'second']]);
});

test('a task of several paragraphs keeps its box, and shows no brackets', () => {
  const box = show('- [x] one\n\n  more of it\n\n- [ ] two\n');
  assert.deepEqual(box.all('.box').map((b) => b.attributes['aria-label']), ['done', 'open']);
  assert.ok(!box.textContent.includes('['), box.textContent);
});

test('a task that is still being written is one', () => {
  assert.deepEqual(tasks(show('- [x]')), [['done', '']]);
  assert.equal(show('- [').all('.task').length, 0);
});

test('brackets that are no box stay as they are', () => {
  for (const source of ['- [y] yes', '- [ ]tight', '- x [x] later', '[x] no item']) assert.equal(show(source).all('.task').length, 0, source);
});

test('a line with a bar above a rule is text, not a table without an end', () => {
  for (const source of ['a | b\n---', '|||||\n-', 'x | y\n- - -']) {
    const box = show(source);
    assert.equal(box.all('table').length, 0, source);
    assert.ok(box.textContent.includes('|'), source);
  }
  assert.equal(show('| a |\n| - |').all('th').length, 1);
  assert.equal(show('a | b\n:-- | --:\nc | d').all('td').length, 2);
});

test('a heading may have marks at its end and within', () => {
  const title = (source) => show(source).all('h3')[0].textContent;
  assert.equal(title('# One ##'), 'One');
  assert.equal(title('# C# and F#'), 'C# and F#');
  assert.equal(title('#   ###'), '');
});

test('long runs of marks and blanks are drawn soon', () => {
  for (const source of [`# a ${'#'.repeat(90000)} b`, `a${' '.repeat(90000)}b`]) {
    const begun = performance.now();
    assert.equal(show(source).textContent.length > 1000, true);
    assert.ok(performance.now() - begun < 3000, source.slice(0, 10));
  }
});
