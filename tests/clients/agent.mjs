// Unmodified coding agents from npm, opencode and Codex, against kin serve: one end-to-end run each, with a tool call.
//
//   npm install opencode-ai @openai/codex        (600 MB; anywhere above this file, or in FOLDER)
//   node tests/clients/agent.mjs PATH_TO_KIN [opencode|codex] [FOLDER]
//
// Each gets a task and its own folder. It must exit with 0, its requests must be answered completely and streamed, and it must run the
// requested tool and send the result in its next request. The built-in demo model calls a tool on its own only for the questions it knows,
// and agents have no setting for tool_choice. So a proxy changes that one field: a harmless tool by name in the first request, none
// afterwards; kin's grammar then enforces the call. KIN_AGENT_MODEL=FILE uses another model and lets it decide on its own. Skipped (77) if
// neither is installed.
import { spawn } from 'node:child_process';
import fs from 'node:fs';
import http from 'node:http';
import os from 'node:os';
import path from 'node:path';
import process from 'node:process';

const [kin, which = '', folder = path.dirname(new URL(import.meta.url).pathname)] = process.argv.slice(2);
if (!kin) {
  console.error('usage: node agent.mjs PATH_TO_KIN [opencode|codex] [FOLDER]');
  process.exit(2);
}
const dir = fs.mkdtempSync(path.join(os.tmpdir(), 'kin-agent-'));
const children = [];
process.on('exit', () => {
  for (const child of children) if (child.exitCode === null) child.kill('SIGKILL');
  fs.rmSync(dir, { recursive: true, force: true });
});
process.on('SIGINT', () => process.exit(130));

const environment = { PATH: process.env.PATH, HOME: dir, LANG: 'C.UTF-8' };
const MINUTES = 10;

// Runs a program for at most MINUTES; resolves to its output and exit status.
function run(file, args, options) {
  return new Promise((resolve) => {
    const child = spawn(file, args, { stdio: ['ignore', 'pipe', 'pipe'], ...options });
    let out = '';
    children.push(child);
    const timer = setTimeout(() => child.kill('SIGKILL'), MINUTES * 60000);
    for (const stream of [child.stdout, child.stderr]) stream.setEncoding('utf8').on('data', (piece) => (out += piece));
    child.on('error', (err) => resolve({ status: -1, out: err.message }));
    child.on('close', (status, signal) => {
      clearTimeout(timer);
      resolve({ status: status ?? signal, out });
    });
  });
}

// ---- the server

// The demo model with a longer context: agents describe their tools in tens of thousands of tokens.
function demoModel() {
  const bytes = fs.readFileSync(new URL('../../assets/demo.gguf', import.meta.url));
  const name = 'llama.context_length';
  bytes.writeUInt32LE(131072, bytes.indexOf(name) + name.length + 4);
  const file = path.join(dir, 'demo.gguf');
  fs.writeFileSync(file, bytes);
  return file;
}

async function serve() {
  const model = process.env.KIN_AGENT_MODEL ?? demoModel();
  const child = spawn(kin, ['serve', model, '--port', '0', '--ctx', '65536', '--metrics', '--n-predict', '400', '--seed', '1'], { env: environment, stdio: ['ignore', 'ignore', 'pipe'] });
  children.push(child);
  return new Promise((resolve, reject) => {
    let log = '';
    child.stderr.setEncoding('utf8').on('data', (piece) => {
      log += piece;
      const found = /serving .* at (http:\/\/\S+)/.exec(log);
      if (found) resolve({ child, url: new URL(found[1]) });
    });
    child.on('close', (status) => reject(new Error(`kin serve ended with ${status}: ${log}`)));
  });
}

// ---- the proxy, which sets tool_choice and records the traffic

function nameOf(tool) {
  return tool.function?.name ?? tool.name;
}

// Changes only tool_choice. Requests without tools (opencode asks for a title) are passed on unchanged.
function choose(body, wanted, seen) {
  if (!body.tools?.length || process.env.KIN_AGENT_MODEL) return;
  const isFirst = !seen.some((other) => other.sent.tools?.length);
  if (!isFirst) body.tool_choice = 'none';
  else if ('input' in body) body.tool_choice = { type: 'function', name: wanted };
  else body.tool_choice = { type: 'function', function: { name: wanted } };
}

function proxy(target, wanted, seen) {
  const server = http.createServer(async (from, to) => {
    let text = '';
    for await (const piece of from.setEncoding('utf8')) text += piece;
    const exchange = { path: from.url, sent: text ? JSON.parse(text) : {}, status: 0, type: '', got: '' };
    if (text) choose(exchange.sent, wanted, seen);
    if (from.method === 'POST') seen.push(exchange);
    const body = text ? JSON.stringify(exchange.sent) : '';
    const headers = { ...from.headers, host: target.host, 'content-length': Buffer.byteLength(body) };
    const request = http.request(target, { path: from.url, method: from.method, headers }, (response) => {
      exchange.status = response.statusCode;
      exchange.type = response.headers['content-type'] ?? '';
      to.writeHead(response.statusCode, response.headers);
      response.on('data', (piece) => (exchange.got += piece.toString('utf8')));
      response.pipe(to);
    });
    request.on('error', () => to.destroy());
    to.on('close', () => request.destroy());
    request.end(body);
  });
  return new Promise((resolve) => server.listen(0, '127.0.0.1', () => resolve({ server, base: `http://127.0.0.1:${server.address().port}/v1` })));
}

