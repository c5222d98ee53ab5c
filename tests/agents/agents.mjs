// Coding agents from npm, unchanged, against kin serve: each works through a loop of five tool calls, once with a model of each format in
// formats.mjs. Nothing but kin is reached; the agents need node 22, which is installed with them.
//
//   npm install --prefix tests/agents                        (1.8 GB)
//   node tests/agents/agents.mjs PATH_TO_KIN_SCRIPTED [AGENT [FORMAT]]
//
// The model's bytes come from this script (tests/scripted_model.c); all else is kin. The agent reads a file, writes one, edits it, runs a
// command and reads again. Checked: the tools have acted; each prompt that kin rendered has the result of the last call, and all earlier
// calls as the model wrote them; all answers are 200; the agent prints the last answer and ends with 0. KIN_AGENT_TRACE=FOLDER keeps the
// requests, answers, prompts and outputs there, KIN_AGENTS=FOLDER is where the agents are installed. Skipped (77) if none is.
import { spawn } from 'node:child_process';
import fs from 'node:fs';
import http from 'node:http';
import os from 'node:os';
import path from 'node:path';
import process from 'node:process';
import { formats } from './formats.mjs';
import { MADE, programs } from './programs.mjs';

const [kin, onlyAgent = '', onlyFormat = ''] = process.argv.slice(2);
if (!kin) {
  console.error('usage: node agents.mjs PATH_TO_KIN_SCRIPTED [AGENT [FORMAT]]');
  process.exit(2);
}
const here = path.dirname(new URL(import.meta.url).pathname);
const bin = path.join(process.env.KIN_AGENTS ?? here, 'node_modules', '.bin');
const dir = fs.mkdtempSync(path.join(os.tmpdir(), 'kin-agents-'));
const trace = process.env.KIN_AGENT_TRACE;
const LIMIT_MS = Number(process.env.KIN_AGENT_SECONDS ?? 120) * 1000;
const TASK = 'Read the file notes.txt, then do what it says.';
const children = new Set();
process.on('exit', () => {
  for (const child of children) killGroup(child);
  fs.rmSync(dir, { recursive: true, force: true });
});
process.on('SIGINT', () => process.exit(130));

function killGroup(child) {
  try {
    process.kill(-child.pid, 'SIGKILL');
  } catch {
    // It has ended.
  }
}

// Starts a program in a group of its own, which ends with it.
function start(file, args, options) {
  const child = spawn(file, args, { detached: true, ...options });
  children.add(child);
  child.on('close', () => {
    killGroup(child);
    children.delete(child);
  });
  return child;
}

function run(file, args, options) {
  return new Promise((resolve) => {
    const child = start(file, args, { stdio: ['ignore', 'pipe', 'pipe'], ...options });
    let out = '', late = false;
    const timer = setTimeout(() => {
      late = true;
      killGroup(child);
    }, LIMIT_MS);
    for (const stream of [child.stdout, child.stderr]) stream.setEncoding('utf8').on('data', (piece) => (out += piece));
    child.on('error', (err) => resolve({ status: err.message, out }));
    child.on('exit', () => setTimeout(() => killGroup(child), 500)); // what it left in the background holds its output open
    child.on('close', (status, signal) => {
      clearTimeout(timer);
      resolve({ status: late ? `nothing: it was killed after ${LIMIT_MS / 1000} s` : (status ?? signal), out });
    });
  });
}

// ---- the server and its script

// Answers kin's questions for replies: reply(prompt) returns the text.
function answerOn(socket, reply) {
  let bytes = Buffer.alloc(0);
  socket.on('data', (piece) => {
    bytes = Buffer.concat([bytes, piece]);
    if (bytes.length < 4 || bytes.length < 4 + bytes.readUInt32LE(0)) return;
    const text = Buffer.from(reply(bytes.toString('utf8', 4)), 'utf8'), length = Buffer.alloc(4);
    bytes = Buffer.alloc(0);
    length.writeUInt32LE(text.length);
    socket.write(Buffer.concat([length, text]));
  });
  socket.on('error', () => {});
}

// The demo model with a longer context.
function modelFile() {
  const bytes = fs.readFileSync(path.join(here, '../../assets/demo.gguf'));
  const name = 'llama.context_length';
  bytes.writeUInt32LE(1 << 18, bytes.indexOf(name) + name.length + 4);
  const file = path.join(dir, 'scripted.gguf');
  fs.writeFileSync(file, bytes);
  return file;
}

function serve(format, reply) {
  const template = path.join(dir, 'template.jinja');
  fs.writeFileSync(template, format.template);
  const args = ['serve', modelFile(), '--chat-template-file', template, '--alias', 'scripted', '--port', '0', '--ctx', '131072', '-t', '1', '--parallel', '4'];
  const child = start(kin, args, { env: { PATH: process.env.PATH, HOME: dir, SCRIPTED_MARKS: format.marks.join('\n') }, stdio: ['ignore', 'ignore', 'pipe', 'pipe'] });
  answerOn(child.stdio[3], reply);
  return new Promise((resolve, reject) => {
    const server = { child, log: '' };
    child.stderr.setEncoding('utf8').on('data', (piece) => {
      server.log += piece;
      const found = /serving .* at (http:\/\/\S+)/.exec(server.log);
      if (found && !server.url) {
        server.url = new URL(found[1]);
        resolve(server);
      }
    });
    child.on('close', (status) => reject(new Error(`kin serve ended with ${status}: ${server.log}`)));
  });
}

