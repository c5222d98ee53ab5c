import './dom.mjs';
import { element } from './dom.mjs';
import assert from 'node:assert/strict';
import test from 'node:test';

const { drawPlan } = await import('../../page/plan.js');

const PLAN = { tpot_ms: 40, compute_ms: 30, disk_wait_ms: 0, hops_ms: 10, windows_ms: 0, rounds: 1, ring: [{ name: 'kitchen' }, { name: 'desk' }], reason: 'kitchen and desk compute the layers one after the other because together they are 1.8 times as fast as desk alone',
  devices: [{ name: 'kitchen', layers: 4, compute_ms: 20, hop_ms: 5, why: 'kitchen: 4 layers; without it 12.3 ms/token more', without: { fits: true, more_ms: 12.3 } }, { name: 'desk', layers: 4, compute_ms: 10, hop_ms: 5, why: 'desk: 4 layers; the head, with embedding and output' }] };

function show(more) {
  const box = element();
  box.append(...drawPlan({ ...PLAN, ...more }, () => 0));
  const at = box.childNodes.findIndex((n) => n.textContent === 'Reasons');
  return { box, first: box.childNodes[at + 1]?.textContent, details: box.all('details')[0] };
}

test('"Reasons" begins with one sentence; figures are behind "Details"', () => {
  const { first, details } = show({});
  assert.equal(first, 'Kitchen and desk compute the layers one after the other because together they are 1.8 times as fast as desk alone.');
  assert.equal(details.all('summary')[0].textContent, 'Details');
  assert.deepEqual(details.all('li').map((li) => li.textContent), ['kitchen: 4 layers; without it 12.3 ms/token more', 'desk: 4 layers; the head, with embedding and output']);
});

test('reasons of groups that the plan does not have are said to be of a plan not taken', () => {
  const group = 'a ring is faster: kitchen + desk share 8 layers, 2 x 8 sums of 0.31 ms cost 5.0 ms; tensor parallelism gains 2.0 ms: 45.1 ms a token, the ring 40.0 ms';
  const said = (more) => show(more).details.all('li')[0].textContent;
  assert.match(said({ group, group_tried: true }), /^Considered, but not used: kitchen \+ desk share 8 layers/);
  assert.equal(said({ group: 'no group: there is no other device to share layers with', group_tried: false }), 'No group: there is no other device to share layers with');
  const groups = [{ devices: ['kitchen', 'desk'], shares: [0.5, 0.5], layers: 8, sums: 16, sum_ms: 0.3, sums_ms: 5, saves_ms: 2 }];
  assert.match(said({ groups, group_tried: true, group: group.replace('a ring', 'a group') }), /^A group is faster: kitchen \+ desk share 8 layers/);
});

test('a plan of which nothing is said has no empty heading', () => {
  const { box } = show({ reason: undefined, devices: PLAN.devices.map(({ why, ...d }) => d) });
  assert.ok(!box.textContent.includes('Reasons'));
});

test('a device without which the model does not fit is marked', () => {
  const devices = PLAN.devices.map((d, i) => (i === 0 ? { ...d, without: { fits: false } } : d));
  const leaves = (more) => show(more).box.all('li').filter((li) => /^(kitchen|desk): /.test(li.textContent) && !/layers/.test(li.textContent));
  const [bad] = leaves({ devices }), [good] = leaves({});
  assert.equal(bad.textContent, 'kitchen: the model does not fit on the others, so generation stops');
  assert.equal(bad.attributes.class, 'bad');
  assert.equal(good.textContent, 'kitchen: a token takes 12 ms more');
});
