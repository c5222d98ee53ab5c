// Does the same as engine.mjs in headless Chromium: a server in this process provides the scripts, modules and cases, and takes the
// results. Environment: RATES=bytes=N&backend=N also times the products (bench/web_kernels.sh). WAY=N multiplies rows by variant N
// (kernels/kernels.h); the default is 0, or the fastest one where products are timed. JS_FLAGS: flags of V8. GPU=on: a GPU emulated by the
// processor. With one thread the page is not cross-origin isolated and has no shared memory. Exit 77: no Chromium, or no such GPU.
import { spawn } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:http';
import { tmpdir } from 'node:os';

const [modules, unit, threads, ...cases] = process.argv.slice(2);
const gpu = process.env.GPU ?? 'off';
const flags = gpu === 'on' ? ['--enable-unsafe-webgpu', '--use-webgpu-adapter=swiftshader'] : ['--disable-gpu'];
if (process.env.JS_FLAGS) flags.push(`--js-flags=${process.env.JS_FLAGS}`);
const way = process.env.WAY ? `&way=${process.env.WAY}` : '';
const root = new URL('../..', import.meta.url).pathname;
const types = { html: 'text/html', js: 'text/javascript', mjs: 'text/javascript', wasm: 'application/wasm' };

const typeOf = (path) => types[path.split('.').at(-1)] ?? 'application/octet-stream';

// /kin/PATH of the sources, /code/NAME of the modules, /case/I, /model/I; POST /out/I, /failed, /done, /skipped.
function fileOf(path) {
  const [, kind, rest] = path.match(/^\/(\w+)\/([\w./]+)$/) ?? [];
  if (kind === 'kin' && !rest.includes('..')) return root + rest;
  if (kind === 'code' && /^\w+\.wasm$/.test(rest)) return `${modules}/${rest}`;
  return { model: cases[3 * rest], case: cases[3 * rest + 1] }[kind];
}

function take(path, body) {
  if (path.startsWith('/out/')) return writeFileSync(cases[3 * path.slice(5) + 2], body);
  console.error(body.toString());
  end({ '/done': 0, '/skipped': 77 }[path] ?? 1);
}

const server = createServer(async (request, response) => {
  if (request.method === 'POST') {
    const parts = [];
    for await (const part of request) parts.push(part);
    response.end();
    return take(request.url, Buffer.concat(parts));
  }
  const path = fileOf(request.url.split('?')[0]);
  if (!path) return response.writeHead(404).end();
  const isolated = threads === '1' ? {} : { 'Cross-Origin-Opener-Policy': 'same-origin', 'Cross-Origin-Embedder-Policy': 'require-corp' };
  response.writeHead(200, { 'Content-Type': typeOf(path), ...isolated }).end(readFileSync(path));
});

const profile = mkdtempSync(`${tmpdir()}/kin-chromium-`);
const MOST_MS = 100_000;
let browser;

// Kills the browser's helper processes too, which would write to the profile for a while.
function kill() {
  try {
    process.kill(-browser.pid, 'SIGKILL');
  } catch { /* it has ended */ }
}

function end(code) {
  process.exitCode = code;
  clearTimeout(timer);
  kill();
  server.close();
  server.closeAllConnections();
}

function removeProfile(tries = 20) {
  try {
    rmSync(profile, { recursive: true, force: true });
  } catch (e) {
    if (tries > 0) setTimeout(removeProfile, 100, tries - 1); // rmSync lists the folder's content only once
    else console.error(e.message);
  }
}

const timer = setTimeout(() => take('/failed', Buffer.from('no answer')), MOST_MS);

process.on('exit', kill); // also if something here throws
for (const signal of ['SIGINT', 'SIGTERM']) process.on(signal, () => end(1));

server.listen(0, '127.0.0.1', () => {
  const url = `http://127.0.0.1:${server.address().port}/kin/tests/web/page.html?unit=${unit}&threads=${threads}&n=${cases.length / 3}&gpu=${gpu}${way}&${process.env.RATES ?? ''}`;
  browser = spawn(process.env.CHROMIUM ?? 'chromium', ['--headless', '--no-sandbox', ...flags, `--user-data-dir=${profile}`, url], { stdio: 'ignore', detached: true, env: { ...process.env, TMPDIR: profile } });
  browser.on('error', () => (end(77), removeProfile()));
  browser.on('close', () => removeProfile());
});
