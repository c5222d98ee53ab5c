// Rings with tabs of headless Chromium, real pages, beside what was predicted. The head has core 0, browsers and devices core 1. Nobody
// listens to a browser while it computes: of each message of a WebSocket it would tell, for a millisecond.
//
//   node bench/tab.mjs KIN MODEL predict [ROW]   milliseconds per token, predicted and measured, for several plans: CSV
//   node bench/tab.mjs KIN MODEL left-out        whom `--plan auto` leaves out, and why
//   node bench/tab.mjs KIN MODEL lengths         all layers in a tab, or in a native device: tokens per second after prompts of several
//                                                lengths, in turns (the thesis's Figure 7.3): CSV
//
// For models like 1b of build/mkmodel. Needs taskset, Chromium, and npm install --prefix tests/browser. Nothing else should run.
import { execFileSync } from 'node:child_process';
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { chromium } from '../tests/browser/node_modules/playwright-core/index.mjs';
import { start, stop, stopAll, until } from '../tests/browser/world.mjs';

const [kin, model, mode, only] = process.argv.slice(2);
const TEXTS = 3, TOKENS = 64, WARM_TOKENS = 24, PROMPT = 96; // half of them before 128 tokens, half of them after
const CONTEXT = 256; // plans are for a token in its middle
const TURNS = 3, LENGTHS = [25, 128, 512, 1024], LENGTH_TOKENS = 24, LENGTH_CONTEXT = 1280;
const SLOW = '--js-flags=--liftoff-only'; // V8's compiler that does not optimize
const dir = mkdtempSync(`${tmpdir()}/kin-tab-`);
const env = { HOME: dir, XDG_CACHE_HOME: `${dir}/cache`, XDG_CONFIG_HOME: `${dir}/config`, KIN_VERBOSE: '1' };
let n_rings = 0;

const median = (list) => [...list].sort((a, b) => a - b)[list.length >> 1];
const sum = (list) => list.reduce((all, x) => all + x, 0);
const say = (...words) => console.log(words.join(','));
const fixed = (x) => (x === undefined ? '' : x.toFixed(2));
const pinned = (cores, program, words) => start('taskset', ['-c', cores, program, ...words], env);

// ---- browsers and tabs

async function browserWith(...flags) {
  const profile = mkdtempSync(`${dir}/profile-`), own = process.getuid?.() === 0 ? ['--no-sandbox'] : [];
  const child = start(process.env.CHROMIUM ?? '/usr/bin/chromium', ['--headless', `--user-data-dir=${profile}`, '--remote-debugging-port=0', '--disable-renderer-backgrounding', '--disable-backgrounding-occluded-windows', ...own, ...flags]);
  const browser = { child, at: await until('Chromium listens', () => child.said.match(/DevTools listening on (\S+)/)?.[1]) };
  await listen(browser);
  return browser;
}

async function listen(browser) {
  browser.cdp = await chromium.connectOverCDP(browser.at);
}

const tabsOf = (browser) => browser.cdp.contexts()[0].pages().filter((page) => page.url().includes('/join'));

// All processes of a browser that has begun: with one processor from the start Chromium 156 stops while a page's worker writes files.
function pin(browser, cores) {
  const parents = execFileSync('ps', ['-e', '-o', 'pid=,ppid=']).toString().trim().split('\n').map((line) => line.trim().split(/\s+/).map(Number));
  const pids = new Set([browser.child.pid]);
  for (let before = 0; before < pids.size;) {
    before = pids.size;
    for (const [pid, parent] of parents) if (pids.has(parent)) pids.add(pid);
  }
  for (const pid of pids) execFileSync('taskset', ['-a', '-p', '-c', cores, String(pid)], { stdio: 'ignore' });
}

// What the page's worker says of its steps is kept.
function keepSteps() {
  const { Worker } = window;
  window.kinSteps = [];
  window.Worker = class extends Worker {
    constructor(...words) {
      super(...words);
      this.addEventListener('message', ({ data }) => {
        if (data?.type === 'step' && data.tokens === 1) window.kinSteps.push(data.ms);
        if (data?.type === 'engine') window.kinRates = data.rates;
        if (data?.type === 'welcome') window.kinJoined = true;
      });
    }
  };
}

async function openTab(browser, ring, name, threads) {
  const page = await browser.cdp.contexts()[0].newPage();
  await page.addInitScript(keepSteps);
  page.setDefaultTimeout(60000);
  await page.goto(`${ring.base}/join?threads=${threads}`);
  await page.fill('#name', name);
  await page.fill('#code', ring.code);
  await page.click('#join');
  await page.waitForFunction(() => window.kinJoined || !document.querySelector('#problem').hidden);
  return page;
}

