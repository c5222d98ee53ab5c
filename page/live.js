// The server's events (/kin/events), requested only while the view and the page are visible.

import { stream } from './api.js';
import { noteError, untilReady } from './server.js';
import { askForKey } from './settings.js';

const AGAIN_MS = 2000;

export class Live {
  /** take(name, data) is called for each event; lost(message) when the events stop. */
  constructor(take, lost) {
    this.take = take;
    this.lost = lost;
    this.wanted = false;
    document.addEventListener('visibilitychange', () => this.update());
  }

  want(on) {
    this.wanted = on;
    this.update();
  }

  update() {
    const on = this.wanted && document.visibilityState === 'visible';
    if (on && !this.abort) this.run((this.abort = new AbortController()));
    if (!on && this.abort) this.abort.abort(), (this.abort = null);
  }

  async run(abort) {
    while (!abort.signal.aborted) {
      try {
        await stream('kin/events', { signal: abort.signal }, this.take);
        this.lost('The server ended the connection.');
      } catch (err) {
        if (abort.signal.aborted) return;
        this.lost(err.message);
        if (err.status === 401 && (await askForKey('The view of the cluster needs a key.'))) continue;
        if (noteError(err)) untilReady();
      }
      await new Promise((later) => setTimeout(later, AGAIN_MS));
    }
  }
}
