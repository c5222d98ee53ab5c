// Tabs as members of a ring: real pages of a head that type the code and compute layers. The ring's texts are compared with those of one
// machine.
import { execFileSync } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { mkdir } from 'node:fs/promises';
import { get } from 'node:https';
import { connect } from 'node:net';
import { ECHO, writeFrame } from '../../web/page/frames.js';
import { addressOf, check, close, openPage, start, stop, until } from './world.mjs';

const PROMPT = 'Once upon a time there was a small robot who';
const env = { KIN_PLAN: 'even' };
let n_heads = 0;

// Starts a head that waits for n devices.
async function startHead({ kin, model, dir }, nDevices, ...words) {
  const home = `${dir}/tabs${n_heads++}`, port = String(10000 + 10 * (process.pid % 900) + n_heads);
  await mkdir(home, { recursive: true });
  const serve = (n, http) => start(kin, ['serve', model, '--port', http, '-t', '1', '--ctx', '2048', '--cluster', '--devices', String(n), '--name', 'desk', '--key-file', `${home}/key`, '--listen', '127.0.0.1', '--cluster-port', port, '--hidden', ...words], env);
  const head = serve(nDevices, '0');
  const base = await until('kin serves', () => head.said.match(/serving .* at (https?:\/\/\S+)/)?.[1]).catch((err) => { throw new Error(`${err.message}: ${head.said}`); });
  const device = async (name) => {
    await mkdir(`${home}/${name}`, { recursive: true });
    return start(kin, ['join', `127.0.0.1:${port}`, '--name', name, '--key-file', `${home}/key`, '--listen', '127.0.0.1', '--cache', `${home}/${name}`, '-t', '1'], env);
  };
  return { head, base, port, key: `${home}/key`, device, restart: async () => serve(1, new URL(base).port), code: readFileSync(`${home}/key.code`, 'utf8').trim() };
}

async function openTab(world, ring, name, query = '?threads=1', options = {}) {
  const page = await openPage(world.browser, `${ring.base}/join${query}`, options);
  await page.fill('#name', name);
  await page.fill('#code', ring.code);
  await page.click('#join');
  return page;
}

const computes = (page, ms = 60000) => page.waitForFunction(() => document.querySelector('#layers').dataset.n > 0, undefined, { timeout: ms });
const isUp = (ring) => until('the ring is up', async () => (await fetch(`${ring.base}/health`).catch(() => null))?.ok);

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

// ---- a client that is not a page

// Opens a raw WebSocket: { status, socket, said }, with the bytes after the header in said.
async function knock(ring, { origin = ring.base, path = '/join/ws', host } = {}) {
  const { hostname, port } = new URL(ring.base);
  const socket = connect(Number(port), hostname);
  const client = { socket, said: Buffer.alloc(0), closed: false };
  socket.on('data', (bytes) => (client.said = Buffer.concat([client.said, bytes])));
  socket.on('close', () => (client.closed = true));
  socket.on('error', () => {});
  socket.write(`GET ${path} HTTP/1.1\r\nHost: ${host ?? `${hostname}:${port}`}\r\n${origin ? `Origin: ${origin}\r\n` : ''}Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: ${randomBytes(16).toString('base64')}\r\n\r\n`);
  await until('an answer', () => client.said.includes('\r\n\r\n') || client.closed);
  client.status = Number(client.said.toString('latin1').split(' ')[1]);
  return client;
}

// A masked frame with a mask of zeros.
function message(payload, opcode = 1) {
  const n = payload.length, length = n < 126 ? Buffer.of(0x80 | n) : n < 65536 ? Buffer.of(0xfe, n >> 8, n & 255) : Buffer.concat([Buffer.of(0xff, 0, 0, 0, 0), Buffer.of(n >>> 24, (n >> 16) & 255, (n >> 8) & 255, n & 255)]);
  return Buffer.concat([Buffer.of(0x80 | opcode), length, Buffer.alloc(4), payload]);
}

const hello = (ring) => message(Buffer.from(JSON.stringify({ type: 'hello', code: ring.code, name: 'stranger', threads: 1, memory: 1e9 })));

// reason: expected in the message that ends the connection
async function expectEnd(ring, name, parts, reason = '') {
  const client = await knock(ring);
  if (client.status !== 101) throw new Error(`${name}: ${client.status}`);
  for (const part of parts) client.socket.write(part);
  await until(`${name} ends it`, () => client.closed);
  if (!client.said.includes(reason)) throw new Error(`${name}: ${client.said}`);
}

