import assert from 'node:assert/strict';
import test from 'node:test';

const { plural, shortCount } = await import('../../page/format.js');

test('a count that would be too wide is shortened, and keeps its magnitude', () => {
  assert.deepEqual([0, 999, 12345, 999999, 1e6, 12345678, 1.5e9].map(shortCount), ['0', '999', '12,345', '999,999', '1M', '12.3M', '1.5B']);
  assert.equal(shortCount(undefined), '0');
});

test('one is no plural', () => {
  assert.deepEqual([0, 1, 2].map((n) => plural(n, 'token')), ['0 tokens', '1 token', '2 tokens']);
});
