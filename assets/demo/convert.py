#!/usr/bin/env python3
"""Float weights to a GGUF file with K-quants, in numpy alone.

    convert.py --weights DIR/model.npz --config DIR/config.json --vocab vocab.json --out demo.gguf [--name NAME]

Matrices become Q4_K, and Q6_K where an error costs most: the embedding (which is also the output matrix), and attn_v
and ffn_down in half of the layers, as llama.cpp's Q4_K_M chooses. Norms stay float32.

A K-quant block holds 256 weights of one row:

    Q4_K  144 bytes   d f16 | dmin f16 | scales 12 bytes | q 128 bytes       weight = d*scale*q - dmin*min, q in 0..15
                      8 groups of 32; group g of each pair in the low nibbles, g+1 in the high nibbles
    Q6_K  210 bytes   ql 128 bytes | qh 64 bytes | scales 16 x i8 | d f16    weight = d*scale*(q - 32), q in 0..63
                      16 groups of 16; low 4 bits in ql, high 2 bits in qh
"""
import argparse
import json
import struct

import numpy as np

import bpe
import chats

F32, Q4_K, Q6_K = 0, 12, 14             # ggml's type numbers
NORMAL, CONTROL = 1, 3                  # and those of tokens
FILE_TYPE_Q4_K_M = 15
U32, FLOAT, BOOL, STRING, ARRAY, I32 = 4, 6, 7, 8, 9, 5
ALIGNMENT = 32


def f16(x):
    return x.astype(np.float16)


# ---------------------------------------------------------------- Q4_K

def fit_scale_min(x, levels=15, tries=24):
    """scale, min >= 0 with x ~ scale*q - min for q in 0..levels: several scales are tried, each refined by least
    squares, and the least error wins. x // (n, 8, 32); weights near zero count a little less."""
    weight = np.sqrt((x * x).mean(-1, keepdims=True)) + np.abs(x)
    lo, hi = np.minimum(x.min(-1), 0), x.max(-1)
    hi = np.where(hi <= lo, lo + 1e-9, hi)
    best_scale, best_min = (hi - lo) / levels, -lo
    best = np.full(lo.shape, np.inf)
    sw, sx = weight.sum(-1), (weight * x).sum(-1)
    for i in range(tries):
        inv = (levels - 1 + 2 * i / (tries - 1)) / (hi - lo)
        q = np.clip(np.rint((x - lo[..., None]) * inv[..., None]), 0, levels)
        sq, sqq, sqx = (weight * q).sum(-1), (weight * q * q).sum(-1), (weight * q * x).sum(-1)
        det = sw * sqq - sq * sq
        ok = det > 0
        det = np.where(ok, det, 1)
        scale, m = (sw * sqx - sx * sq) / det, (sqq * sx - sq * sqx) / det
        no_min = m > 0                                      # min is stored as a positive number to subtract
        scale, m = np.where(no_min, sqx / np.maximum(sqq, 1e-30), scale), np.where(no_min, 0, m)
        error = (weight * (scale[..., None] * q + m[..., None] - x) ** 2).sum(-1)
        better = ok & (error < best) & (scale > 0)
        best = np.where(better, error, best)
        best_scale, best_min = np.where(better, scale, best_scale), np.where(better, -m, best_min)
    return best_scale, best_min