// ---- the agents

const task = 'Look at the files here and say what they are.';
const agents = {
  // The tool 'glob' finds files by name.
  opencode: { wanted: 'glob', command: (base, work) => {
    const config = { $schema: 'https://opencode.ai/config.json', autoupdate: false, share: 'disabled',
      provider: { kin: { npm: '@ai-sdk/openai-compatible', name: 'kin', options: { baseURL: base, apiKey: 'none' }, models: { demo: { name: 'demo', limit: { context: 65536, output: 400 } } } } } };
    fs.writeFileSync(path.join(work, 'opencode.json'), JSON.stringify(config));
    return ['run', '--model', 'kin/demo', '--format', 'json', task];
  } },
  // The tool 'get_goal' has no arguments and changes nothing.
  codex: { wanted: 'get_goal', command: (base) => ['exec', '--skip-git-repo-check', '--sandbox', 'read-only', '--json', '-m', 'demo',
    '-c', 'model_provider="kin"', '-c', `model_providers.kin={name="kin", base_url="${base}", wire_api="responses"}`, task] },
};

const hasResult = (sent) => JSON.stringify(sent.messages ?? sent.input ?? '').match(/"role":"tool"|"type":"function_call_output"/) !== null;
// Ignores the list of tools, which the responses repeat.
const calls = (got, name) => new RegExp(`"tool_calls":\\[[^\\]]*"name":"${name}"|"type":"function_call"[^}]*"name":"${name}"`).test(got);
const isWhole = (x) => x.status === 200 && x.type.startsWith('text/event-stream') && /data: \[DONE\]|"type":"response\.(completed|incomplete)"/.test(x.got);

async function tryAgent(name, program, kinUrl) {
  const { wanted, command } = agents[name], seen = [], failures = [];
  const work = path.join(dir, name);
  fs.mkdirSync(work);
  fs.writeFileSync(path.join(work, 'story.txt'), 'One day a fox went up the hill.\n');
  const { server, base } = await proxy(kinUrl, wanted, seen);
  const begun = Date.now();
  const { status, out } = await run(program, command(base, work), { cwd: work, env: environment });
  server.close();
  server.closeAllConnections();
  const expect = (holds, what) => holds || failures.push(what);
  const called = seen.filter((x) => calls(x.got, wanted)).length, told = seen.filter((x) => hasResult(x.sent)).length;
  expect(status === 0, `it ended with ${status}`);
  expect(seen.length > 0 && seen.every(isWhole), `answers: ${seen.map((x) => `${x.path} ${x.status} ${x.type}`).join(', ')}`);
  if (!process.env.KIN_AGENT_MODEL) {
    expect(called > 0, `${wanted} was not called`);
    expect(told > 0, 'no request had the result of a tool');
  }
  console.log(`${failures.length ? 'not ok' : 'ok'} - ${name}: ${seen.length} requests in ${((Date.now() - begun) / 1000).toFixed(1)} s, ${called} call(s) of ${wanted}, ${told} with a result`);
  if (failures.length) console.log(`    ${failures.join('\n    ')}\n    ${out.slice(-3000)}`);
  if (process.env.KIN_AGENT_TRACE) fs.writeFileSync(`${process.env.KIN_AGENT_TRACE}.${name}`, JSON.stringify({ seen, out }, null, 1));
  return failures.length === 0;
}

const programOf = (name) => [folder, path.dirname(new URL(import.meta.url).pathname)].map((at) => path.join(at, 'node_modules', '.bin', name)).find((file) => fs.existsSync(file));
const chosen = Object.keys(agents).filter((name) => (!which || name === which) && programOf(name));
if (chosen.length === 0) {
  console.log('skipped: npm install opencode-ai @openai/codex');
  process.exit(77);
}
const { child, url } = await serve();
let n_passed = 0;
for (const name of chosen) n_passed += await tryAgent(name, programOf(name), url);
const metrics = await (await fetch(new URL('/metrics', url))).text();
console.log(metrics.split('\n').filter((line) => /^(llamacpp:(prompt_tokens|tokens_predicted)_total|kin:requests_\w+_total) /.test(line)).join('\n'));
child.kill('SIGTERM');
await new Promise((resolve) => child.on('close', resolve));
console.log(`${n_passed} passed, ${chosen.length - n_passed} failed`);
process.exit(n_passed === chosen.length && child.exitCode === 0 ? 0 : 1);
