// The environment of the tests: kin's processes, a browser, counted checks.
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { chromium } from 'playwright-core';

const BROWSERS = ['/usr/bin/chromium', '/usr/bin/chromium-browser', '/usr/bin/google-chrome'];
const only = process.argv[5] ?? ''; // run only checks with these words in their name
const children = [];
const failed = [];
let passed = 0;
export const hosts = new Set(); // hosts that the page sent requests to

export async function check(name, action) {
  const begun = Date.now();
  if (!name.includes(only)) return;
  try {
    await action();
    passed++;
    console.log(`ok - ${name} (${Date.now() - begun} ms)`);
  } catch (err) {
    failed.push(name);
    console.log(`not ok - ${name}\n    ${String(err.stack ?? err).split('\n').slice(0, 8).join('\n    ')}`);
  }
}

export function report() {
  console.log(`${passed} passed, ${failed.length} failed${failed.length ? `: ${failed.join('; ')}` : ''}`);
  return failed.length ? 1 : 0;
}

export function start(kin, words, env = {}) {
  const child = spawn(kin, words, { stdio: ['ignore', 'ignore', 'pipe'], env: { ...process.env, ...env } });
  child.said = '';
  child.stderr.on('data', (text) => (child.said += text));
  children.push(child);
  return child;
}

export async function until(what, test, ms = 60000) {
  for (const end = Date.now() + ms; Date.now() < end; await new Promise((later) => setTimeout(later, 30))) {
    const value = await test();
    if (value) return value;
  }
  throw new Error(`not within ${ms / 1000} s: ${what}`);
}

/** Waits for a server's address and returns it. */
export const addressOf = (child) => until('kin serves', () => child.said.match(/serving .* at (http:\/\/\S+)/)?.[1]);

export async function stop(child) {
  if (child.exitCode !== null || child.signalCode !== null) return;
  child.kill('SIGKILL');
  await once(child, 'exit');
}

export async function stopAll() {
  await Promise.all(children.map(stop));
}

async function launching() {
  const { existsSync } = await import('node:fs');
  return { executablePath: process.env.CHROMIUM ?? BROWSERS.find(existsSync), args: process.getuid?.() === 0 ? ['--no-sandbox'] : [] };
}

export const openBrowser = async () => chromium.launch(await launching());

/** Opens a page in a fresh browser context. An error on its console fails the test that closes it. */
export async function openPage(browser, url, options = {}) {
  const context = await browser.newContext({ viewport: { width: 1280, height: 800 }, ...options });
  const page = await context.newPage();
  page.problems = [];
  page.on('pageerror', (err) => page.problems.push(String(err)));
  page.on('console', (m) => m.type() === 'error' && !/Failed to load resource/.test(m.text()) && page.problems.push(m.text()));
  page.on('request', (r) => hosts.add(new URL(r.url()).protocol.startsWith('http') ? new URL(r.url()).host : new URL(r.url()).protocol));
  page.setDefaultTimeout(30000);
  await page.goto(url);
  return page;
}

export async function close(page) {
  await page.context().close();
  if (page.problems.length) throw new Error(`the page said: ${page.problems.join('; ')}`);
}

/** Returns the elements that extend beyond the right edge of the page. */
export const isTooWide = (page) => page.evaluate(() => [...document.querySelectorAll('body *')].filter((e) => {
  const box = e.getBoundingClientRect();
  return box.width && box.right > innerWidth + 1 && !e.closest('.table, .formula, pre, .off-screen, svg, #sidebar') && getComputedStyle(e).visibility === 'visible';
}).map((e) => `${e.tagName}.${e.getAttribute('class')}`));

const last = (page) => page.evaluate(() => document.querySelector('.message:last-of-type')?.dataset.id);

/** Sends a message and waits until its answer begins. */
export async function ask(page, text) {
  const before = await last(page);
  await page.fill('#prompt', text);
  await page.press('#prompt', 'Enter');
  await page.waitForFunction((id) => document.querySelector('.message:last-of-type.assistant') && document.querySelector('.message:last-of-type').dataset.id !== id, before);
}

export const click = (page, selector) => () => page.click(selector);


/** Returns the text of the last answer once it is complete. action: starts another answer first; without one, it has begun already. */
export async function answer(page, action) {
  const before = action && (await last(page));
  if (action) await action();
  await page.waitForFunction((id) => {
    const message = document.querySelector('.message:last-of-type');
    return message?.matches('.assistant[aria-busy="false"]') && message.dataset.id !== id;
  }, before ?? '');
  return page.locator('.message.assistant .markdown').last().textContent(); // innerText omits what is not visible
}