async function hostile(ring) {
  const refused = async (what, options, status) => {
    const client = await knock(ring, options);
    client.socket.destroy();
    if (client.status !== status) throw new Error(`${what}: ${client.status}, not ${status}`);
  };
  await refused('another origin', { origin: 'http://evil.example' }, 403);
  await refused('no origin', { origin: null }, 403);
  await refused('another host', { host: 'evil.example', origin: 'http://evil.example' }, 403);
  const chunk = await fetch(`${ring.base}/join/chunks/${'0'.repeat(64)}`);
  if (chunk.status !== 403) throw new Error(`a chunk without a token: ${chunk.status}`);
  const folder = await fetch(`${ring.base}/join/`);
  if (!folder.ok || !folder.url.endsWith('/join')) throw new Error(`/join/: ${folder.status} ${folder.url}`);
  await expectEnd(ring, 'no JSON', [message(Buffer.from('hello'))], 'unexpected message from the tab');
  await expectEnd(ring, 'frames before the code', [message(Buffer.alloc(100), 2)], 'invalid frame');
  await expectEnd(ring, 'a long message before the code', [message(Buffer.alloc(20000, 32))]);
  await expectEnd(ring, 'a frame that nobody asked for', [hello(ring), message(Buffer.alloc(100), 2)], 'invalid frame');
  const echo = message(Buffer.from(writeFrame(ECHO, 0, new Uint8Array(64))), 2);
  await expectEnd(ring, 'more echoes than there were', [hello(ring), echo, echo], 'unexpected frame before a request');
  await expectEnd(ring, 'a rest before the echo', [hello(ring), message(Buffer.from('{"type":"rested"}'))], 'unexpected message for a head');
  await expectEnd(ring, 'an unknown message', [hello(ring), message(Buffer.from('{"type":"plan"}'))], 'unexpected message for a head');
  await expectEnd(ring, 'an oversized message', [hello(ring), message(Buffer.alloc(1 << 20), 2)]);
  await expectEnd(ring, 'bytes of no protocol', [randomBytes(1000)]);
  await expectEnd(ring, 'a mask that is missing', [Buffer.of(0x81, 2, 0x7b, 0x7d)]);
  const idle = await Promise.all(Array.from({ length: 200 }, () => knock(ring)));
  const n = idle.filter((c) => c.status === 101).length;
  if (n > 8 || idle.some((c) => ![101, 503].includes(c.status))) throw new Error(`${n} of 200 idle sockets were let in: ${idle.map((c) => c.status)}`);
  await until('idle sockets are closed', () => idle.every((c) => c.closed || c.status === 503));
  idle.forEach((c) => c.socket.destroy());
}

// Calls act() when a quarter of a text is there, and expects the same text.
async function inTheMiddle(ring, want, n, act) {
  let acting;
  const text = await write(ring.base, n, async (so_far) => {
    if (acting || so_far.length < want.length / 4) return;
    await (acting = act());
  });
  if (!acting) throw new Error('the text ended before anything was done');
  same(text, want);
}

