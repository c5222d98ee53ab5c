import './dom.mjs';
import { element } from './dom.mjs';
import assert from 'node:assert/strict';
import test from 'node:test';

globalThis.localStorage = { getItem: () => null };
const { drawJoin, joinAt } = await import('../../page/join.js');

const head = { address: '192.168.1.5', port: 7577, hidden: false };

function show(state) {
  const box = element();
  box.append(...[drawJoin(state)].flat());
  return box.textContent;
}

test('the address of the head is the page\'s, or the machine\'s where the page is on it', () => {
  assert.equal(joinAt(head, 'http://localhost:8080/'), 'kin join 192.168.1.5:7577');
  assert.equal(joinAt(head, 'http://127.0.0.1:8080/'), 'kin join 192.168.1.5:7577');
  assert.equal(joinAt(head, 'https://desk.local:8080/'), 'kin join desk.local:7577');
  assert.equal(joinAt(head, 'http://[fe80::1]:8080/'), 'kin join [fe80::1]:7577');
  assert.equal(joinAt({ ...head, address: 'fd00::7' }, 'http://localhost/'), 'kin join [fd00::7]:7577');
  assert.equal(joinAt({ ...head, address: null }, 'http://localhost/'), 'kin join ADDRESS:7577');
});

test('with --hidden the command has the address, and why is said', () => {
  globalThis.location = { href: 'http://localhost/' };
  const words = show({ has_others: true, head: { ...head, hidden: true }, model: 'm' });
  assert.match(words, /On the other machine:kin join .*:7577/);
  assert.match(words, /--hidden/);
  assert.doesNotMatch(words, /on the same network/);
  assert.match(show({ has_others: true, head, model: 'm' }), /on the same network:kin joinIf it does not find this machine automatically: kin join .*:7577/);
});