def quantize_q4_k(w):
    x = w.reshape(-1, 8, 32).astype(np.float32)
    scale, m = fit_scale_min(x)
    d, dmin = f16(scale.max(-1) / 63), f16(m.max(-1) / 63)
    df, dminf = d.astype(np.float32)[:, None], dmin.astype(np.float32)[:, None]
    sc = np.clip(np.rint(scale / np.maximum(df, 1e-12)), 0, 63).astype(np.uint8)
    mn = np.clip(np.rint(m / np.maximum(dminf, 1e-12)), 0, 63).astype(np.uint8)
    step, low = df * sc, dminf * mn
    q = np.where(step[..., None] > 0, (x + low[..., None]) / np.maximum(step, 1e-20)[..., None], 0)
    q = np.clip(np.rint(q), 0, 15).astype(np.uint8)
    packed = np.empty((len(x), 12), np.uint8)               # 8 scales and 8 mins of 6 bits each
    packed[:, 0:4] = sc[:, :4] | (sc[:, 4:] >> 4) << 6
    packed[:, 4:8] = mn[:, :4] | (mn[:, 4:] >> 4) << 6
    packed[:, 8:12] = (sc[:, 4:] & 15) | (mn[:, 4:] & 15) << 4
    nibbles = q[:, 0::2] | q[:, 1::2] << 4                  # // (n, 4, 32)
    return np.concatenate([d[:, None].view(np.uint8), dmin[:, None].view(np.uint8), packed,
                           nibbles.reshape(-1, 128)], 1).tobytes()


# ---------------------------------------------------------------- Q6_K

