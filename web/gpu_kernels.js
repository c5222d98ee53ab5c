// The GPU's kernels, in WGSL: those of kin's graphs (model/kernel/ops.c, model/kernel/heads.c), with the same rounding of
// activations to bytes and the same packed weights (kernels/panel.h).
//
// All kernels have the same bindings. Offsets (x, y, residual) count words of the activations; web/engine/gpu.c writes the
// commands.

export const NORM = 0, ROUND = 1, PRODUCT = 2, HEADS = 3, STORE = 4, ATTEND = 5, ROWS = 6;
export const TILE = 8; // rows of a batch that a workgroup multiplies with its weights
export const ACT_WORDS = 80; // per 256 columns: bytes, a sum and a scale per 32 columns

const SHARED = `
struct Command {
  kernel: u32, kind: u32, w: u32, w2: u32, k: u32, v: u32, groups_x: u32, groups_y: u32,
  columns: u32, n_rows: u32, x: u32, y: u32, ldx: u32, ldy: u32, n_out: u32, flags: u32,
  residual: u32, ldr: u32, number: f32, n_head: u32, n_head_kv: u32, head_dim: u32, n_rot: u32, neox: u32,
  n_q: u32, stores: u32, n_cells: u32, tables: u32,
}
@group(0) @binding(0) var<storage, read_write> a: array<u32>; // activations
@group(0) @binding(1) var<storage, read> w: array<u32>; // weights
@group(0) @binding(2) var<storage, read> w2: array<u32>;
@group(0) @binding(3) var<storage, read_write> keys: array<u32>; // f16 [cell][kv head][head_dim]
@group(0) @binding(4) var<storage, read_write> values: array<u32>;
@group(0) @binding(5) var<storage, read> numbers: array<i32>;
@group(0) @binding(6) var<uniform> c: Command;

fn load(i: u32) -> f32 { return bitcast<f32>(a[i]); }
fn save(i: u32, x: f32) { a[i] = bitcast<u32>(x); }
`;

// over_all(x): a reduction over the 64 threads of a workgroup.
const REDUCE = `
var<workgroup> reduced: array<f32, 64>;
fn over_all(i: u32, x: f32) -> f32 {
  workgroupBarrier();
  reduced[i] = x;
  for (var n = 32u; n > 0u; n >>= 1u) {
    workgroupBarrier();
    if (i < n) { reduced[i] = COMBINE(reduced[i], reduced[i + n]); }
  }
  workgroupBarrier();
  return reduced[0];
}
`;
const SUM = REDUCE.replace(/COMBINE\((.*), (.*)\);/, '$1 + $2;');
const MAX = REDUCE.replace('COMBINE', 'max');

const MAIN_64 = '@compute @workgroup_size(64) fn main(@builtin(workgroup_id) group: vec3u, @builtin(local_invocation_index) i: u32)';

const norm = `${SUM}
${MAIN_64} {
  let x = c.x + group.x * c.columns;
  let y = c.y + group.x * c.columns;
  var sum = 0.0;
  for (var k = i; k < c.columns; k += 64u) { sum += load(x + k) * load(x + k); }
  let scale = 1.0 / sqrt(over_all(i, sum) / f32(c.columns) + c.number);
  for (var k = i; k < c.columns; k += 64u) { save(y + k, load(x + k) * scale * bitcast<f32>(w[k])); }
}`;

// flags: one scale per 256 columns, else per 32. A thread has 4 columns.
const round = `
var<workgroup> most: array<f32, 64>;
var<workgroup> sums: array<i32, 64>;
${MAIN_64} {
  let column = group.x * 256u + 4u * i;
  let x = c.x + group.y * c.columns + column;
  let to = c.y + (group.y * ((c.columns + 255u) / 256u) + group.x) * ${ACT_WORDS}u;
  let is_in = column < c.columns;
  var four = vec4f();
  if (is_in) { four = vec4f(load(x), load(x + 1u), load(x + 2u), load(x + 3u)); }
  let size = abs(four);
  most[i] = max(max(size.x, size.y), max(size.z, size.w));
  workgroupBarrier();
  var largest = 0.0;
  let first = select(i & ~7u, 0u, c.flags != 0u);
  let n = select(8u, 64u, c.flags != 0u);
  for (var k = first; k < first + n; k++) { largest = max(largest, most[k]); }
  let q = vec4i(round(four * select(0.0, 127.0 / largest, largest > 0x1p-100f))); // as simd_round_s8
  a[to + i] = pack4xI8(q);
  sums[i] = q.x + q.y + q.z + q.w;
  workgroupBarrier();
  if ((i & 7u) == 0u) {
    var sum = 0;
    for (var k = i; k < i + 8u; k++) { sum += sums[k]; }
    a[to + 64u + i / 8u] = bitcast<u32>(sum);
    save(to + 72u + i / 8u, largest / 127.0);
  }
}`;

