// The worker that talks to the head. It computes nothing, so it answers at once, even while the other worker
// computes and while the page is hidden: browsers throttle timers of hidden pages, but not messages.
import { Chunks } from './chunks.js';
import { ECHO, readFrame } from './frames.js';

const REST_MS = 20; // between echoes: about a ring's time per token

const here = (path) => new URL(path, import.meta.url);

let computer, socket, wanted, chunks;

function say(message) {
  if (socket?.readyState === WebSocket.OPEN) socket.send(message instanceof ArrayBuffer ? message : JSON.stringify(message));
}

// lost: reconnect soon, because the head may return. gpu: 'off' if the GPU caused it.
function end(reason, lost = false, gpu = undefined) {
  computer?.terminate();
  computer = null;
  if (socket) socket.onclose = null;
  socket?.close();
  socket = null;
  if (wanted) postMessage({ type: 'ended', reason, lost, gpu });
  wanted = null;
}

// Runs while the other worker computes.
async function fetchAhead(m) {
  chunks ??= new Chunks(here('../chunks/'), wanted.cap);
  const isHere = await chunks.fetchAhead(m).catch(() => false);
  say({ type: 'ahead', ticket: m.ticket, here: isHere });
}

function onText(m) {
  if (m.type === 'ping') return say({ type: 'pong' });
  if (m.type === 'ahead') return fetchAhead(m);
  if (m.type === 'weights') return computer.postMessage(m);
  if (m.type === 'refused') return end(m.reason, m.again);
  postMessage(m);
}

function connect({ unit, threads, gpu, rates }) {
  const url = here('../ws');
  url.protocol = url.protocol.replace('http', 'ws');
  socket = new WebSocket(url);
  socket.binaryType = 'arraybuffer';
  socket.onopen = () => say({ type: 'hello', code: wanted.code, name: wanted.name, cpu: `${wanted.browser}, ${unit}`, gpu, threads, memory: wanted.memory, rates });
  socket.onmessage = ({ data }) => (typeof data === 'string' ? onText(JSON.parse(data)) : computer.postMessage(data, [data]));
  socket.onclose = () => end('The connection to the head was closed.', true);
}

function sendFrame(frame) {
  say(frame);
  if (readFrame(frame).type === ECHO) setTimeout(say, REST_MS, { type: 'rested' });
}

function onComputer({ data }) {
  if (data instanceof ArrayBuffer) return sendFrame(data);
  if (data.type === 'broken') return end(data.reason);
  if (data.type === 'no-gpu') return end(`The GPU failed: ${data.reason}.`, true, 'off');
  if (data.type === 'engine') connect(data);
  if (data.type === 'progress') say({ type: 'progress', done: data.done, total: data.total });
  postMessage(data);
}

function join(options) {
  wanted = options;
  computer = new Worker(here('./computer.js'), { type: 'module' });
  computer.onmessage = onComputer;
  computer.onerror = (e) => end(e.message || 'Cannot start the engine.', true); // the scripts come from the head
  computer.postMessage({ type: 'start', threads: options.threads, cap: options.cap, rates: options.rates, gpu: options.gpu });
}

onmessage = ({ data }) => {
  if (data.type === 'join') return join(data);
  say({ type: 'leave' });
  end('This tab has left.');
};
