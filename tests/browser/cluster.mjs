// The view of the cluster: one machine, and a ring that loses a device and gets it back.
import assert from 'node:assert/strict';
import { startPair } from './ring.mjs';
import { check, close, isTooWide, openPage, stop, until } from './world.mjs';

const ringLabel = (page) => page.locator('svg.ring').getAttribute('aria-label');

async function oneMachine({ base, browser }) {
  const page = await openPage(browser, `${base}#cluster`);
  await page.waitForSelector('.card');
  assert.match(await ringLabel(page), /^1 device in the ring: this machine, 8 layers/);
  assert.match(await page.locator('.join').innerText(), /kin serve --cluster/);
  const body = { prompt: 'Once', max_tokens: 3000, temperature: 1 };
  const writing = fetch(`${base}v1/completions`, { method: 'POST', body: JSON.stringify({ ...body, ignore_eos: true }) });
  await page.waitForSelector('.texts .mark');
  await writing;
  await page.waitForFunction(() => /[1-9]/.test(document.querySelectorAll('.figure-value')[3].textContent));
  await page.waitForSelector('.texts:has-text("No active requests")');
  await close(page);
}

async function ring(world) {
  const { base, devices, join } = await world.ring;
  const page = await openPage(world.browser, `${base}#cluster`);
  const shows = (pattern) => until(String(pattern), async () => pattern.test((await page.locator('svg.ring').count()) ? await ringLabel(page) : ''));
  await shows(/^3 devices in the ring: (anna|bert), 3 layers.*desk, 2 layers/);
  assert.equal(await page.locator('.card').count(), 3);
  await page.click('text=Show the code');
  assert.match(await page.locator('.pairing').innerText(), /^[0-9A-Z]{4}(-[0-9A-Z]{4}){3}$/);
  await stop(devices.bert);
  await shows(/^2 devices in the ring: anna, 4 layers.*desk, 4 layers/);
  devices.bert = await join('bert');
  await shows(/^3 devices in the ring/);
  await close(page);
}

// Two devices that share all layers; tests/test_browser.sh makes the model, whose layers can be split.
async function group(world) {
  const { base, stopAll } = (world.pair = await startPair(world));
  const page = await openPage(world.browser, `${base}#cluster`);
  const has = async (selector, ...patterns) => {
    const text = (await page.locator(selector).first().textContent()).replace(/\s+/g, ' ');
    for (const pattern of patterns) assert.match(text, pattern);
  };
  await page.waitForSelector('.plan .shared');
  assert.match(await ringLabel(page), /^2 devices in the ring: anna, 8 layers, shared by 2, 50 % of each, .*; desk, 8 layers, shared by 2, 50 % of each/);
  await has('svg.ring .group', /layers 0–7/, /shared, sums [0-9.]+ ms/, /anna50 %desk50 %/);
  const [anna, desk] = await page.locator('svg.ring .group .node').evaluateAll((nodes) => nodes.map((n) => n.getBoundingClientRect()).map(({ left, right, top }) => ({ left, right, top })));
  assert.ok(anna.right <= desk.left && Math.abs(anna.top - desk.top) < 1, 'they are not side by side');
  await has('.card', /anna.*0–7, 50 % of each, shared with desk/);
  await has('.plan', /anna 50 %, desk 50 % of each of 8 layers: 16 sums of [0-9.]+ ms take [0-9.]+ ms of a token/, /sums of groups [0-9.]+ ms/, /(A group|A ring) is faster: anna \+ desk share 8 layers/, /anna: shares 8 layers with desk/);
  await close(page);
  const phone = await openPage(world.browser, `${base}#cluster`, { viewport: { width: 360, height: 740 }, isMobile: true, hasTouch: true });
  await phone.waitForSelector('.plan .shared');
  assert.deepEqual(await isTooWide(phone), []);
  const outside = await phone.locator('svg.ring .group text').evaluateAll((texts) => texts.filter((t) => t.getBBox().x + t.getBBox().width > 400).map((t) => t.textContent));
  assert.deepEqual(outside, []);
  await close(phone);
  await stopAll();
}

export async function clusters(world) {
  await check('one machine: what it computes, live', () => oneMachine(world));
  await check('two devices that share each layer are drawn side by side, with shares and sums', () => group(world));
  await check('a ring of three, which loses a device and gets it back', () => ring(world));
}
