// A case of test_web.c: parts of bytes, each after its length in 4 bytes: a PLAN's payload, then those of STEPs. Computed, it is the
// payloads that go to the next member.
export function* partsOf(bytes) {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.length);
  for (let at = 0; at < bytes.length;) {
    const n = view.getUint32(at, true);
    yield bytes.subarray(at + 4, at + 4 + n);
    at += 4 + n;
  }
}

export function compute(engine, bytes, model) {
  const [plan, ...steps] = partsOf(bytes);
  engine.openPlan(plan, model);
  const out = [];
  for (const step of steps) {
    const payload = engine.step(step);
    out.push(new Uint8Array(Uint32Array.of(payload.length).buffer), payload);
  }
  engine.closePlan();
  return out;
}
