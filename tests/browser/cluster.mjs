// The view of the cluster: one machine, and a ring that loses a device and gets it back.
import assert from 'node:assert/strict';
import { check, close, openPage, stop, until } from './world.mjs';

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
  await page.waitForSelector('.texts:has-text("Nothing right now")');
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

export async function clusters(world) {
  await check('one machine: what it computes, live', () => oneMachine(world));
  await check('a ring of three, which loses a device and gets it back', () => ring(world));
}
