// A ring of three processes: desk serves, anna and bert have joined.
import { existsSync } from 'node:fs';
import { mkdir } from 'node:fs/promises';
import { addressOf, start, until } from './world.mjs';

export async function startRing({ kin, model, dir }) {
  const port = String(20000 + (process.pid % 12000)); // below those that Linux gives to who asks for any
  const env = { KIN_PLAN: 'even' };
  const join = async (name) => {
    await mkdir(`${dir}/${name}`, { recursive: true });
    return start(kin, ['join', `127.0.0.1:${port}`, '--name', name, '--key-file', `${dir}/key`, '--listen', '127.0.0.1', '--cache', `${dir}/${name}`, '-t', '1'], env);
  };
  const head = start(kin, ['serve', model, '--port', '0', '-t', '1', '--ctx', '2048', '--cluster', '--devices', '2', '--name', 'desk', '--key-file', `${dir}/key`, '--listen', '127.0.0.1', '--cluster-port', port, '--hidden'], env);
  await until('the head has made a key', () => existsSync(`${dir}/key`));
  const devices = { anna: await join('anna'), bert: await join('bert') };
  return { base: `${await addressOf(head)}/`, devices, join };
}
