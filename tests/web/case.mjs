// A case of test_web.c consists of parts, each after its length in 4 bytes: a PLAN's payload, then the payloads of STEPs. The result is the
// payloads that go to the next member.
export function* partsOf(bytes) {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.length);
  for (let at = 0; at < bytes.length;) {
    const n = view.getUint32(at, true);
    yield bytes.subarray(at + 4, at + 4 + n);
    at += 4 + n;
  }
}

// times: the duration of each step in milliseconds is appended.
export function compute(engine, bytes, model, times = []) {
  const [plan, ...steps] = partsOf(bytes);
  engine.openPlan(plan, model);
  const out = [];
  for (const step of steps) {
    const begun = performance.now();
    const payload = engine.take(step);
    times.push(performance.now() - begun);
    out.push(new Uint8Array(Uint32Array.of(payload.length).buffer), payload);
  }
  engine.closePlan();
  return out;
}

// For bench/web: a token is two steps. Reports the fastest token and the median.
export function say(times) {
  const tokens = times.flatMap((ms, i) => (i % 2 ? [times[i - 1] + ms] : []));
  const sorted = tokens.slice(1).sort((a, b) => a - b);
  return `prompt ${tokens[0].toFixed(1)} ms, token ${sorted[0].toFixed(2)} ms at best, ${sorted[sorted.length >> 1].toFixed(2)} in the median`;
}
