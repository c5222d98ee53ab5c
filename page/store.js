// Stores conversations in IndexedDB. A conversation is a tree of messages: each has its parent, and `current` is the last message of the
// branch shown. Without IndexedDB (private windows of some browsers) they live as long as the page.

import { session } from './storage.js';

const DB = 'kin', VERSION = 1;
const memory = { conversations: new Map(), messages: new Map() };
let db = null;

const done = (request) => new Promise((yes, no) => ((request.onsuccess = () => yes(request.result)), (request.onerror = () => no(request.error))));

export const newId = () => Array.from(crypto.getRandomValues(new Uint8Array(9)), (b) => (b % 36).toString(36)).join('') + Date.now().toString(36);

/** Id of this tab; it survives a reload of the page. */
export const tab = session.get('kin.tab') ?? newId();
session.set('kin.tab', tab);

// Changes are sent to other tabs: a conversation, a message, or the id of a removed conversation.
const channel = typeof BroadcastChannel === 'function' ? new BroadcastChannel('kin') : null;

/** take({conversation}), take({message}) or take({removed}) is called when another tab has stored or removed it. */
export const hearTabs = (take) => channel?.addEventListener('message', (event) => take(event.data));

const LOST_MS = 5000; // an answer of another tab that was not stored for this long is no longer being generated
export const isElsewhere = (message) => message.state === 'writing' && message.tab !== tab && Date.now() - message.kept < LOST_MS;

export async function openStore() {
  try {
    const request = indexedDB.open(DB, VERSION);
    request.onupgradeneeded = () => {
      request.result.createObjectStore('conversations', { keyPath: 'id' });
      request.result.createObjectStore('messages', { keyPath: 'id' }).createIndex('conversation', 'conversation');
    };
    db = await done(request);
    db.onversionchange = () => db.close();
    return true;
  } catch {
    return false;
  }
}

async function put(store, value) {
  if (!db) return void memory[store].set(value.id, value);
  await done(db.transaction(store, 'readwrite').objectStore(store).put(value));
  channel?.postMessage(store === 'messages' ? { message: value } : { conversation: value });
}

export const putConversation = (conversation) => put('conversations', conversation);
export const putMessage = (message) => put('messages', message);

// When the page is closed, a change of the database may come too late; session storage is synchronous.
const LAST = `kin.last.${tab}`;

/** Stores a message synchronously, until popLast. */
export const putLast = (message) => session.set(LAST, JSON.stringify(message));

/** Returns what putLast has stored, if it is this message. */
export function popLast(id) {
  try {
    const last = JSON.parse(session.get(LAST));
    if (last?.id !== id) return null;
    session.set(LAST, null);
    return last;
  } catch {
    return null;
  }
}

// The draft of a conversation ('' for a new one) with its files: kept per tab, until it is sent.
const draftName = (id) => `kin.draft.${id ?? ''}`;

export const putDraft = (id, draft) => session.set(draftName(id), draft.text || draft.files.length ? JSON.stringify(draft) : null);

export function getDraft(id) {
  try {
    return JSON.parse(session.get(draftName(id))) ?? { text: '', files: [] };
  } catch {
    return { text: '', files: [] };
  }
}

export async function listConversations() {
  const all = db ? await done(db.transaction('conversations').objectStore('conversations').getAll()) : [...memory.conversations.values()];
  return all.sort((a, b) => b.updated - a.updated);
}

export async function listMessages(conversation) {
  const all = db
    ? await done(db.transaction('messages').objectStore('messages').index('conversation').getAll(conversation))
    : [...memory.messages.values()].filter((m) => m.conversation === conversation);
  return all.sort((a, b) => a.created - b.created);
}

export async function removeConversation(id) {
  putDraft(id, { text: '', files: [] });
  const messages = await listMessages(id);
  if (!db) {
    memory.conversations.delete(id);
    for (const m of messages) memory.messages.delete(m.id);
    return;
  }
  const change = db.transaction(['conversations', 'messages'], 'readwrite');
  change.objectStore('conversations').delete(id);
  for (const m of messages) change.objectStore('messages').delete(m.id);
  await new Promise((yes, no) => ((change.oncomplete = yes), (change.onerror = () => no(change.error))));
  channel?.postMessage({ removed: id });
}

// ---- files

const FORMAT = 'kin conversations 1';
const ROLES = ['system', 'user', 'assistant', 'tool'];

export async function exportAll(ids) {
  const conversations = (await listConversations()).filter((c) => !ids || ids.includes(c.id));
  const list = [];
  for (const c of conversations) list.push({ ...c, messages: (await listMessages(c.id)).map(({ conversation, ...m }) => m) });
  return { format: FORMAT, exported: new Date().toISOString(), conversations: list };
}

const text = (value) => (typeof value === 'string' ? value : '');
const readFiles = (files) => (Array.isArray(files) ? files.map((f) => ({ name: text(f?.name), text: text(f?.text) })) : undefined);

// Imported messages get new ids, so that existing ones are kept. Invalid ones are skipped.
function readMessage(m, conversation, ids, i) {
  return {
    id: ids.get(m.id), conversation, parent: ids.get(m.parent) ?? null, role: m.role, content: text(m.content),
    reasoning: text(m.reasoning), created: Number.isFinite(m.created) ? m.created : Date.now() + i,
    state: ['done', 'interrupted', 'error'].includes(m.state) ? m.state : 'done', error: text(m.error) || undefined,
    calls: Array.isArray(m.calls) ? m.calls.map((c) => ({ id: text(c?.id), name: text(c?.name), arguments: text(c?.arguments) })) : undefined,
    files: readFiles(m.files), call: text(m.call) || undefined, model: text(m.model) || undefined, stats: typeof m.stats === 'object' ? m.stats : undefined,
  };
}

export async function importAll(file) {
  if (file?.format !== FORMAT || !Array.isArray(file.conversations)) throw new Error(`not a file of conversations (${FORMAT})`);
  let n = 0;
  for (const c of file.conversations) {
    const messages = (Array.isArray(c?.messages) ? c.messages : []).filter((m) => ROLES.includes(m?.role));
    const ids = new Map(messages.map((m) => [m.id, newId()]));
    const id = newId();
    for (const [i, m] of messages.entries()) await putMessage(readMessage(m, id, ids, i));
    await putConversation({
      id, title: text(c.title) || 'Imported', created: Number.isFinite(c.created) ? c.created : Date.now(),
      updated: Number.isFinite(c.updated) ? c.updated : Date.now(), current: ids.get(c.current) ?? ids.get(messages.at(-1)?.id) ?? null,
    });
    n++;
  }
  return n;
}
