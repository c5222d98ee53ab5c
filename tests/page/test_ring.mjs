import './dom.mjs';
import assert from 'node:assert/strict';
import test from 'node:test';

const { drawRing } = await import('../../page/ring.js');
const { drawCards } = await import('../../page/devices.js');

const MOST = 16;
const ring = (n, more = () => ({})) => Array.from({ length: n }, (_, i) => ({ name: `device ${i}`, role: i === n - 1 ? 'head' : 'device', stage: i + 1, state: 'waiting', layers: 2, windows: [{ layer_begin: 2 * i, layer_end: 2 * i + 2 }], ...more(i) }));
const linksOf = (devices) => devices.map((d, i) => ({ from: d.name, to: devices[(i + 1) % devices.length].name, rtt_ms: 123.4, bytes_s: 1.18e8 }));
const draw = (devices, narrow, plan = { links: linksOf(devices) }) => drawRing(devices, plan, 2 * devices.length, (d) => devices.indexOf(d), narrow);

const box = ({ attributes: a }) => ({ left: +a.x, top: +a.y, right: +a.x + +a.width, bottom: +a.y + +a.height });
const boxes = (picture) => [...picture.all('.box'), ...picture.all('.around')].map(box);
const width = (text) => 7.6 * text.length; // for a font of 13 pixels; rather too wide than too narrow

function textBox(t) {
  const { x, y, 'text-anchor': anchor } = t.attributes, w = width(t.textContent), left = +x - (anchor === 'end' ? w : anchor === 'middle' ? w / 2 : 0);
  return { left, right: left + w, top: +y - 11, bottom: +y + 3, text: t.textContent };
}

const overlap = (a, b) => a.left < b.right && b.left < a.right && a.top < b.bottom && b.top < a.bottom;

test('no two devices of a ring of up to 16 overlap, on a wide and on a narrow page', () => {
  for (const narrow of [false, true]) for (let n = 2; n <= MOST; n++) {
    const picture = draw(ring(n), narrow), all = boxes(picture);
    const [left, top, w, h] = picture.attributes.viewBox.split(' ').map(Number);
    assert.equal(all.length, n);
    all.forEach((a, i) => {
      assert.ok(a.left >= left && a.right <= left + w && a.top >= top && a.bottom <= top + h, `${n} devices: ${i} is outside`);
      all.forEach((b, k) => k > i && assert.ok(!overlap(a, b), `${n} devices, narrow ${narrow}: ${i} and ${k}`));
    });
  }
});

test('what the links take stands beside the devices and inside the picture', () => {
  for (const narrow of [false, true]) for (let n = 2; n <= MOST; n++) {
    const picture = draw(ring(n), narrow), all = boxes(picture), texts = [...picture.all('.latency'), ...picture.all('.speed')].map(textBox);
    const [left, top, w, h] = picture.attributes.viewBox.split(' ').map(Number);
    assert.equal(texts.length, 2 * n);
    texts.forEach((t, i) => {
      const where = `${n} devices, narrow ${narrow}: "${t.text}"`;
      assert.ok(t.left >= left && t.right <= left + w && t.top >= top && t.bottom <= top + h, `${where} is outside`);
      for (const b of all) assert.ok(!overlap(t, b), `${where} is on a device`);
      texts.forEach((u, k) => k > i && assert.ok(!overlap(t, u), `${where} is on "${u.text}"`));
    });
  }
});

test('groups among many devices have their room, too', () => {
  for (const narrow of [false, true]) for (const at of [0, 3, 7]) {
    const devices = ring(12, (i) => (i >= at && i < at + 3 ? { windows: [{ layer_begin: 0, layer_end: 2 }] } : {}));
    const picture = draw(devices, narrow), outer = [...picture.all('.around').map(box), ...picture.all('.box').map(box).filter((b) => b.right - b.left > 150)];
    assert.equal(picture.all('.around').length, 1);
    outer.forEach((a, i) => outer.forEach((b, k) => k > i && assert.ok(!overlap(a, b), `${i} and ${k}`)));
  }
});

test('a token goes round clockwise, and the head is at the bottom', () => {
  for (let n = 3; n <= MOST; n++) {
    const all = boxes(draw(ring(n), false)).map((b) => ({ x: (b.left + b.right) / 2, y: (b.top + b.bottom) / 2 }));
    const turn = all.reduce((sum, a, i) => sum + a.x * all[(i + 1) % n].y - all[(i + 1) % n].x * a.y, 0);
    assert.ok(turn > 0, `${n} devices`);
    assert.equal(Math.max(...all.map((a) => a.y)), all.at(-1).y, `${n} devices`);
  }
});

test('names are cut by what they are wide, not by their letters', () => {
  const named = (name) => draw(ring(3, (i) => (i === 0 ? { name } : {})), false).all('.name').map((t) => t.textContent).find((t) => !t.startsWith('device'));
  assert.equal(named('illi-litil-tilliti-lil'), 'illi-litil-tilliti-lil');
  assert.match(named('WWWWWWWWWWWW'), /^W{5,8}…$/);
  assert.match(named('書斎のコンピューターです'), /^書.*…$/);
});

test('a device without layers only relays, the head embeds', () => {
  const devices = ring(3, (i) => (i === 1 ? { layers: 0, windows: [], os: 'browser' } : i === 2 ? { layers: 0, windows: [] } : {}));
  assert.match(draw(devices, false).attributes['aria-label'], /device 1, only relays, waiting; device 2, embedding and output/);
  const cards = drawCards(devices, 6, undefined, () => 0).map((c) => c.textContent);
  assert.match(cards[1], /Layersnone: it only relays/);
  assert.match(cards[2], /Layersnone: embedding and output/);
});