// ---- products

const UNPACK = `
fn byte_at(i: u32) -> u32 { return (w[i >> 2u] >> ((i & 3u) * 8u)) & 255u; }
fn f16_at(i: u32) -> f32 { return unpack2x16float(w[i >> 1u])[i & 1u]; }
fn minus(q: u32, zero: u32) -> u32 { return ((q | 0x80808080u) - zero) ^ 0x80808080u; } // in each byte
`;

// 6-bit scales and minima of Q4_K and Q5_K, one per 32 columns.
const SCALES_K4 = (at) => `
fn scale(p: u32, n: u32, r: u32, g: u32) -> f32 {
  let j = g / 2u;
  let low = byte_at(4u * (p + ${at}u) + 16u * j + r) & 15u;
  let high = (byte_at(4u * (p + ${at + 32}u) + 16u * (j & 3u) + r) >> (j / 4u * 2u)) & 3u;
  return f16_at(2u * (p + ${at + 48}u) + r) * f32(low | (high << 4u));
}
fn minimum(p: u32, r: u32, j: u32) -> f32 {
  let low = byte_at(4u * (p + ${at}u) + 16u * j + r) >> 4u;
  let high = (byte_at(4u * (p + ${at + 32}u) + 16u * (j & 3u) + r) >> (4u + j / 4u * 2u)) & 3u;
  return f16_at(2u * (p + ${at + 56}u) + r) * f32(low | (high << 4u));
}`;
const NO_MINIMUM = 'fn minimum(p: u32, r: u32, j: u32) -> f32 { return 0.0; }';
const NIBBLES_K4 = 'let j = column & 7u; let g = column >> 3u; let low = (w[p + (8u * (g >> 1u) + j) * 16u + r] >> (4u * (g & 1u))) & 0x0f0f0f0fu;';

// words: per 256 columns of a panel; small: per 32. four(): 4 columns of row r as signed bytes; `column` counts groups of 4.
// p: offset of the block's words, which have 32 n columns. scale(): per 16 columns.
const QUANTIZED = {
  12: { name: 'Q4_K', words: 576, code: `fn four(p: u32, r: u32, column: u32) -> u32 { ${NIBBLES_K4} return low; } ${SCALES_K4(512)}` },
  13: {
    name: 'Q5_K', words: 704,
    code: `fn four(p: u32, r: u32, column: u32) -> u32 { ${NIBBLES_K4} return low | (((w[p + 512u + j * 16u + r] >> g) & 0x01010101u) << 4u); } ${SCALES_K4(640)}`,
  },
  14: {
    name: 'Q6_K', words: 840,
    code: `
fn four(p: u32, r: u32, column: u32) -> u32 {
  let at = p + 64u + 48u * (column >> 2u) + r;
  let t = column & 3u;
  var q = w[at + 16u * min(t, 2u)];
  if (t == 3u) { q = ((w[at] >> 2u) & 0x3fff3fffu) ^ ((w[at + 16u] >> 4u) & 0x0fff0fffu) ^ ((w[at + 32u] >> 6u) & 0x03ff03ffu); }
  return minus(q & 0x3f3f3f3fu, 0x20202020u);
}
fn scale(p: u32, n: u32, r: u32, g: u32) -> f32 {
  return f16_at(2u * (p + 832u) + r) * f32(extractBits(bitcast<i32>(byte_at(4u * p + 16u * g + r)), 0u, 8u));
}
${NO_MINIMUM}`,
  },
  8: {
    name: 'Q8_0', words: 136, small: true,
    code: `
fn four(p: u32, r: u32, column: u32) -> u32 { return w[p + column * 16u + r]; }
fn scale(p: u32, n: u32, r: u32, g: u32) -> f32 { return f16_at(2u * (p + 128u * n) + 16u * (g / 2u) + r); }
${NO_MINIMUM}`,
  },
  2: {
    name: 'Q4_0', words: 72, small: true,
    code: `
fn four(p: u32, r: u32, column: u32) -> u32 {
  return minus((w[p + (column >> 3u) * 64u + (column & 3u) * 16u + r] >> (column & 4u)) & 0x0f0f0f0fu, 0x08080808u);
}
fn scale(p: u32, n: u32, r: u32, g: u32) -> f32 { return f16_at(2u * (p + 64u * n) + 16u * (g / 2u) + r); }
${NO_MINIMUM}`,
  },
};