// Passes everything on and keeps it in `seen`.
function record(target, seen) {
  const proxy = http.createServer(async (from, to) => {
    const pieces = [];
    for await (const piece of from) pieces.push(piece);
    const body = Buffer.concat(pieces), exchange = { method: from.method, path: from.url, headers: from.headers, sent: body.toString('utf8'), status: 0, got: '' };
    seen.push(exchange);
    const request = http.request(target, { path: from.url, method: from.method, headers: { ...from.headers, host: target.host } }, (response) => {
      exchange.status = response.statusCode;
      to.writeHead(response.statusCode, response.headers);
      response.on('data', (piece) => (exchange.got += piece.toString('utf8')));
      response.pipe(to);
    });
    request.on('error', () => to.destroy());
    to.on('close', () => request.destroy());
    request.end(body);
  });
  return new Promise((resolve) => proxy.listen(0, '127.0.0.1', () => resolve({ proxy, url: `http://127.0.0.1:${proxy.address().port}` })));
}

// ---- a loop

// The model of one loop: a state and what was wrong.
function scripted(format, steps, last) {
  const model = { at: 0, prompts: [], faults: [] };
  const expect = (holds, what) => holds || model.faults.push(what);
  model.reply = (prompt) => {
    model.prompts.push(prompt);
    if (!prompt.includes(TASK) || !format.hasTools(prompt)) return format.answer('A title', 'Short.', prompt);
    const before = steps.slice(0, model.at), results = format.results(prompt);
    if (before.length > 0) {
      expect(results.length === before.length, `prompt ${model.at} has ${results.length} results`);
      expect(results.at(-1)?.includes(before.at(-1).gives), `the result of ${before.at(-1).name} is not "${before.at(-1).gives}": ${results.at(-1)?.slice(0, 300)}`);
    }
    for (const call of before) expect(prompt.includes(format.rendered({ ...call, arguments: call.sent })), `prompt ${model.at} has no call of ${call.name} as the model wrote it`);
    const step = steps[model.at++];
    return step ? format.calls(step, `Step ${model.at}.`, prompt) : format.answer(last, 'All is done.', prompt);
  };
  return model;
}

const WORD = 'pelican', LAST = `It is done: ${WORD}.`;

async function loop(name, format, current, url) {
  const program = programs[name], home = path.join(dir, 'home'), work = path.join(dir, 'work'), seen = [];
  for (const folder of [home, work]) {
    fs.rmSync(folder, { recursive: true, force: true });
    fs.mkdirSync(folder);
  }
  fs.writeFileSync(path.join(work, 'notes.txt'), `Write the word ${WORD} to made.txt.\n`);
  const steps = (program.steps(work)).map((step, index) => ({ says: `Now step ${index + 1}.`, index, ...step }));
  const model = (current.model = scripted(format, steps, LAST));
  const { proxy, url: base } = await record(url, seen);
  const { before, args, env } = program.start({ url: base, home, work, task: TASK });
  const options = { cwd: work, env: { PATH: `${bin}:${process.env.PATH}`, HOME: home, LANG: 'C.UTF-8', NO_COLOR: '1', ...env } };
  const begun = Date.now(), file = path.join(bin, name);
  if (before) await run(file, before, options);
  const { status, out } = await run(file, args, options);
  proxy.close();
  proxy.closeAllConnections();
  const faults = [...model.faults];
  const expect = (holds, what) => holds || faults.push(what);
  const made = path.join(work, 'made.txt');
  expect(status === 0, `it ended with ${status}`);
  expect(fs.existsSync(made) && fs.readFileSync(made, 'utf8') === MADE, `made.txt: ${fs.existsSync(made) ? fs.readFileSync(made, 'utf8') : 'not there'}`);
  expect(model.at === steps.length + 1, `${model.at} of ${steps.length + 1} prompts`);
  expect(out.includes(LAST), 'it did not print the last answer');
  for (const x of seen) expect(x.status === 200, `${x.method} ${x.path} ${x.status} ${x.got.slice(0, 400)}`);
  console.log(`${faults.length ? 'not ok' : 'ok'} - ${name} with ${format.name}: ${seen.length} requests in ${((Date.now() - begun) / 1000).toFixed(1)} s`);
  if (faults.length) console.log(`    ${faults.join('\n    ')}\n    ${out.slice(-1500)}`);
  if (trace) fs.writeFileSync(path.join(trace, `${name}.${format.name}.json`), JSON.stringify({ seen, prompts: model.prompts, out }, null, 1));
  return faults.length === 0;
}

const isKnown = (name, known) => !name || known.includes(name) || console.error(`'${name}' is none of ${known.join(', ')}`);
if (!isKnown(onlyAgent, Object.keys(programs)) || !isKnown(onlyFormat, formats.map((f) => f.name))) process.exit(2);
const names = Object.keys(programs).filter((name) => (!onlyAgent || name === onlyAgent) && fs.existsSync(path.join(bin, name)));
if (names.length === 0) {
  console.log('skipped: npm install --prefix tests/agents');
  process.exit(77);
}
let n_passed = 0, n_failed = 0;
for (const format of formats.filter((f) => !onlyFormat || f.name === onlyFormat)) {
  const current = {};
  const server = await serve(format, (prompt) => current.model.reply(prompt));
  for (const name of names) (await loop(name, format, current, server.url)) ? n_passed++ : n_failed++;
  const log = server.log.split('\n').filter((line) => /grammar|format|template/.test(line)).join('\n    ');
  if (log) console.log(`    ${log}`);
  killGroup(server.child);
}
console.log(`${n_passed} passed, ${n_failed} failed`);
process.exit(n_failed === 0 && n_passed > 0 ? 0 : 1);
