// A card for each device: its layers within the model, its memory, its activity.

import { h } from './dom.js';
import { bytes, ms, plural } from './format.js';
import { groupOf, layersOf, shareOf, stopsOf } from './ring.js';

const STATES = { computing: 'computing', waiting: 'ready', joined: 'joined', preparing: 'preparing', greeted: 'joining', failed: 'failed', lost: 'lost', left: 'left' };

// "20 on the GPU", "20 on the GPU, the experts of 12 on the CPU"; empty if there are none.
const onGpu = (device) => (device.gpu_layers ? `${device.gpu_layers} on the GPU${device.cpu_moe_layers ? `, the experts of ${device.cpu_moe_layers} on the CPU` : ''}` : '');

function layerStrip(device, nLayer) {
  const cells = Array.from({ length: nLayer }, () => 'cell');
  for (const w of device.windows ?? [])
    for (let i = w.layer_begin; i < w.layer_end && i < nLayer; i++) cells[i] = i >= w.layer_end - (w.n_gpu ?? 0) ? 'cell own gpu' : 'cell own';
  const what = device.layers ? `layers ${[layersOf(device), onGpu(device)].filter(Boolean).join(', ')}` : 'no layers';
  return h('div', { class: 'strip', role: 'img', 'aria-label': what, title: what }, cells.map((c) => h('i', { class: c })));
}

// Shares of the last second; disk reads overlap with the others.
function shares(device) {
  const parts = [['compute', device.compute_share, 'computing'], ['wait', device.wait_share, 'waiting'], ['disk', device.disk_share, 'reading from disk']];
  return parts.filter(([, v]) => v > 0.005).map(([, v, word]) => `${Math.round(100 * v)} % ${word}`).join(', ');
}

function line(name, value, extra) {
  return value ? h('div', { class: 'line' }, h('span', {}, name), h('span', {}, value), extra) : null;
}

function meter(share, label) {
  const i = h('i');
  i.style.width = `${Math.round(100 * Math.min(1, share))}%`;
  if (share > 0.9) i.className = 'high';
  return h('span', { class: 'bar', role: 'img', 'aria-label': label }, i);
}

function memory(device) {
  const weights = device.resident_bytes || device.weights_bytes || 0, cache = device.kv_bytes ?? 0;
  const of = device.memory_planned || device.memory_lent || 0, used = weights + cache;
  const words = `${bytes(weights)} weights, ${bytes(cache)} context`;
  return [
    line('Memory', of ? `${words}, of ${bytes(of)}` : words, of ? meter(used / of, `${Math.round((100 * used) / of)} % of the memory it offers`) : null),
    device.memory_free ? line('Free memory', device.memory_total ? `${bytes(device.memory_free)} of ${bytes(device.memory_total)}` : bytes(device.memory_free), device.memory_total ? meter(1 - device.memory_free / device.memory_total, 'memory in use') : null) : null,
  ];
}

function streamed(planned) {
  return planned?.streamed_bytes > 0 ? line('From disk', `${bytes(planned.streamed_bytes)} for every token`) : null;
}

// The device's layers, its share of each, and the devices that share them.
function layers(device, stop, plan) {
  if (!device.layers) return device.role === 'head' ? 'none: embedding and output' : 'none: it only relays';
  const share = shareOf(groupOf(plan, stop), device), others = stop.filter((d) => d !== device).map((d) => d.name);
  return `${layersOf(device)}${device.gpu_layers ? ` (${onGpu(device)})` : ''}${others.length ? `, ${share ? `${share} of each, ` : ''}shared with ${others.join(', ')}` : ''}`;
}

function card(device, stop, nLayer, plan, index, isAlone) {
  const planned = plan?.devices?.find((p) => p.name === device.name);
  const isGone = ['lost', 'failed', 'left'].includes(device.state);
  return h('article', { class: `card c${index % 8}${isGone ? ' gone' : ''}`, 'aria-label': device.name },
    h('header', {}, h('span', { class: `dot ${device.state}` }), h('h3', {}, device.name), device.role === 'head' && !isAlone && h('span', { class: 'tag' }, 'head'), device.os === 'browser' && h('span', { class: 'tag' }, device.gpu ? 'browser, WebGPU' : 'browser'), h('span', { class: 'state' }, STATES[device.state] ?? device.state)),
    nLayer > 0 && layerStrip(device, nLayer),
    device.stage > 0 && line('Layers', layers(device, stop, plan)),
    device.stage > 0 && memory(device),
    streamed(planned),
    line('Last second', shares(device)),
    line('To the next', device.rtt_ms ? ms(device.rtt_ms) : ''),
    line('Processor', [device.cpu, device.threads && plural(device.threads, 'thread'), device.gpu].filter(Boolean).join(', ')),
    device.doing && device.role !== 'head' && !['computing', 'waiting'].includes(device.state) && h('p', { class: 'doing' }, device.doing),
    device.last_error && h('p', { class: 'doing bad' }, device.last_error));
}

export function drawCards(devices, nLayer, plan, index) {
  if (!devices.length) return h('p', { class: 'quiet' }, 'None yet.');
  const stops = stopsOf(devices.filter((d) => d.stage > 0));
  return devices.map((d) => card(d, stops.find((stop) => stop.includes(d)) ?? [d], nLayer, plan, index(d), devices.length === 1));
}
