// A minimal WebSocket client for tests in node: whole messages, no extensions.
import { randomBytes } from 'node:crypto';
import { connect } from 'node:net';

const TEXT = 1, BINARY = 2, CLOSE = 8;

function frame(opcode, payload) {
  const n = payload.length, header = Buffer.alloc(n < 126 ? 2 : n < 65536 ? 4 : 10);
  header[0] = 0x80 | opcode;
  header[1] = 0x80 | (n < 126 ? n : n < 65536 ? 126 : 127);
  if (header.length === 4) header.writeUInt16BE(n, 2);
  if (header.length === 10) header.writeBigUInt64BE(BigInt(n), 2);
  return Buffer.concat([header, Buffer.alloc(4), payload]); // a mask of zeros
}

/** Opens a WebSocket. take(message): called with a string or an ArrayBuffer. ended(): called when the connection has ended. */
export function openWebSocket(url, take, ended) {
  const { hostname, port, pathname, host } = new URL(url);
  const socket = connect(Number(port), hostname);
  let bytes = Buffer.alloc(0), isOpen = false;
  const early = []; // messages sent before the other side has answered, which Chromium does not read
  socket.write(`GET ${pathname} HTTP/1.1\r\nHost: ${host}\r\nOrigin: http://${host}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: ${randomBytes(16).toString('base64')}\r\n\r\n`);
  function takeHeader() {
    const end = bytes.indexOf('\r\n\r\n');
    if (end < 0) return false;
    if (!bytes.toString('latin1').startsWith('HTTP/1.1 101')) throw new Error(bytes.toString());
    bytes = bytes.subarray(end + 4);
    for (const one of early) socket.write(one);
    return (isOpen = true);
  }
  function takeFrame() {
    if (bytes.length < 2) return false;
    const short = bytes[1], at = short < 126 ? 2 : short === 126 ? 4 : 10;
    if (bytes.length < at) return false;
    const n = short < 126 ? short : short === 126 ? bytes.readUInt16BE(2) : Number(bytes.readBigUInt64BE(2));
    if (bytes.length < at + n) return false;
    const opcode = bytes[0] & 15, payload = bytes.subarray(at, at + n);
    bytes = bytes.subarray(at + n);
    if (opcode === TEXT) take(payload.toString());
    if (opcode === BINARY) take(new Uint8Array(payload).buffer);
    if (opcode === CLOSE) socket.end();
    return true;
  }
  socket.on('data', (more) => {
    bytes = Buffer.concat([bytes, more]);
    while (isOpen ? takeFrame() : takeHeader()) { /* the next one */ }
  });
  socket.on('close', ended);
  socket.on('error', () => {});
  function send(m) {
    const one = frame(typeof m === 'string' ? TEXT : BINARY, Buffer.from(m));
    if (isOpen) socket.write(one);
    else early.push(one);
  }
  return { send, close: () => socket.destroy(), get isOpen() { return isOpen; } };
}
