// The sidebar with conversations: opens, renames, removes, exports and imports them. On a phone it overlays the page.

import { h, icon, iconButton, openDialog, toast } from './dom.js';
import { ago } from './format.js';
import * as store from './store.js';

export class Sidebar {
  /** actions: open(conversation or null), changed(conversations). */
  constructor(box, actions) {
    this.box = box;
    this.actions = actions;
    this.current = null;
    this.list = h('div', { class: 'conversations' });
    const pick = h('input', { type: 'file', accept: 'application/json,.json', class: 'off-screen', tabindex: '-1', 'aria-label': 'File of conversations', onchange: () => this.readFile(pick) });
    box.append(
      h('div', { class: 'brand' }, this.logo(), h('span', {}, 'kin'), iconButton('close', 'Close the list', () => this.show(false), { class: 'icon-button only-narrow' })),
      h('button', { type: 'button', class: 'new', onclick: () => this.open(null) }, icon('plus'), 'New chat'),
      this.list,
      h('div', { class: 'side-foot' }, h('button', { type: 'button', class: 'side-button', onclick: () => pick.click() }, icon('upload'), 'Import'), h('button', { type: 'button', class: 'side-button', onclick: () => this.save() }, icon('download'), 'Export'), pick),
    );
    document.getElementById('scrim').addEventListener('click', () => this.show(false));
    box.addEventListener('keydown', (e) => e.key === 'Escape' && this.show(false));
  }

  logo() {
    return h('span', { class: 'logo', 'aria-hidden': 'true' }, h('i'), h('i'), h('i'));
  }

  show(on) {
    document.body.classList.toggle('with-list', on);
    document.getElementById('scrim').hidden = !on;
    if (on) this.box.querySelector('.new').focus();
  }

  open(conversation) {
    this.show(false);
    this.select(conversation);
    this.actions.open(conversation);
  }

  select(conversation) {
    this.current = conversation?.id ?? null;
    for (const row of this.list.querySelectorAll('.row')) {
      const isHere = row.dataset.id === this.current;
      row.classList.toggle('here', isHere);
      if (isHere) row.firstChild.setAttribute('aria-current', 'true');
      else row.firstChild.removeAttribute('aria-current');
    }
  }

  async draw() {
    const conversations = await store.listConversations();
    const parts = [];
    let day = '';
    for (const c of conversations) {
      if (ago(c.updated) !== day) parts.push(h('h2', {}, (day = ago(c.updated))));
      parts.push(this.row(c));
    }
    if (!parts.length) parts.push(h('p', { class: 'none' }, 'Your conversations will appear here. They stay in this browser.'));
    this.list.replaceChildren(...parts);
    this.select({ id: this.current });
    this.actions.changed(conversations);
  }

  row(c) {
    return h('div', { class: 'row', 'data-id': c.id }, h('button', { type: 'button', class: 'title', onclick: () => this.open(c) }, c.title),
      h('span', { class: 'row-tools' }, iconButton('edit', `Rename “${c.title}”`, () => this.rename(c)), iconButton('trash', `Delete “${c.title}”`, () => this.remove(c))));
  }

  rename(c) {
    const input = h('input', { type: 'text', id: 'new-title', value: c.title, maxlength: 200 });
    const form = h('form', { id: 'rename', onsubmit: async (e) => {
      e.preventDefault();
      dialog.close();
      const now = (await store.listConversations()).find(({ id }) => id === c.id); // a message may have arrived meanwhile
      if (now && input.value.trim()) await store.putConversation({ ...now, title: input.value.trim() });
      this.draw();
    } }, h('div', { class: 'field' }, h('label', { for: 'new-title' }, 'Title'), input));
    const dialog = openDialog('Rename the conversation', form, h('button', { type: 'submit', form: 'rename', class: 'primary' }, 'Rename'));
    input.select();
  }

  remove(c) {
    const go = async () => {
      dialog.close();
      await store.removeConversation(c.id);
      await this.draw();
      toast('Deleted.');
    };
    const dialog = openDialog('Delete the conversation?', h('p', {}, `“${c.title}” and all its branches will be deleted from this browser.`), [
      h('button', { type: 'button', class: 'plain', onclick: () => dialog.close() }, 'Keep it'), h('button', { type: 'button', class: 'primary bad', onclick: go }, 'Delete')]);
  }

  // ---- files

  async save() {
    const text = JSON.stringify(await store.exportAll(), null, 1);
    const link = h('a', { href: URL.createObjectURL(new Blob([text], { type: 'application/json' })), download: `kin-${new Date().toISOString().slice(0, 10)}.json` });
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 10000);
  }

  async readFile(pick) {
    try {
      const n = await store.importAll(JSON.parse(await pick.files[0].text()));
      toast(`${n} conversation${n === 1 ? '' : 's'} imported.`);
    } catch (err) {
      toast(`The file could not be read: ${err.message}`);
    }
    pick.value = '';
    await this.draw();
  }
}