const computes = async (page, ring) => {
  await page.waitForFunction(() => document.querySelector('#layers').dataset.n > 0).catch(async (err) => { throw new Error(`${err.message} ${await page.innerText('body')} ${ring.head.said}`); });
};

// ---- rings

// plan: a word, or { NAME: layers } of the devices that are not the head.
function planWords(home, plan) {
  if (typeof plan === 'string') return ['--plan', plan];
  const devices = Object.entries(plan).map(([device, window]) => ({ device, window }));
  writeFileSync(`${home}/plan.json`, JSON.stringify({ devices: [...devices, { device: 'head', window: layersOf() - sum(Object.values(plan)) }] }));
  return ['--plan', `${home}/plan.json`];
}

function layersOf() {
  return Number(execFileSync(kin, ['info', model]).toString().match(/layers\s+(\d+)/)[1]);
}

// The events of the page: the last plan is kept.
async function follow(ring) {
  const response = await fetch(`${ring.base}/kin/events`, { signal: ring.over.signal });
  let rest = '';
  for await (const part of response.body.pipeThrough(new TextDecoderStream())) {
    const events = (rest + part).split('\n\n');
    rest = events.pop();
    for (const event of events) {
      const [, name, data] = event.match(/^event: (\w+)\ndata: (.*)$/s) ?? [];
      if (name === 'plan') Object.assign(ring, { plan: JSON.parse(data), planned_at: performance.now() });
    }
  }
}

async function openRing({ plan = 'auto', memory, devices = 1, threads = 1, context = CONTEXT }) {
  const home = `${dir}/ring${n_rings++}`, port = String(10000 + 10 * (process.pid % 900) + n_rings);
  mkdirSync(home, { recursive: true });
  const words = ['--threads', String(threads), '--ctx', String(context), '--draft', 'off', '--cluster', '--devices', String(devices), '--name', 'head', '--key-file', `${home}/key`, '--listen', '127.0.0.1', '--cluster-port', port, '--hidden', ...planWords(home, plan), ...(memory ? ['--memory', memory] : [])];
  const head = pinned(threads > 1 ? '0,1' : '0', kin, ['serve', model, '--port', '0', ...words]);
  const base = await until('kin serves', () => head.said.match(/serving .* at (https?:\/\/\S+)/)?.[1]).catch((err) => { throw new Error(`${err.message}: ${head.said}`); });
  const ring = { head, base, home, port, over: new AbortController(), code: readFileSync(`${home}/key.code`, 'utf8').trim() };
  follow(ring).catch(() => {});
  return ring;
}

const join = (ring, name) => pinned('1', kin, ['join', `127.0.0.1:${ring.port}`, '--name', name, '--key-file', `${ring.home}/key`, '--listen', '127.0.0.1', '--cache', `${dir}/${name}`, '--threads', '1', '-m', model]);

async function isUp(ring) {
  await until('the ring is up', async () => (await fetch(`${ring.base}/health`).catch(() => null))?.ok, 120000).catch((err) => { throw new Error(`${err.message}: ${ring.head.said}`); });
  await until('a plan', () => ring.plan && performance.now() - ring.planned_at > 2000);
}

async function close(ring, ...browsers) {
  ring.over.abort();
  await stop(ring.head);
  for (const { cdp, child } of browsers) await cdp.close(), await stop(child);
}

// Milliseconds of a token behind a prompt of so many.
async function write(ring, n_prompt, n_predict) {
  const prompt = Array.from({ length: n_prompt }, (_, i) => 5 + ((i * 7919) % 200));
  const response = await fetch(`${ring.base}/completion`, { method: 'POST', body: JSON.stringify({ prompt, n_predict, temperature: 0, ignore_eos: true }) });
  const answer = await response.json();
  if (!response.ok) throw new Error(JSON.stringify(answer));
  return answer.timings.predicted_per_token_ms;
}

// ---- predicted and measured

const ROWS = [
  { name: 'even', plan: 'even' },
  { name: '2 layers', plan: { tab1: 2 } },
  { name: '14 layers', plan: { tab1: 14 } },
  { name: 'auto 700M', memory: '700M' },
  { name: 'auto 500M', memory: '500M' },
  { name: 'even two tabs', plan: 'even', tabs: 2 },
  { name: 'even two threads', plan: 'even', threads: 2 },
];

// What the head says of a member's tokens (KIN_VERBOSE): its computing over what was predicted, from the end of the last text.
function measuredOf(ring, name) {
  const all = [...ring.head.said.matchAll(/measured on '(.*?)': computing takes ([\d.]+) times/g)].filter((m) => m[1] === name);
  return Number(all.at(-1)?.[2] ?? NaN);
}