export async function tabs(world) {
  const without = start(world.kin, ['serve', world.model, '--port', '0', '-t', '1', '--ctx', '512', '--cluster', '--hidden', '--key-file', `${world.dir}/tabs.key`, '--cluster-port', String(9000 + (process.pid % 900))]);
  const answer = await fetch(`${await addressOf(without)}/join`);
  await stop(without);
  if (answer.status === 404 && (await answer.text()).includes('built without')) return console.log('skipped: tabs, without clang-19 and lld-19 there is no engine for browsers');
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
    await inTheMiddle(ring, want, 60, () => one.context().close());
    await stop(ring.head);
    await stop(native);
    await close(two);
  });

  await check('three tabs and a native device; a tab whose head was restarted joins again by itself', async () => {
    const ring = await startHead(world, 4);
    const native = await ring.device('anna'), tabs = [];
    for (const name of ['phone', 'tablet', 'laptop']) tabs.push(await openTab(world, ring, name));
    await Promise.all(tabs.map((tab) => computes(tab)));
    await isUp(ring);
    same(await write(ring.base), want);
    await Promise.all(tabs.slice(1).map((tab) => close(tab)));
    await stop(native);
    ring.head.kill('SIGINT');
    await until('the head has ended', () => ring.head.exitCode !== null);
    await tabs[0].waitForFunction(() => document.querySelector('#line').textContent.includes('Trying again'));
    await new Promise((later) => setTimeout(later, 5000)); // at least one attempt finds no server
    const again = await ring.restart();
    await computes(tabs[0]);
    await isUp(ring);
    same(await write(ring.base), want);
    await stop(again);
    await close(tabs[0]);
  });

  await check('a tab stays when the head itself stood still for longer than a tab may be silent', async () => {
    const ring = await startHead(world, 1);
    const tab = await openTab(world, ring, 'phone');
    await computes(tab);
    await isUp(ring);
    ring.head.kill('SIGSTOP');
    await new Promise((later) => setTimeout(later, 5000)); // KIN_TAB_SILENCE_MS plus one second
    ring.head.kill('SIGCONT');
    same(await write(ring.base), want);
    if (ring.head.said.includes('removed the tab')) throw new Error(ring.head.said);
    await stop(ring.head);
    await close(tab);
  });

  await check('a tab that joins while a text is written has fetched its weights when its plan begins; the text is the same', async () => {
    const ring = await startHead(world, 1);
    const native = await ring.device('anna');
    await isUp(ring);
    const all = await write(ring.base, 600);
    let tab;
    const text = await write(ring.base, 600, async () => (tab ??= await openTab(world, ring, 'phone')));
    same(text, all);
    const more = await write(ring.base, 600, () => tab.getAttribute('#layers', 'data-n'));
    same(more, all);
    await computes(tab);
    const bytes = await tab.getAttribute('#fetched', 'data-bytes');
    if (bytes !== '0') throw new Error(`${bytes} bytes were fetched when the plan had begun`);
    await stop(ring.head);
    await stop(native);
    await close(tab);
  });

  await check('a wrong code is refused with a sentence, and the next one waits', async () => {
    const ring = await startHead(world, 1);
    const tab = await openPage(world.browser, `${ring.base}/join`);
    const tries = async (code, words) => {
      await tab.fill('#code', code);
      await tab.click('#join');
      await tab.waitForFunction((w) => document.querySelector('#problem').textContent.includes(w) && !document.querySelector('#form').hidden, words);
    };
    await tries('0000-0000-0000-0000', 'wrong code');
    await tries(ring.code, 'too many wrong codes');
    await new Promise((later) => setTimeout(later, 1000)); // KIN_TABS_TRY_MS
    await tab.click('#join');
    await computes(tab);
    await tab.click('#leave');
    await tab.waitForSelector('#form:not([hidden])');
    await stop(ring.head);
    await close(tab);
  });

  await check('a tab that is reloaded is back, and fetches no weights again; it answers as before', async () => {
    const ring = await startHead(world, 1);
    const tab = await openTab(world, ring, 'phone');
    await computes(tab);
    await isUp(ring);
    const before = Number(await tab.getAttribute('#fetched', 'data-bytes'));
    if (!(before > 0)) throw new Error(`${before} bytes were fetched at first`);
    const begun = Date.now();
    await tab.reload();
    await computes(tab);
    await isUp(ring);
    console.log(`    back after ${Date.now() - begun} ms`);
    const after = Number(await tab.getAttribute('#fetched', 'data-bytes'));
    if (after !== 0) throw new Error(`${after} bytes were fetched again`);
    same(await write(ring.base), want);
    await stop(ring.head);
    await close(tab);
  });

  await check('tabs that are reloaded again and again while a text is written are back, and the text is the same', async () => {
    const ring = await startHead(world, 2);
    const tabs = [await openTab(world, ring, 'phone'), await openTab(world, ring, 'tablet')];
    await Promise.all(tabs.map((tab) => computes(tab)));
    await isUp(ring);
    const all = await write(ring.base, 600);
    await inTheMiddle(ring, all, 600, async () => {
      for (const tab of [tabs[0], tabs[1], tabs[0]]) await tab.reload();
      await Promise.all(tabs.map((tab) => tab.reload()));
    });
    await Promise.all(tabs.map((tab) => computes(tab)));
    await isUp(ring);
    same(await write(ring.base, 600), all);
    await stop(ring.head);
    for (const tab of tabs) await close(tab);
  });

  await check('strangers with wrong origins, garbage, long messages and 200 idle sockets leave the ring as it is', async () => {
    const ring = await startHead(world, 1);
    const tab = await openTab(world, ring, 'phone');
    await computes(tab);
    await isUp(ring);
    let attack;
    const text = await write(ring.base, 200, () => (attack ??= hostile(ring)));
    await attack;
    same(text.slice(0, want.length), want);
    same(await write(ring.base), want);
    if (!(await tab.isVisible('#state'))) throw new Error('the tab has left');
    await stop(ring.head);
    await close(tab);
  });

  await check('--no-browsers: there is no page, and no WebSocket', async () => {
    const head = start(world.kin, ['serve', world.model, '--port', '0', '-t', '1', '--ctx', '512', '--no-browsers']);
    const base = await addressOf(head);
    for (const path of ['/join', '/join/ws', '/join/page/join.js']) if ((await fetch(base + path)).status !== 404) throw new Error(path);
    await stop(head);
  });

  await check('over https with a certificate that is its own, on a phone: the link has the code, the views say that it is a browser', async () => {
    const ring = await startHead(world, 1, '--https');
    const phone = { ignoreHTTPSErrors: true, viewport: { width: 390, height: 844 }, isMobile: true, hasTouch: true };
    const tab = await openPage(world.browser, `${ring.base}/join#${ring.code}`, phone);
    if ((await tab.inputValue('#code')) !== ring.code) throw new Error('the code of the link is not there');
    await tab.fill('#name', 'telephone');
    await tab.click('#join');
    await computes(tab);
    const text = await until('a text', () => tab.evaluate(async (prompt) => {
      const body = JSON.stringify({ prompt, n_predict: 60, temperature: 0, ignore_eos: true });
      const response = await fetch('/completion', { method: 'POST', body });
      return response.ok && (await response.json()).content;
    }, PROMPT));
    same(text, want);
    if (await tab.evaluate(() => document.documentElement.scrollWidth > innerWidth)) throw new Error('the page is wider than the phone');
    const status = execFileSync(world.kin, ['status', `127.0.0.1:${ring.port}`, '--key-file', ring.key], { encoding: 'utf8' });
    if (!/telephone \(browser\)/.test(status)) throw new Error(status);
    const view = await openPage(world.browser, `${ring.base}/#cluster`, { ignoreHTTPSErrors: true });
    await view.waitForSelector('article[aria-label=telephone] .tag:text("browser")', { timeout: 30000 }).catch(async () => { throw new Error(await view.textContent('#cluster')); });
    await close(view);
    if (!ring.head.said.includes(`browsers join at ${ring.base}/join with the code`)) throw new Error(ring.head.said);
    await stop(ring.head);
    await close(tab);
  });

  await check('kin run: the page has the certificate that it is given, and none without --browsers', async () => {
    const home = `${world.dir}/run`, kept = `${world.dir}/.config/kin`, files = ['--ssl-cert-file', `${kept}/https.crt`, '--ssl-key-file', `${kept}/https.key`]; // the last check made them
    await mkdir(home, { recursive: true });
    const words = ['run', '-m', world.model, '-t', '1', '--ctx', '512', '-n', '30', '-p', PROMPT, '--cluster', '--devices', '1', '--key-file', `${home}/key`, '--listen', '127.0.0.1', '--port', String(9000 + (process.pid % 900)), '--hidden', ...files];
    const without = start(world.kin, words, env);
    await until('it ends', () => without.exitCode !== null);
    if (without.exitCode !== 2 || !without.said.includes('need --browsers')) throw new Error(without.said);
    const head = start(world.kin, [...words, '--browsers', '0'], env);
    const base = await until('the page', () => head.said.match(/browsers join at (https:\/\/\S+)\/join with/)?.[1]);
    const said = await new Promise((yes, no) => get(`${base}/join`, { ca: readFileSync(`${kept}/https.crt`) }, (answer) => yes(answer.statusCode)).on('error', no));
    if (said !== 200) throw new Error(`${said}`);
    const tab = await openTab(world, { base, code: readFileSync(`${home}/key.code`, 'utf8').trim() }, 'phone', '?threads=1', { ignoreHTTPSErrors: true });
    await until('the text is written', () => head.exitCode !== null);
    if (head.exitCode !== 0 || !head.said.includes('serving on 1 device')) throw new Error(head.said);
    await close(tab);
  });
}
