// Runs the tests of the page in Chromium.
//
//   node run.mjs KIN MODEL DIR [WORDS]     MODEL: the demo model with room for long conversations; DIR: for scratch;
//                                          WORDS: only checks with these in their name
import { report, stopAll } from './world.mjs';
import { openWorld } from './servers.mjs';
import { chats } from './chat.mjs';
import { looks } from './looks.mjs';
import { clusters } from './cluster.mjs';
import { tabs } from './tabs.mjs';

const [kin, model, dir] = process.argv.slice(2);
const world = await openWorld(kin, model, dir);
try {
  await Promise.all([chats(world), clusters(world)]); // the ring mostly waits
  await looks(world);
  await tabs(world); // after the others, because it has its own servers
} finally {
  await world.close();
  await stopAll();
}
process.exit(report());
