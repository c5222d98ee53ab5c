// The servers of the tests, and the browser: one machine, one with a key, and a ring, which comes up in the background.
import { startRing } from './ring.mjs';
import { Stage } from './stage.mjs';
import { addressOf, openBrowser, start } from './world.mjs';

export async function openWorld(kin, model, dir) {
  const serve = (...words) => start(kin, ['serve', model, '--port', '0', '-t', '1', ...words]);
  const alone = serve('--ctx', '16384'), keyed = serve('--ctx', '2048', '--api-key', 'sesame');
  const stage = new Stage(await addressOf(alone)), keyedStage = new Stage(await addressOf(keyed));
  const world = { kin, model, dir, stage, keyedStage, base: await stage.open(), keyedBase: await keyedStage.open(), browser: await openBrowser() };
  world.ring = startRing(world);
  world.close = async () => {
    await world.browser.close();
    stage.close();
    keyedStage.close();
  };
  return world;
}
