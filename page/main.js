// The page: its bar, its two views, and their connections.

import { origin } from './api.js';
import { Chat } from './chat.js';
import { ClusterView } from './cluster.js';
import { h, iconButton, toast } from './dom.js';
import { bytes, sentence } from './format.js';
import { openPull } from './pull.js';
import { chooseModel, checkNow, server, untilReady } from './server.js';
import { openSettings } from './settings.js';
import { Sidebar } from './sidebar.js';
import { local, session } from './storage.js';
import { hearTabs, listConversations, openStore } from './store.js';

const THEMES = [['auto', 'The system’s colours'], ['light', 'Light colours'], ['dark', 'Dark colours']];
const $ = (id) => document.getElementById(id);

const chat = new Chat($('chat'), () => sidebar.draw().then(() => sidebar.select(chat.conversation)));
const sidebar = new Sidebar($('sidebar'), { open: (c) => (showView('chat'), chat.open(c)), changed: (list) => chat.reload(list) });
const cluster = new ClusterView($('cluster'));

// ---- the bar

const tabs = ['chat', 'cluster'].map((name) => h('button', { type: 'button', 'data-view': name, onclick: () => showView(name) }, name === 'chat' ? 'Chat' : 'Cluster'));
const modelBox = h('div', { class: 'model' });
const pill = h('div', { class: 'pill', role: 'status' });
const themeButton = iconButton('auto', '', nextTheme);

$('bar').append(
  iconButton('menu', 'Conversations', () => sidebar.show(true), { class: 'icon-button only-narrow' }),
  h('div', { class: 'tabs', role: 'group', 'aria-label': 'View' }, tabs), modelBox, pill, h('span', { class: 'spring' }),
  themeButton, iconButton('settings', 'Settings', () => openSettings(() => untilReady(), () => openPull(chooseFetchedModel))),
);

function showView(name) {
  for (const view of ['chat', 'cluster']) $(view).hidden = view !== name;
  for (const tab of tabs) tab.setAttribute('aria-pressed', String(tab.dataset.view === name));
  cluster.show(name === 'cluster');
  if (location.hash.slice(1) !== name) history.replaceState(null, '', name === 'chat' ? location.pathname + location.search : '#cluster');
  $('skip').textContent = name === 'chat' ? 'Skip to the conversation' : 'Skip to the cluster';
  $('skip').href = `#${name}`;
}

// "qwen3-8b · 4.7 GiB, loaded"
function wordsOf({ id, meta, status }) {
  const more = [meta?.size > 0 && bytes(meta.size), ['loaded', 'loading'].includes(status?.value) && status.value].filter(Boolean).join(', ');
  return more ? `${id} · ${more}` : id;
}

function drawModel() {
  const { models, model } = server;
  if (models.length > 1) {
    const words = models.map(wordsOf), key = JSON.stringify([words, model]);
    if (modelBox.kinKey === key) return; // the list may be open
    modelBox.kinKey = key;
    modelBox.replaceChildren(h('select', { 'aria-label': 'Model', onchange: (e) => chooseModel(e.target.value) }, models.map((m, i) => h('option', { value: m.id, selected: m.id === model }, words[i]))));
  } else {
    modelBox.kinKey = null;
    modelBox.replaceChildren(model);
  }
}

/** A model was fetched: chooses it. */
async function chooseFetchedModel() {
  const before = new Set(server.models.map((m) => m.id));
  await untilReady();
  const id = server.models.find((m) => !before.has(m.id))?.id;
  if (id) chooseModel(id);
}

function drawPill() {
  const { state, doing } = server;
  const words = { loading: `${sentence(doing) || 'Loading'}${server.progress}`, refused: 'A key is needed' }[state] ?? '';
  pill.className = `pill ${state}`;
  pill.hidden = !words;
  pill.textContent = words;
}

// Shown in one place while the server does not answer; questions wait meanwhile.
const away = h('div', { class: 'away', role: 'status', hidden: true },
  h('div', {}, h('strong', {}, 'The server does not answer'),
    h('p', {}, `kin at ${origin()} was stopped, or this device has lost its network. Messages are queued here and sent when it is back.`)),
  h('button', { type: 'button', class: 'plain', onclick: checkNow }, 'Retry now'));
$('bar').after(away);

server.addEventListener('changed', () => {
  drawModel();
  drawPill();
  away.hidden = server.state !== 'unreachable';
});

// ---- colours

function theme() {
  return document.documentElement.dataset.theme ?? 'auto';
}

function drawTheme() {
  const [name, label] = THEMES.find(([n]) => n === theme());
  const made = iconButton(name === 'auto' ? 'auto' : name === 'light' ? 'sun' : 'moon', label, nextTheme);
  themeButton.replaceChildren(...made.childNodes);
  themeButton.setAttribute('aria-label', label);
  themeButton.title = label;
}

function nextTheme() {
  const next = THEMES[(THEMES.findIndex(([n]) => n === theme()) + 1) % THEMES.length][0];
  if (next === 'auto') delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = next;
  local.set('kin.theme', next);
  drawTheme();
}

// ---- start

addEventListener('keydown', (e) => {
  if (e.ctrlKey && e.shiftKey && e.key.toLowerCase() === 'o') (e.preventDefault(), sidebar.open(null), chat.composer.input.focus());
});
hearTabs(({ conversation, removed }) => (conversation || removed) && sidebar.draw().then(() => sidebar.select(chat.conversation)));
addEventListener('hashchange', () => showView(location.hash === '#cluster' ? 'cluster' : 'chat'));

drawTheme();
drawPill();
showView(location.hash === '#cluster' ? 'cluster' : 'chat');
if (!(await openStore())) toast('This browser stores nothing: conversations are lost when the page is closed.');
await sidebar.draw();
await chat.open(await lastConversation());
sidebar.select(chat.conversation);
untilReady();

/** Returns the conversation that was open before the page was reloaded. */
async function lastConversation() {
  const id = session.get('kin.open');
  return (await listConversations()).find((c) => c.id === id) ?? null;
}

addEventListener('pagehide', () => session.set('kin.open', chat.conversation?.id ?? null));
