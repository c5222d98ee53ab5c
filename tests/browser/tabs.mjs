// Tabs as members of a ring: real pages of a head, which type the code and compute layers. What the ring writes is compared with what one
// machine writes.
import { readFileSync } from 'node:fs';
import { mkdir } from 'node:fs/promises';
import { addressOf, check, close, openPage, start, stop, until } from './world.mjs';

const PROMPT = 'Once upon a time there was a small robot who';
const env = { KIN_PLAN: 'even' };
let n_heads = 0;

// A head that waits for n devices.
async function startHead({ kin, model, dir }, nDevices, ...words) {
  const home = `${dir}/tabs${n_heads++}`, port = String(41000 + (process.pid % 9000) + n_heads);
  await mkdir(home, { recursive: true });
  const head = start(kin, ['serve', model, '--port', '0', '-t', '1', '--ctx', '2048', '--cluster', '--devices', String(nDevices), '--name', 'desk', '--key-file', `${home}/key`, '--listen', '127.0.0.1', '--cluster-port', port, '--hidden', ...words], env);
  const base = await addressOf(head);
  const device = async (name) => {
    await mkdir(`${home}/${name}`, { recursive: true });
    return start(kin, ['join', `127.0.0.1:${port}`, '--name', name, '--key-file', `${home}/key`, '--listen', '127.0.0.1', '--cache', `${home}/${name}`, '-t', '1'], env);
  };
  return { head, base, device, code: readFileSync(`${home}/key.code`, 'utf8').trim() };
}

async function openTab(world, ring, name, query = '?threads=1') {
  const page = await openPage(world.browser, `${ring.base}/join${query}`);
  await page.fill('#name', name);
  await page.fill('#code', ring.code);
  await page.click('#join');
  return page;
}

const computes = (page, ms = 30000) => page.waitForFunction(() => document.querySelector('#layers').dataset.n > 0, undefined, { timeout: ms });
const isUp = (ring) => until('the ring is up', async () => (await fetch(`${ring.base}/health`).catch(() => null))?.ok, 30000);

async function write(base, n = 60, onPart) {
  const response = await fetch(`${base}/completion`, { method: 'POST', body: JSON.stringify({ prompt: PROMPT, n_predict: n, temperature: 0, stream: true, ignore_eos: true }) });
  if (!response.ok) throw new Error(`${response.status}: ${await response.text()}`);
  let text = '', rest = '';
  for await (const part of response.body.pipeThrough(new TextDecoderStream())) {
    rest += part;
    for (let end; (end = rest.indexOf('\n\n')) >= 0; rest = rest.slice(end + 2)) {
      const data = rest.slice(0, end).replace(/^data: /, '');
      if (data.startsWith('{')) text += JSON.parse(data).content ?? '';
    }
    await onPart?.(text);
  }
  return text;
}

function same(got, want) {
  if (got !== want) throw new Error(`the ring wrote ${JSON.stringify(got)}, one machine ${JSON.stringify(want)}`);
}

async function closedInTheMiddle(ring, tab, want) {
  let closed;
  const text = await write(ring.base, 60, async (so_far) => {
    if (closed || so_far.length < want.length / 4) return;
    closed = tab.context().close();
    await closed;
  });
  if (!closed) throw new Error('the text ended before the tab was closed');
  same(text, want);
}

export async function tabs(world) {
  const alone = start(world.kin, ['serve', world.model, '--port', '0', '-t', '1', '--ctx', '2048']);
  const want = await write(await addressOf(alone));
  await stop(alone);

  await check('a tab computes layers, and the text is that of one machine', async () => {
    const ring = await startHead(world, 1);
    const tab = await openTab(world, ring, 'phone');
    await computes(tab);
    await isUp(ring);
    same(await write(ring.base), want);
    await stop(ring.head);
    await close(tab);
  });

  await check('two tabs and a native device are a ring; one tab is closed in the middle of a text, which goes on', async () => {
    const ring = await startHead(world, 3);
    const native = await ring.device('anna');
    const [one, two] = [await openTab(world, ring, 'phone', '?threads=2'), await openTab(world, ring, 'tablet')];
    await Promise.all([computes(one), computes(two)]);
    await isUp(ring);
    same(await write(ring.base), want);
    await closedInTheMiddle(ring, one, want);
    await stop(ring.head);
    await stop(native);
    await close(two);
  });

  await check('a wrong code is refused with a sentence, and the next one waits', async () => {
    const ring = await startHead(world, 1);
    const tab = await openPage(world.browser, `${ring.base}/join`);
    const tries = async (code, words) => {
      await tab.fill('#code', code);
      await tab.click('#join');
      await tab.waitForFunction((w) => document.querySelector('#problem').textContent.includes(w) && !document.querySelector('#form').hidden, words);
    };
    await tries('0000-0000-0000-0000', 'does not fit');
    await tries(ring.code, 'just now');
    await new Promise((later) => setTimeout(later, 1000)); // KIN_TABS_TRY_MS
    await tab.click('#join');
    await computes(tab);
    await tab.click('#leave');
    await tab.waitForSelector('#form:not([hidden])');
    await stop(ring.head);
    await close(tab);
  });
}
