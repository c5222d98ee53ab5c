// Runs a WebAssembly program: node tools/wasi.js PROGRAM [ARGUMENT...]. Exit status 77: this node does not support its instructions.
import { readFileSync } from 'node:fs';
import { WASI } from 'node:wasi';

const [program, ...args] = process.argv.slice(2);
const bytes = readFileSync(program);
if (!WebAssembly.validate(bytes)) {
  console.log(`${program}: node ${process.version} does not know its instructions`);
  process.exit(77);
}
const wasi = new WASI({ version: 'preview1', args: [program, ...args], env: process.env, returnOnExit: true });
const instance = new WebAssembly.Instance(new WebAssembly.Module(bytes), wasi.getImportObject ? wasi.getImportObject() : { wasi_snapshot_preview1: wasi.wasiImport });
process.exitCode = wasi.start(instance);