def fit_scale(x, tries=25):
    """scale (of either sign) with x ~ scale*q for q in -32..31: the largest weight goes near -32, which has no
    counterpart above. x // (n, 16, 16)"""
    big = np.take_along_axis(x, np.abs(x).argmax(-1)[..., None], -1)[..., 0]
    big = np.where(big == 0, 1e-12, big)
    best, best_scale = np.full(big.shape, -np.inf), big / -32
    weight = x * x
    for i in range(tries):
        inv = -(32 + .1 * (i - tries // 2)) / big
        q = np.clip(np.rint(x * inv[..., None]), -32, 31)
        sqx, sqq = (weight * q * x).sum(-1), (weight * q * q).sum(-1)
        gain = np.where(sqq > 0, sqx * sqx / np.maximum(sqq, 1e-30), 0)
        better = gain > best
        best = np.where(better, gain, best)
        best_scale = np.where(better & (sqq > 0), sqx / np.maximum(sqq, 1e-30), best_scale)
    return best_scale


def quantize_q6_k(w):
    x = w.reshape(-1, 16, 16).astype(np.float32)
    scale = fit_scale(x)
    big = np.take_along_axis(scale, np.abs(scale).argmax(-1)[:, None], -1)
    d = f16(big / -128)
    df = d.astype(np.float32)
    safe = np.where(df == 0, 1, df)
    sc = np.clip(np.rint(scale / safe), -128, 127).astype(np.int8)
    step = df * sc
    q = np.where(step[..., None] != 0, x / np.where(step == 0, 1, step)[..., None], 0)
    q = (np.clip(np.rint(q), -32, 31) + 32).astype(np.uint8).reshape(-1, 2, 4, 32)      # half, quarter, position
    ql = np.concatenate([(q[:, :, 0] & 15) | (q[:, :, 2] & 15) << 4, (q[:, :, 1] & 15) | (q[:, :, 3] & 15) << 4], -1)
    qh = q[:, :, 0] >> 4 | (q[:, :, 1] >> 4) << 2 | (q[:, :, 2] >> 4) << 4 | (q[:, :, 3] >> 4) << 6
    return np.concatenate([ql.reshape(-1, 128), qh.reshape(-1, 64), sc.view(np.uint8), d.view(np.uint8)], 1).tobytes()


QUANTIZE = {F32: lambda w: w.astype(np.float32).tobytes(), Q4_K: quantize_q4_k, Q6_K: quantize_q6_k}


def type_of(name, w, n_layer):
    if w.ndim == 1:
        return F32
    if name == "token_embd.weight":
        return Q6_K
    il = int(name.split(".")[1])
    # the first eighth, the last eighth, and every third layer between
    more = il < n_layer // 8 or il >= 7 * n_layer // 8 or (il - n_layer // 8) % 3 == 2
    return Q6_K if more and ("attn_v" in name or "ffn_down" in name) else Q4_K


# ---------------------------------------------------------------- GGUF v3

def string(s):
    b = s.encode()
    return struct.pack("<Q", len(b)) + b


def value(kind, v):
    if kind == STRING:
        return string(v)
    return struct.pack({U32: "<I", I32: "<i", FLOAT: "<f", BOOL: "<?"}[kind], v)


def key(name, kind, v, item=None):
    if kind == ARRAY:
        return string(name) + struct.pack("<IIQ", ARRAY, item, len(v)) + b"".join(value(item, x) for x in v)
    return string(name) + struct.pack("<I", kind) + value(kind, v)


def metadata(c, vocab, name):
    n = len(vocab.tokens)
    talks = bpe.IM_END in vocab.control
    return [
        key("general.architecture", STRING, "llama"),
        key("general.type", STRING, "model"),
        key("general.name", STRING, name),
        key("general.description", STRING, "A very small model that tells stories for small children"),
        key("general.license", STRING, "mit"),
        key("general.alignment", U32, ALIGNMENT),
        key("general.quantization_version", U32, 2),
        key("general.file_type", U32, FILE_TYPE_Q4_K_M),
        key("llama.vocab_size", U32, n),
        key("llama.context_length", U32, c["n_ctx"]),
        key("llama.embedding_length", U32, c["n_embd"]),
        key("llama.block_count", U32, c["n_layer"]),
        key("llama.feed_forward_length", U32, c["n_ff"]),
        key("llama.attention.head_count", U32, c["n_head"]),
        key("llama.attention.head_count_kv", U32, c["n_head_kv"]),
        key("llama.attention.layer_norm_rms_epsilon", FLOAT, c["eps"]),
        key("llama.rope.dimension_count", U32, c["head_dim"]),
        key("llama.rope.freq_base", FLOAT, c["rope_base"]),
        key("tokenizer.ggml.model", STRING, "gpt2"),
        key("tokenizer.ggml.pre", STRING, "gpt-2"),
        key("tokenizer.ggml.tokens", ARRAY, vocab.tokens, STRING),
        key("tokenizer.ggml.token_type", ARRAY, [CONTROL if t in vocab.control else NORMAL for t in vocab.tokens], I32),
        key("tokenizer.ggml.merges", ARRAY, [a + " " + b for a, b in vocab.merges], STRING),
        key("tokenizer.ggml.bos_token_id", U32, vocab.eot),
        key("tokenizer.ggml.eos_token_id", U32, vocab.eot),
        key("tokenizer.ggml.add_bos_token", BOOL, True),
        key("tokenizer.ggml.add_eos_token", BOOL, False),
    ] + [
        key("tokenizer.ggml.eot_token_id", U32, vocab.id[bpe.IM_END]),
        key("tokenizer.chat_template", STRING, chats.TEMPLATE),
    ] * talks


def pad(n):
    return b"\0" * (-n % ALIGNMENT)


def write(path, weights, c, vocab, name):
    keys, infos, data = metadata(c, vocab, name), [], []
    at = 0
    for tensor, w in weights.items():
        kind = type_of(tensor, w, c["n_layer"])
        assert w.ndim == 1 or w.shape[1] % 256 == 0, tensor
        raw = QUANTIZE[kind](w)
        infos.append(string(tensor) + struct.pack("<I", w.ndim) + struct.pack(f"<{w.ndim}Q", *reversed(w.shape))
                     + struct.pack("<IQ", kind, at))
        data += [raw, pad(len(raw))]
        at += len(raw) + len(data[-1])
    head = b"GGUF" + struct.pack("<IQQ", 3, len(infos), len(keys)) + b"".join(keys) + b"".join(infos)
    whole = head + pad(len(head)) + b"".join(data)
    with open(path, "wb") as f:
        f.write(whole)
    return len(whole)


def main():
    ap = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    ap.add_argument("--weights", required=True)
    ap.add_argument("--config", required=True)
    ap.add_argument("--vocab", required=True)
    ap.add_argument("--out", required=True)
    ap.add_argument("--name", default="kin demo storyteller")
    args = ap.parse_args()
    with open(args.config) as f:
        c = json.load(f)
    size = write(args.out, dict(np.load(args.weights)), c, bpe.Vocab.load(args.vocab), args.name)
    print(f"{args.out}: {size} bytes")


if __name__ == "__main__":
    main()
