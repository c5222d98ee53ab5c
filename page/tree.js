// The messages of one conversation as a tree, independent of the page. Each message has a parent; messages with the same parent are
// siblings: versions of the same turn. A branch is the path from the root to a message.

export class Tree {
  constructor(messages = []) {
    this.byId = new Map();
    this.children = new Map(); // by parent, null for the root, in the order of creation
    for (const m of messages) this.add(m);
  }

  add(message) {
    this.byId.set(message.id, message);
    const list = this.children.get(message.parent) ?? [];
    list.push(message);
    this.children.set(message.parent, list);
  }

  siblings(message) {
    return this.children.get(message.parent) ?? [message];
  }

  /** Returns the messages from the first one to this one. */
  branch(id) {
    const path = [];
    const seen = new Set(); // an imported file may contain a cycle
    for (let m = this.byId.get(id); m && !seen.has(m.id); m = this.byId.get(m.parent)) {
      seen.add(m.id);
      path.push(m);
    }
    return path.reverse();
  }

  /** Returns the last message below this one, following the latest child. */
  leaf(message) {
    const seen = new Set();
    while (message && this.children.get(message.id)?.length && !seen.has(message.id)) {
      seen.add(message.id);
      message = this.children.get(message.id).at(-1);
    }
    return message;
  }
}