const FLOATS = {
  1: { name: 'F16', code: 'fn pair_of(x: u32) -> vec2f { return unpack2x16float(x); }' },
  30: { name: 'BF16', code: 'fn pair_of(x: u32) -> vec2f { return vec2f(bitcast<f32>(x << 16u), bitcast<f32>(x & 0xffff0000u)); }' },
};

// Thread 8 y + r computes row r of a panel, blocks y, y + 8 ...
const quantizedSum = ({ words, small, code }) => `${UNPACK}${code}
fn accumulate(group: vec3u, id: vec3u, sum: ptr<function, array<f32, TILE>>) {
  let blocks = (c.columns + 255u) / 256u;
  let panel = group.x * ${small ? `(c.columns / 32u * ${words}u)` : `(blocks * ${words}u)`};
  for (var b = id.y; b < blocks; b += 8u) {
    let n = min(8u, (c.columns - 256u * b) / 32u);
    let p = panel + b * ${small ? 8 * words : words}u;
    for (var g = 0u; g < n; g++) {
      var q: array<u32, 8>;
      for (var j = 0u; j < 8u; j++) { q[j] = four(p, id.x, 8u * g + j); }
      let s0 = scale(p, n, id.x, 2u * g);
      let s1 = scale(p, n, id.x, 2u * g + 1u);
      let m = minimum(p, id.x, g);
      for (var t = 0u; t < TILE; t++) {
        let act = c.x + (min(group.y * TILE + t, c.n_rows - 1u) * blocks + b) * ${ACT_WORDS}u;
        var d0 = 0;
        var d1 = 0;
        for (var j = 0u; j < 4u; j++) {
          d0 += dot4I8Packed(q[j], a[act + 8u * g + j]);
          d1 += dot4I8Packed(q[4u + j], a[act + 8u * g + 4u + j]);
        }
        (*sum)[t] += load(act + 72u + g) * (s0 * f32(d0) + s1 * f32(d1) - m * f32(bitcast<i32>(a[act + 64u + g])));
      }
    }
  }
}`;

const floatSum = ({ code }) => `${code}
fn accumulate(group: vec3u, id: vec3u, sum: ptr<function, array<f32, TILE>>) {
  let n = c.columns / 2u;
  let row = min(16u * group.x + id.x, c.n_out - 1u) * n;
  for (var k = id.y; k < n; k += 8u) {
    let weights = pair_of(w[row + k]);
    for (var t = 0u; t < TILE; t++) {
      let x = c.x + min(group.y * TILE + t, c.n_rows - 1u) * c.columns + 2u * k;
      (*sum)[t] += weights.x * load(x) + weights.y * load(x + 1u);
    }
  }
}`;

// flags 1: w2 is a bias. 2: add a residual. 4: y holds the gate's product.
const product = (sum, tile) => `const TILE = ${tile}u;
${sum}
var<workgroup> parts: array<f32, ${128 * tile}>;
@compute @workgroup_size(16, 8) fn main(@builtin(workgroup_id) group: vec3u, @builtin(local_invocation_id) id: vec3u) {
  var sum: array<f32, TILE>;
  accumulate(group, id, &sum);
  for (var t = 0u; t < TILE; t++) { parts[(t * 8u + id.y) * 16u + id.x] = sum[t]; }
  workgroupBarrier();
  let row = group.y * TILE + id.y;
  let column = group.x * 16u + id.x;
  if (id.y >= TILE || row >= c.n_rows || column >= c.n_out) { return; }
  var y = 0.0;
  for (var k = 0u; k < 8u; k++) { y += parts[(id.y * 8u + k) * 16u + id.x]; }
  let at = c.y + row * c.ldy + column;
  if ((c.flags & 1u) != 0u) { y += bitcast<f32>(w2[column]); }
  if ((c.flags & 2u) != 0u) { y += load(c.residual + row * c.ldr + column); }
  if ((c.flags & 4u) != 0u) { y *= load(at) / (1.0 + exp(min(-load(at), 80.0))); }
  save(at, y);
}`;

// ---- attention