async function predictRow(row) {
  const { tabs = 1, threads = 1 } = row;
  const ring = await openRing({ ...row, devices: tabs }), browser = await browserWith(), pages = [];
  for (let i = 1; i <= tabs; i++) pages.push(await openTab(browser, ring, `tab${i}`, threads));
  await Promise.all(pages.map((page) => computes(page, ring)));
  if (threads === 1) pin(browser, '1');
  await isUp(ring);
  await browser.cdp.close();
  await write(ring, PROMPT, WARM_TOKENS);
  const times = [];
  for (let i = 0; i < TEXTS; i++) times.push(await write(ring, PROMPT, TOKENS));
  await listen(browser);
  const [{ token_bytes_s: rates }] = await Promise.all(tabsOf(browser).map((page) => page.evaluate(() => window.kinRates)));
  const steps = sum(await Promise.all(tabsOf(browser).map(async (page) => median((await page.evaluate(() => window.kinSteps)).slice(-TEXTS * (TOKENS - 1))))));
  const { plan } = ring, of = (name) => plan.devices.find((d) => d.name === name), ms = median(times);
  const layers = plan.devices.map((d) => d.layers).join(' + ');
  const computed = sum(plan.devices.filter((d) => d.name !== 'head').map((d) => d.compute_ms));
  const gb = (type) => (rates[type] / 1e9).toFixed(2);
  say(row.name, layers, fixed(plan.tpot_ms), fixed(ms), plan.tpot_ms ? ((100 * (plan.tpot_ms - ms)) / ms).toFixed(1) : '', fixed(of('head').compute_ms), fixed(of('head').compute_ms * measuredOf(ring, 'head')), fixed(computed), fixed(steps), fixed((plan.windows_ms ?? 0) + (plan.hops_ms ?? 0)), gb('Q4_K'), gb('Q6_K'), plan.not_predicted ?? '');
  await close(ring, browser);
}

async function predict() {
  execFileSync('taskset', ['-c', '0', kin, 'profile', '--threads', '1', '--refresh'], { env: { ...process.env, ...env }, stdio: 'ignore' });
  say('ring', 'layers: head + tabs', 'predicted ms', 'measured ms', 'error %', 'head predicted', 'head measured', 'tabs predicted', 'tabs measured', 'ways predicted', 'tab Q4_K GB/s', 'tab Q6_K GB/s', 'remark');
  for (const row of ROWS) if (!only || row.name === only) await predictRow(row);
}

// ---- left out

async function leaveOut({ name, memory, tabs }) {
  const ring = await openRing({ memory, devices: tabs.length }), browsers = [];
  for (const [tab, ...flags] of tabs) {
    const browser = await browserWith(...flags);
    browsers.push(browser);
    await openTab(browser, ring, tab, 1);
  }
  await isUp(ring);
  console.log(`${name}: ${ring.plan.tpot_ms.toFixed(1)} ms/token`);
  for (const device of ring.plan.devices) console.log(`    ${device.why}`);
  await close(ring, ...browsers);
}

async function leftOut() {
  await leaveOut({ name: 'the head has room for all layers', tabs: [['fast']] });
  await leaveOut({ name: 'the head has 500M, one tab is slow', memory: '500M', tabs: [['fast'], ['slow', SLOW]] });
}

// ---- lengths

async function lengths() {
  const all = layersOf(), browser = await browserWith(), found = {};
  const web = await openRing({ plan: { tab: all }, context: LENGTH_CONTEXT }), page = await openTab(browser, web, 'tab', 1);
  await computes(page, web);
  pin(browser, '1');
  await browser.cdp.close();
  await isUp(web);
  const native = await openRing({ plan: { native: all }, context: LENGTH_CONTEXT }), device = join(native, 'native');
  await isUp(native);
  for (let turn = 0; turn <= TURNS; turn++) // the first one is to get warm
    for (const n of LENGTHS)
      for (const [series, ring] of [['native', native], ['tab', web]]) {
        const rate = 1000 / (await write(ring, n, LENGTH_TOKENS));
        if (turn > 0) ((found[series] ??= {})[n] ??= []).push(rate);
      }
  say('series', 'tokens', 'tokens_per_s', 'least', 'most');
  for (const [series, of] of Object.entries(found)) for (const n of LENGTHS) say(series, n, fixed(median(of[n])), fixed(Math.min(...of[n])), fixed(Math.max(...of[n])));
  await close(web, browser);
  await stop(device);
  await close(native);
}

const modes = { predict, 'left-out': leftOut, lengths };
if (!modes[mode]) {
  console.error('usage: node bench/tab.mjs KIN MODEL predict|left-out|lengths');
  process.exit(2);
}
let status = 0;
try {
  await modes[mode]();
} catch (err) {
  console.error(err.stack);
  status = 1;
}
await stopAll();
rmSync(dir, { recursive: true, force: true });
process.exit(status);
