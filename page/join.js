// How a device joins: the command, and the code, which is shown on request.

import { getJson, origin } from './api.js';
import { copyText, h, icon, toast } from './dom.js';

function command(text) {
  const button = h('button', { type: 'button', class: 'copy', 'aria-label': `Copy: ${text}`, onclick: async () => (await copyText(text), toast('Copied.')) }, icon('copy'));
  return h('div', { class: 'command' }, h('code', {}, text), button);
}

function codeBox() {
  const box = h('div', { class: 'code-box' });
  const show = h('button', { type: 'button', class: 'plain', onclick: ask }, icon('key'), 'Show the code');
  async function ask() {
    try {
      const { code } = await getJson('kin/code');
      box.replaceChildren(h('output', { class: 'pairing', 'aria-label': `The code is ${code}` }, code), h('p', { class: 'quiet' }, 'Each device asks for it once.'));
    } catch (err) {
      box.replaceChildren(h('p', { class: 'problem', role: 'alert' }, err.message), show);
    }
  }
  box.append(show);
  return box;
}

const isLocal = (host) => /^(localhost|127\.|\[::1\])/.test(host);

/** Returns "kin join 192.168.1.5:7577" with an address that reaches the head from elsewhere. `origin`: the page's own. */
export function joinAt(head, from = origin()) {
  const host = new URL(from).hostname, own = isLocal(host) ? (head?.address ?? 'ADDRESS') : host.replace(/^\[|\]$/g, '');
  return `kin join ${own.includes(':') ? `[${own}]` : own}:${head?.port ?? 'PORT'}`;
}

// Browsers allow computing only in secure contexts.
function browserHint() {
  const { protocol, hostname } = new URL(origin()), link = h('a', { href: `${origin()}/join` }, `${origin()}/join`);
  if (protocol === 'https:') return h('p', { class: 'quiet' }, 'On a phone, or any device with a browser, open ', link, ' and enter the code.');
  const words = (...names) => names.map((name, i) => [i > 0 ? ', ' : '', h('code', {}, name)]);
  if (!isLocal(hostname)) return h('p', { class: 'quiet' }, 'Browsers can join only through encrypted pages. For phones, start kin with ', words('--https'), '.');
  return h('p', { class: 'quiet' }, 'In a browser on this machine, open ', link, '. For phones, start kin with ', words('--host 0.0.0.0', '--https', '--api-key-file FILE'), '.');
}

/** Draws the instructions, for a server with or without a cluster. */
export function drawJoin(state) {
  if (state.has_others === undefined) return h('p', { class: 'quiet' }, 'Available once the model is loaded.');
  if (!state.has_others) {
    return [h('p', {}, 'This server computes on one machine. More devices can run models larger than its memory, and run large models faster. To allow them, start it with:'),
      command(`kin serve --cluster -m ${state.model === 'demo' ? 'MODEL.gguf' : `${state.model}.gguf`}`), h('p', { class: 'quiet' }, 'It prints a code. Then run on each other machine:'), command('kin join')];
  }
  const { head } = state;
  const begin = head?.hidden
    ? h('li', {}, 'On the other machine:', command(joinAt(head)), h('p', { class: 'quiet' }, 'The address is needed because this head was started with --hidden, so devices cannot find it automatically.'))
    : h('li', {}, 'On the other machine, on the same network:', command('kin join'), head && h('p', { class: 'quiet' }, 'If it does not find this machine automatically: ', h('code', {}, joinAt(head))));
  return [h('ol', { class: 'steps' }, begin, h('li', {}, 'Enter the code:', codeBox()), h('li', {}, 'The device fetches its layers over the network and then appears here.')), browserHint()];
}
