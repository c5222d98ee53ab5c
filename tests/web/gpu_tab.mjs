// A ring with a tab on a GPU: a page in Chromium, with the GPU emulated by the processor, controlled over the DevTools protocol.
//
//   node gpu_tab.mjs KIN MODEL DIR       exit 0, 1, or 77: there is no Chromium, or it has no WebGPU
import { existsSync, mkdirSync, readFileSync } from 'node:fs';
import { killAll, same, serve, serveRing, start, stop, until, write } from './ring.mjs';
import { openWebSocket } from './websocket.mjs';

const [kin, model, dir] = process.argv.slice(2);
const FLAGS = ['--headless', '--no-sandbox', '--enable-unsafe-webgpu', '--use-webgpu-adapter=swiftshader', '--remote-debugging-port=0', '--remote-allow-origins=*'];

const ANSWER_MS = 5000; // a page that is about to load another document may never answer

// -> ask(method, params): a promise of DevTools' answer; undefined: no answer.
function openDevTools(url) {
  const asked = new Map();
  let n = 0;
  const socket = openWebSocket(url.replace('ws:', 'http:'), (text) => {
    const { id, result } = JSON.parse(text);
    asked.get(id)?.(result);
  }, () => {});
  return (method, params) => new Promise((done) => {
    asked.set(++n, done);
    setTimeout(done, ANSWER_MS);
    socket.send(JSON.stringify({ id: n, method, params }));
  });
}

// -> { evaluate(expression): a promise of its value in the page, loseGpu() }; null: no Chromium.
async function openPage(url) {
  const profile = `${dir}/chromium`, active = `${profile}/DevToolsActivePort`;
  const browser = start(process.env.CHROMIUM ?? 'chromium', [...FLAGS, `--user-data-dir=${profile}`, url], { TMPDIR: dir });
  await until('Chromium is there', () => browser.isMissing || (existsSync(active) && readFileSync(active, 'utf8').includes('/')));
  if (browser.isMissing) return null;
  const [port, path] = readFileSync(active, 'utf8').split('\n');
  const { webSocketDebuggerUrl } = await until('its page', async () => (await (await fetch(`http://127.0.0.1:${port}/json/list`)).json()).find((p) => p.type === 'page' && p.url.startsWith(url)));
  const page = openDevTools(webSocketDebuggerUrl), whole = openDevTools(`ws://127.0.0.1:${port}${path}`);
  const evaluate = async (expression) => (await page('Runtime.evaluate', { expression, awaitPromise: true, returnByValue: true }))?.result?.value;
  return { evaluate, loseGpu: () => whole('Browser.crashGpuProcess') };
}

async function joinOnGpu(head) {
  const page = await openPage(`${head.base}/join?threads=1&gpu=on`);
  if (!page) return null;
  page.told = () => page.evaluate("['#engine', '#line', '#problem'].map((id) => document.querySelector(id).textContent).join('; ')");
  page.until = (what, expression) => until(what, () => page.evaluate(expression)).catch(async (e) => { throw new Error(`${e.message}: ${await page.told()}`); });
  await page.until('the page', "!!document.querySelector('#name')?.value");
  if (!(await page.evaluate('navigator.gpu?.requestAdapter().then((adapter) => !!adapter)'))) return null;
  await page.evaluate(`document.querySelector('#code').value = '${head.code}'; document.querySelector('#join').click();`);
  await page.until('the tab has layers', "document.querySelector('#layers').dataset.n > 0");
  return page;
}

async function check() {
  const alone = await serve(kin, model);
  const want = await write(alone.base, 16), long = await write(alone.base, 60);
  await stop(alone);
  const head = await serveRing(kin, model, dir);
  const page = await joinOnGpu(head);
  if (!page) return 77;
  same((await page.told()).startsWith('on the GPU'), true, 'a tab computes on a GPU');
  await until('the ring is up', async () => (await fetch(`${head.base}/health`)).ok);
  same(await write(head.base, 16), want, 'a ring with a tab on a GPU writes what one machine writes');
  same(await write(head.base, 60, page.loseGpu), long, 'a text goes on when the GPU is lost');
  await page.until('the tab is back without a GPU', "document.querySelector('#engine').textContent.includes('thread') && document.querySelector('#layers').dataset.n > 0");
  same(await write(head.base, 16), want, 'a tab that has lost its GPU computes without');
  return 0;
}

let code = 1;
try {
  mkdirSync(dir, { recursive: true });
  code = await check();
} catch (e) {
  console.log(`not ok - ${e.stack}`);
} finally {
  killAll();
}
process.exit(code);
