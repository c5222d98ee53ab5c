#!/usr/bin/env python3
"""Reads a GGUF file on its own (nothing shared with convert.py), runs it in numpy, and reports.

    check.py demo.gguf [--weights model.npz] [--prompt TEXT] [--temp 0.8] [--n 1]

Says the loss on stories that were not trained on, for the file and, with --weights, for the float weights it was made
from; then tells stories.
"""
import argparse
import math
import struct
import time

import numpy as np

import bpe
import stories

HELD_OUT_SEED = 7


class Reader:
    def __init__(self, path):
        with open(path, "rb") as f:
            self.b, self.at = f.read(), 0

    def take(self, fmt):
        v = struct.unpack_from("<" + fmt, self.b, self.at)[0]
        self.at += struct.calcsize("<" + fmt)
        return v

    def text(self):
        n = self.take("Q")
        self.at += n
        return self.b[self.at - n:self.at].decode()

    def value(self, kind):
        if kind == 8:
            return self.text()
        if kind == 9:
            item, n = self.take("I"), self.take("Q")
            return [self.value(item) for _ in range(n)]
        return self.take({0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q",
            12: "d"}[kind])


def half(b):
    return b.copy().view(np.float16).astype(np.float32)[:, 0]


def dequantize_q4_k(raw):
    b = raw.reshape(-1, 144)
    d, dmin, s = half(b[:, 0:2]), half(b[:, 2:4]), b[:, 4:16]
    out = np.empty((len(b), 256), np.float32)
    for g in range(8):                                      # one group of 32 at a time, as the format is described
        if g < 4:
            sc, m = s[:, g] & 63, s[:, g + 4] & 63
        else:
            sc, m = (s[:, g + 4] & 15) | (s[:, g - 4] >> 6) << 4, s[:, g + 4] >> 4 | (s[:, g] >> 6) << 4
        q = b[:, 16 + 32 * (g // 2):48 + 32 * (g // 2)]
        q = q >> 4 if g % 2 else q & 15
        out[:, 32 * g:32 * g + 32] = (d * sc)[:, None] * q - (dmin * m)[:, None]
    return out


def dequantize_q6_k(raw):
    b = raw.reshape(-1, 210)
    d, sc = half(b[:, 208:210]), b[:, 192:208].view(np.int8)
    out = np.empty((len(b), 256), np.float32)
    for i in range(256):                                    # one weight at a time
        h, r = divmod(i, 128)
        quarter, l = divmod(r, 32)
        low = b[:, 64 * h + l + 32 * (quarter % 2)]
        low = low >> 4 if quarter >= 2 else low & 15
        high = b[:, 128 + 32 * h + l] >> (2 * quarter) & 3
        q = (low | high << 4).astype(np.int32) - 32
        out[:, i] = d * sc[:, i // 16] * q
    return out


def load(path):
    r = Reader(path)
    assert r.take("I") == 0x46554747 and r.take("I") == 3
    n_tensors, n_keys = r.take("Q"), r.take("Q")
    meta = {}
    for _ in range(n_keys):
        name = r.text()
        meta[name] = r.value(r.take("I"))
    infos = []
    for _ in range(n_tensors):
        name, nd = r.text(), r.take("I")
        infos.append((name, [r.take("Q") for _ in range(nd)], r.take("I"), r.take("Q")))
    base = -(-r.at // meta["general.alignment"]) * meta["general.alignment"]
    w = {}
    for name, ne, kind, offset in infos:
        n = math.prod(ne)
        size = {0: 4 * n, 12: n // 256 * 144, 14: n // 256 * 210}[kind]
        raw = np.frombuffer(r.b, np.uint8, size, base + offset)
        flat = {0: lambda x: x.view(np.float32), 12: dequantize_q4_k, 14: dequantize_q6_k}[kind](raw)
        w[name] = flat.reshape(ne[::-1])
    return meta, w


def vocab_of(meta):
    merges, tokens = [m.split(" ") for m in meta["tokenizer.ggml.merges"]], meta["tokenizer.ggml.tokens"]
    vocab = bpe.Vocab(merges, tokens[256 + len(merges):])
    assert vocab.tokens == tokens
    return vocab


class Model:
    def __init__(self, meta, w):
        a = "llama."
        self.w, self.n_layer = w, meta[a + "block_count"]
        self.nh, self.nkv = meta[a + "attention.head_count"], meta[a + "attention.head_count_kv"]
        self.hd, self.eps = meta[a + "rope.dimension_count"], meta[a + "attention.layer_norm_rms_epsilon"]
        self.freq = meta[a + "rope.freq_base"] ** (-np.arange(0, self.hd, 2) / self.hd)
        self.reset()

    def rewind(self, n):
        """Forgets all but the first n tokens."""
        self.k, self.v, self.n_past = [k[:n] for k in self.k], [v[:n] for v in self.v], n

    def reset(self):
        self.k, self.v, self.n_past = [None] * self.n_layer, [None] * self.n_layer, 0

    def norm(self, x, name):
        return x / np.sqrt((x * x).mean(-1, keepdims=True) + self.eps) * self.w[name]

    def rope(self, x):
        angle = (self.n_past + np.arange(len(x)))[:, None, None] * self.freq
        c, s = np.cos(angle), np.sin(angle)
        out = np.empty_like(x)
        out[..., 0::2] = x[..., 0::2] * c - x[..., 1::2] * s
        out[..., 1::2] = x[..., 0::2] * s + x[..., 1::2] * c
        return out

    def __call__(self, ids):
        """Logits for each of ids, which follow what was given before."""
        w, n = self.w, len(ids)
        x = w["token_embd.weight"][ids]
        for il in range(self.n_layer):
            p = f"blk.{il}."
            h = self.norm(x, p + "attn_norm.weight")
            q = self.rope((h @ w[p + "attn_q.weight"].T).reshape(n, self.nh, self.hd))
            k = self.rope((h @ w[p + "attn_k.weight"].T).reshape(n, self.nkv, self.hd))
            v = (h @ w[p + "attn_v.weight"].T).reshape(n, self.nkv, self.hd)
            if self.k[il] is not None:
                k, v = np.concatenate([self.k[il], k]), np.concatenate([self.v[il], v])
            self.k[il], self.v[il] = k, v
            future = np.arange(len(k))[None] > self.n_past + np.arange(n)[:, None]
            out = np.empty((n, self.nh, self.hd), np.float32)
            for i in range(self.nh):
                j = i // (self.nh // self.nkv)
                s = np.where(future, -np.inf, q[:, i] @ k[:, j].T / math.sqrt(self.hd))
                s = np.exp(s - s.max(-1, keepdims=True))
                out[:, i] = s / s.sum(-1, keepdims=True) @ v[:, j]
            x = x + out.reshape(n, -1) @ w[p + "attn_output.weight"].T
            h = self.norm(x, p + "ffn_norm.weight")
            g = h @ w[p + "ffn_gate.weight"].T
            x = x + (g / (1 + np.exp(-g)) * (h @ w[p + "ffn_up.weight"].T)) @ w[p + "ffn_down.weight"].T
        self.n_past += n
        return self.norm(x, "output_norm.weight") @ w.get("output.weight", w["token_embd.weight"]).T


def held_out(model, vocab, n):
    total = count = 0
    for i in range(n):
        ids = [vocab.eot] + vocab.encode(stories.story(HELD_OUT_SEED * 10_000_000 + 1_000_000 + i)) + [vocab.eot]
        model.reset()
        y = model(ids[:-1])
        y = y - y.max(-1, keepdims=True)
        logp = y - np.log(np.exp(y).sum(-1, keepdims=True))
        total -= logp[np.arange(len(ids) - 1), ids[1:]].sum()
        count += len(ids) - 1
    return total / count, count


def tell(model, vocab, prompt, temp, rng, n=300):
    ids = [vocab.eot] + vocab.encode(prompt)
    model.reset()
    y = model(ids)[-1]
    while len(ids) < n:
        if temp:
            p = np.exp((y - y.max()) / temp)
            t = int(rng.choice(len(p), p=p / p.sum()))
        else:
            t = int(y.argmax())
        if t == vocab.eot:
            break
        ids.append(t)
        y = model([t])[-1]
    return vocab.decode(ids)


def main():
    ap = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    ap.add_argument("gguf")
    ap.add_argument("--weights")
    ap.add_argument("--prompt", action="append")
    ap.add_argument("--temp", type=float, default=.8)
    ap.add_argument("--n", type=int, default=1)
    ap.add_argument("--held-out", type=int, default=100, help="stories to measure the loss on")
    ap.add_argument("--seed", type=int, default=1)
    args = ap.parse_args()
    meta, w = load(args.gguf)
    vocab = vocab_of(meta)
    model = Model(meta, w)
    if args.weights:
        float_w = dict(np.load(args.weights))
        worst = max(((np.sqrt(((w[k] - v) ** 2).mean() / (v * v).mean()), k) for k, v in float_w.items()))
        print(f"largest relative error of a tensor: {worst[0]:.4f} ({worst[1]})")
        if args.held_out:
            print("held-out loss of the float weights: %.4f nats/token over %d tokens" % held_out(Model(meta,
                float_w), vocab, args.held_out))
    if args.held_out:
        print("held-out loss of the file: %.4f nats/token over %d tokens" % held_out(model, vocab, args.held_out))
    rng = np.random.default_rng(args.seed)
    for prompt in args.prompt or ["Once upon a time"]:
        for _ in range(args.n):
            start = time.time()
            text = tell(model, vocab, prompt, args.temp, rng)
            print(f"--- {time.time() - start:.1f} s, temperature {args.temp}\n{text}\n")


if __name__ == "__main__":
    main()
