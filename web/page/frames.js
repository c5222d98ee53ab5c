// kin's frames (docs/PROTOCOL.md), as far as a tab uses them: each is one message of its WebSocket.

export const PLAN = 5, READY = 7, FAILED = 8, STEP = 11, ECHO = 12, END = 23, PAGES = 31;

const HEADER = 16, VERSION = 5, MAX_REASON = 1000;
const MAGIC = 0x314e494b; // "KIN1"

// Parses an ArrayBuffer into { type, epoch, payload }; the payload is a view of it.
export function readFrame(buffer) {
  const view = new DataView(buffer);
  if (buffer.byteLength < HEADER || view.getUint32(0, true) !== MAGIC || view.getUint8(4) !== VERSION) throw new Error('the head uses another protocol version; reload this page');
  if (view.getUint32(12, true) !== buffer.byteLength - HEADER) throw new Error('a frame is truncated');
  return { type: view.getUint8(5), epoch: view.getUint32(8, true), payload: new Uint8Array(buffer, HEADER) };
}

export function writeFrame(type, epoch, payload) {
  const bytes = new Uint8Array(HEADER + payload.length), view = new DataView(bytes.buffer);
  view.setUint32(0, MAGIC, true);
  view.setUint8(4, VERSION);
  view.setUint8(5, type);
  view.setUint32(8, epoch, true);
  view.setUint32(12, payload.length, true);
  bytes.set(payload, HEADER);
  return bytes.buffer;
}

// sizes: bytes of KV cache, weights, weights that stay in memory, compute buffers, GPU.
export function writeReady(epoch, sizes) {
  const view = new DataView(new ArrayBuffer(40));
  sizes.forEach((n, i) => view.setBigUint64(8 * i, BigInt(n), true));
  return writeFrame(READY, epoch, new Uint8Array(view.buffer));
}

export function writeFailed(epoch, reason) {
  const clean = reason.replace(/[\u0000-\u001f\u007f-\u009f]/g, ' ').slice(0, MAX_REASON / 4);
  const text = new TextEncoder().encode(clean), stage = new TextEncoder().encode('computing');
  const bytes = new Uint8Array(8 + 2 + stage.length + 2 + text.length), view = new DataView(bytes.buffer);
  view.setUint16(8, stage.length, true);
  bytes.set(stage, 10);
  view.setUint16(10 + stage.length, text.length, true);
  bytes.set(text, 12 + stage.length);
  return writeFrame(FAILED, epoch, bytes);
}
