// A helper thread of the engine: the same module and memory, its own stack.
import { imports } from './engine.js';

// set: { module, memory, stack, i } from Engine.open. started() is called before the thread waits for work.
export function runThread({ module, memory, stack, i }, started) {
  const nothing = () => { throw new Error('a helper thread has no files'); };
  const instance = new WebAssembly.Instance(module, imports(memory, { log: console.log, size: nothing, read: nothing }));
  instance.exports.__stack_pointer.value = stack;
  started();
  instance.exports.thread(i);
}

if (typeof WorkerGlobalScope === 'function' && globalThis instanceof WorkerGlobalScope) {
  globalThis.onmessage = ({ data }) => runThread(data, () => postMessage('started'));
}
