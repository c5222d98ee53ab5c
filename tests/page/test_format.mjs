import assert from 'node:assert/strict';
import test from 'node:test';

const { plural, shortCount, statsText } = await import('../../page/format.js');

test('a count that would be too wide is shortened, and keeps its magnitude', () => {
  assert.deepEqual([0, 999, 12345, 999999, 1e6, 12345678, 1.5e9].map(shortCount), ['0', '999', '12,345', '999,999', '1M', '12.3M', '1.5B']);
  assert.equal(shortCount(undefined), '0');
});

test('one is no plural', () => {
  assert.deepEqual([0, 1, 2].map((n) => plural(n, 'token')), ['0 tokens', '1 token', '2 tokens']);
});

test('what is known of a message is listed', () => {
  const stats = { rate: 24.3, tokens: 148, first_ms: 400, drafted: 80, accepted: 61, prompt: 1056 };
  assert.equal(statsText(stats, 16384), '24.3 tokens/s · 148 tokens · prompt 400 ms · 61 of 80 drafted tokens accepted · context 1,204 of 16,384');
  assert.equal(statsText({ tokens: 1, drafted: undefined }), '1 token');
});
