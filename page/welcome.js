// Shown before a conversation has begun.

import { h } from './dom.js';

// Suggestions that suit the demo model; and other models.
const STORIES = ['Tell me a story about a brave little dragon.', 'Tell me a story about a girl named Mia and a ball.', 'Tell me a story about two good friends.', 'What can you do?'];
const STARTERS = ['Tell me a story about a brave little dragon.', 'Explain how a rainbow is made, in three sentences.', 'Write a haiku about the sea.', 'Compare tea and coffee in a table.'];

/** send(text): called when a suggestion was chosen. */
export const drawWelcome = (isDemo, send) =>
  h('div', { class: 'empty' }, h('h1', {}, 'What shall we talk about?'),
    h('p', {}, 'The model runs on your own machines. Nothing you write leaves them.'),
    h('div', { class: 'starters' }, (isDemo ? STORIES : STARTERS).map((text) => h('button', { type: 'button', class: 'starter', onclick: () => send(text) }, text))));