// x: cosines and sines of each row. flags 1: normalize queries with w. 2: normalize keys with w2.
const heads = `${SUM}
fn weight(is_query: bool, k: u32) -> f32 { if (is_query) { return bitcast<f32>(w[k]); } return bitcast<f32>(w2[k]); }
${MAIN_64} {
  let at = c.y + group.y * c.ldy + group.x * c.head_dim;
  let is_query = group.x < c.n_q;
  if ((c.flags & select(2u, 1u, is_query)) != 0u) {
    var sum = 0.0;
    for (var k = i; k < c.head_dim; k += 64u) { sum += load(at + k) * load(at + k); }
    let scale = 1.0 / sqrt(over_all(i, sum) / f32(c.head_dim) + c.number);
    for (var k = i; k < c.head_dim; k += 64u) { save(at + k, load(at + k) * scale * weight(is_query, k)); }
  }
  storageBarrier();
  let n = c.n_rot / 2u;
  for (var k = i; k < n; k += 64u) {
    let turn = c.x + group.y * c.ldx + k;
    let first = at + select(2u * k, k, c.neox != 0u);
    let second = select(first + 1u, first + n, c.neox != 0u);
    let x = load(first);
    let y = load(second);
    save(first, x * load(turn) - y * load(turn + n));
    save(second, x * load(turn + n) + y * load(turn));
  }
}`;

// The rows of x hold keys, then values.
const store = `
${MAIN_64} {
  let n = c.head_dim / 2u;
  let row = c.x + u32(numbers[c.stores + 2u * group.y]) * c.ldx + group.x * c.head_dim;
  let cell = (u32(numbers[c.stores + 2u * group.y + 1u]) * c.n_head_kv + group.x) * n;
  for (var k = i; k < n; k += 64u) {
    keys[cell + k] = pack2x16float(vec2f(load(row + 2u * k), load(row + 2u * k + 1u)));
    let value = row + c.n_head_kv * c.head_dim + 2u * k;
    values[cell + k] = pack2x16float(vec2f(load(value), load(value + 1u)));
  }
}`;

// A workgroup computes one query head of one row: 64 cells at a time, one thread per cell; then one thread per dimension.
const attend = `${MAX}
var<workgroup> query: array<f32, 256>;
var<workgroup> scores: array<f32, 64>;
${MAIN_64} {
  let half_head = c.head_dim / 2u;
  let kv_head = group.x / (c.n_head / c.n_head_kv);
  for (var k = i; k < c.head_dim; k += 64u) { query[k] = c.number * load(c.x + group.y * c.ldx + group.x * c.head_dim + k); }
  let n = u32(numbers[c.n_cells + group.y]);
  let table = u32(numbers[c.tables + group.y]);
  var most = -3.0e38;
  var total = 0.0;
  var out = vec4f(); // dimensions i, i + 64, i + 128, i + 192
  for (var begin = 0u; begin < n; begin += 64u) {
    let first = (u32(numbers[table + begin / 64u]) * 64u * c.n_head_kv + kv_head) * half_head;
    let stride = c.n_head_kv * half_head;
    var score = -3.0e38;
    workgroupBarrier();
    if (begin + i < n) {
      score = 0.0;
      for (var k = 0u; k < half_head; k++) { score += dot(unpack2x16float(keys[first + i * stride + k]), vec2f(query[2u * k], query[2u * k + 1u])); }
    }
    let now = max(most, over_all(i, score));
    scores[i] = select(0.0, exp(score - now), begin + i < n);
    workgroupBarrier();
    let before = exp(most - now);
    total *= before;
    out *= before;
    for (var cell = 0u; cell < min(64u, n - begin); cell++) {
      total += scores[cell];
      for (var k = 0u; k < 4u; k++) {
        let d = i + 64u * k;
        if (d < c.head_dim) { out[k] += scores[cell] * unpack2x16float(values[first + cell * stride + d / 2u])[d & 1u]; }
      }
    }
    most = now;
  }
  for (var k = 0u; k < 4u; k++) {
    let d = i + 64u * k;
    if (d < c.head_dim) { save(c.y + group.y * c.ldy + group.x * c.head_dim + d, select(0.0, out[k] / total, n > 0u)); }
  }
}`;

const rows = `
${MAIN_64} {
  let source = c.x + a[c.residual + group.x] * c.columns;
  for (var k = i; k < c.columns; k += 64u) { a[c.y + group.x * c.columns + k] = a[source + k]; }
}`;

const OTHERS = { [NORM]: norm, [ROUND]: round, [HEADS]: heads, [STORE]: store, [ATTEND]: attend, [ROWS]: rows };

export const KERNELS = Object.keys(OTHERS).map(Number); // except products, which have a kernel per weight type

// Weight types with a product kernel; 0 (f32) is also the type of norms and biases.
export const TYPES = new Set([0, ...Object.keys(QUANTIZED), ...Object.keys(FLOATS)].map(Number));
export const TYPE_NAMES = Object.values({ ...QUANTIZED, ...FLOATS }).map((t) => t.name);

export function kernelCode(kernel, type, tile) {
  if (kernel !== PRODUCT) return SHARED + OTHERS[kernel];
  return SHARED + product(QUANTIZED[type] ? quantizedSum(QUANTIZED[type]) : floatSum(FLOATS[type]), tile);
}
