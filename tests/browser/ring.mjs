// Rings of real processes: desk serves, the others have joined.
import { existsSync } from 'node:fs';
import { mkdir } from 'node:fs/promises';
import { addressOf, start, stop, until } from './world.mjs';

// home: the ring's folder for keys and caches; nth: the ring's number, which selects its port.
async function openRing(kin, model, home, nth, plan, names) {
  const port = String(20000 + 2 * (process.pid % 6000) + nth); // below Linux's ephemeral ports
  const env = { KIN_PLAN: plan };
  const join = async (name) => {
    await mkdir(`${home}/${name}`, { recursive: true });
    return start(kin, ['join', `127.0.0.1:${port}`, '--name', name, '--key-file', `${home}/key`, '--listen', '127.0.0.1', '--cache', `${home}/${name}`, '-t', '1'], env);
  };
  await mkdir(home, { recursive: true });
  const head = start(kin, ['serve', model, '--port', '0', '-t', '1', '--ctx', '2048', '--cluster', '--devices', String(names.length), '--name', 'desk', '--key-file', `${home}/key`, '--listen', '127.0.0.1', '--cluster-port', port, '--hidden'], env);
  await until('the head has made a key', () => existsSync(`${home}/key`));
  const devices = {};
  for (const name of names) devices[name] = await join(name);
  return { base: `${await addressOf(head)}/`, head, devices, join };
}

/** Starts three processes: desk serves, anna and bert join. */
export const startRing = ({ kin, model, dir }) => openRing(kin, model, `${dir}/ring`, 0, 'even', ['anna', 'bert']);

/** Starts desk and anna, which share each layer of a model that can be split. */
export async function startPair({ kin, dir }) {
  const pair = await openRing(kin, `${dir}/pair.gguf`, `${dir}/pair`, 1, 'tp', ['anna']);
  return { ...pair, stopAll: () => Promise.all([pair.head, pair.devices.anna].map(stop)) };
}
