// Text files attached to a message: reads them, formats them for the model, and displays them.

import { h, icon, iconButton } from './dom.js';
import { bytes } from './format.js';

const MAX_FILE = 512 << 10; // bytes: about 130,000 tokens, more than most contexts
const MAX_FILES = 10; // per message

// Decodes UTF-8, or UTF-16 with a byte order mark. Throws for anything else.
function decode(data) {
  const [a, b] = data;
  const name = a === 0xff && b === 0xfe ? 'utf-16le' : a === 0xfe && b === 0xff ? 'utf-16be' : 'utf-8';
  const text = new TextDecoder(name, { fatal: true }).decode(data);
  if (text.includes('\0')) throw new TypeError('not a text');
  return text;
}

/** Returns {name, text}. Throws an error with a message for the user if the file is too large or not text. */
export async function readTextFile(file) {
  if (file.size > MAX_FILE) throw new Error(`“${file.name}” is too large: ${bytes(file.size)}, but the limit is ${bytes(MAX_FILE)}.`);
  let data;
  try {
    data = new Uint8Array(await file.arrayBuffer());
  } catch {
    throw new Error(`“${file.name}” could not be read. It may be a folder, or it was moved.`);
  }
  try {
    return { name: file.name, text: decode(data) };
  } catch {
    throw new Error(`“${file.name}” is not a text file. The model reads only text, so images, PDF files and archives cannot be added.`);
  }
}

/** Returns those of `files` that fit beside `there`. say(sentence) is called for each other one. */
export async function readTextFiles(files, there, say) {
  const out = [];
  for (const file of files) {
    if (there.length + out.length === MAX_FILES) {
      say(`A message can have ${MAX_FILES} files; the others were not added.`);
      break;
    }
    try {
      out.push(await readTextFile(file));
    } catch (err) {
      say(err.message);
    }
  }
  return out;
}

/** Returns the message for the model: each file with its name in a fence that its content cannot close, then the text. */
export function withFiles(text, files = []) {
  const parts = files.map((f) => {
    const longest = Math.max(2, ...(f.text.match(/`+/g) ?? []).map((run) => run.length));
    const fence = '`'.repeat(longest + 1);
    return `${f.name}:\n${fence}\n${f.text.replace(/\n?$/, '\n')}${fence}`;
  });
  return [...parts, text].filter(Boolean).join('\n\n');
}

/** Draws the files as a list. remove(file) is optional. */
export function drawFiles(files, remove) {
  return h('ul', { class: 'files', 'aria-label': 'Files' }, files.map((f) => h('li', {}, icon('file'), h('span', { class: 'file-name', title: f.name }, f.name), h('span', { class: 'file-size' }, bytes(new Blob([f.text]).size)),
    remove && iconButton('close', `Remove ${f.name}`, () => remove(f)))));
}

/** Files that are dropped anywhere on the page go to add(files) while `box` is shown: otherwise the browser would open them. */
export function acceptDrops(box, add) {
  const hasFiles = (e) => e.dataTransfer?.types.includes('Files'), mark = (on) => box.classList.toggle('dropping', on);
  addEventListener('dragover', (e) => hasFiles(e) && (e.preventDefault(), mark(true)));
  addEventListener('dragleave', (e) => !e.relatedTarget && mark(false)); // the pointer has left the page
  addEventListener('drop', (e) => {
    if (!hasFiles(e)) return;
    e.preventDefault();
    mark(false);
    if (!box.hidden) add([...e.dataTransfer.files]);
  });
}
