#!/usr/bin/env python3
"""Trains the storyteller: a small llama (RMSNorm, rotary positions on neighbouring pairs, SwiGLU, grouped heads).

    train.py --vocab vocab.json --out DIR --steps 3000

Stories are made as they are needed, so none is seen twice. Each row of a batch holds whole stories, one behind the
other; a token attends only to its own story, just as it will when the model is asked for one. Master weights and norms
are float32, matrix products bfloat16 (on a CPU without bfloat16 instructions use --float32).
Writes DIR/model.npz (weights under llama.cpp's tensor names), DIR/config.json and DIR/log.json.
"""
import argparse
import json
import math
import os
import time

import numpy as np
import torch
import torch.nn.functional as F

import bpe
import stories

CONFIG = dict(n_layer=8, n_embd=256, n_ff=768, n_head=4, n_head_kv=2, head_dim=64, n_ctx=512, rope_base=10000.0,
              eps=1e-5)
ROW = 256           # tokens in a row of a batch
HELD_OUT_SEED = 7   # stories of this seed are never trained on
TRAIN_SEED = 1


def rows_of(vocab, seed):
    """Endless rows (ids, story number of each position) of ROW + 1 tokens. A story that the end of a row cuts off
    starts the next row again."""
    ids, doc, n, i = [], [], 0, 0
    while True:
        one = [vocab.eot] + vocab.encode(stories.story(seed * 10_000_000 + i)) + [vocab.eot]
        i += 1
        while True:
            room = ROW + 1 - len(ids)
            ids += one[:room]
            doc += [n] * min(room, len(one))
            n += 1
            if len(ids) < ROW + 1:
                break
            yield ids, doc
            cut = len(one) > room and room < ROW + 1
            ids, doc, n = [], [], 0
            if not cut:
                break


def batches(vocab, seed, n_rows):
    rows = rows_of(vocab, seed)
    while True:
        part = [next(rows) for _ in range(n_rows)]
        ids = torch.tensor([r[0] for r in part])
        doc = torch.tensor([r[1] for r in part])
        target = ids[:, 1:].clone()
        target[doc[:, 1:] != doc[:, :-1]] = -100            # the next story's first token is not to be guessed
        yield ids[:, :-1], doc[:, :-1], target


def new_weights(n_vocab, c):
    g = torch.Generator().manual_seed(1)
    kv = c["n_head_kv"] * c["head_dim"]
    q = c["n_head"] * c["head_dim"]

    def matrix(rows, cols, std):
        return torch.randn(rows, cols, generator=g) * std

    w = {"token_embd.weight": matrix(n_vocab, c["n_embd"], .02), "output_norm.weight": torch.ones(c["n_embd"])}
    std, deep = .04, .04 / math.sqrt(2 * c["n_layer"])
    for il in range(c["n_layer"]):
        w |= {f"blk.{il}.{k}.weight": v for k, v in {
            "attn_norm": torch.ones(c["n_embd"]), "attn_q": matrix(q, c["n_embd"], std),
            "attn_k": matrix(kv, c["n_embd"], std), "attn_v": matrix(kv, c["n_embd"], std),
            "attn_output": matrix(c["n_embd"], q, deep), "ffn_norm": torch.ones(c["n_embd"]),
            "ffn_gate": matrix(c["n_ff"], c["n_embd"], std), "ffn_up": matrix(c["n_ff"], c["n_embd"], std),
            "ffn_down": matrix(c["n_embd"], c["n_ff"], deep)}.items()}
    return w


def rope_tables(n, c):
    freq = c["rope_base"] ** (-torch.arange(0, c["head_dim"], 2) / c["head_dim"])
    angle = torch.arange(n)[:, None] * freq[None, :]
    return angle.cos(), angle.sin()


def rope(x, cos, sin):
    """Turns each pair (x[2i], x[2i+1]); x // (batch, position, head, dim)"""
    x0, x1 = x[..., 0::2], x[..., 1::2]
    cos, sin = cos[:, None], sin[:, None]
    return torch.stack((x0 * cos - x1 * sin, x0 * sin + x1 * cos), -1).flatten(-2)


def rms_norm(x, weight, eps):
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + eps) * weight


def forward(w, c, ids, doc, dtype):
    """Logits // (batch * position, vocabulary). The output matrix is the embedding."""
    n_batch, n = ids.shape
    nh, nkv, hd = c["n_head"], c["n_head_kv"], c["head_dim"]
    cos, sin = rope_tables(n, c)
    seen = (doc[:, :, None] == doc[:, None, :]) & torch.ones(n, n, dtype=torch.bool).tril()
    mask = torch.zeros(n_batch, 1, n, n).masked_fill(~seen[:, None], -1e4).to(dtype)

    def linear(x, name):
        return F.linear(x.to(dtype), w[name].to(dtype))

    x = F.embedding(ids, w["token_embd.weight"])
    for il in range(c["n_layer"]):
        blk = f"blk.{il}."
        h = rms_norm(x, w[blk + "attn_norm.weight"], c["eps"]).to(dtype)
        q = rope(linear(h, blk + "attn_q.weight").view(n_batch, n, nh, hd).float(), cos, sin)
        k = rope(linear(h, blk + "attn_k.weight").view(n_batch, n, nkv, hd).float(), cos, sin)
        v = linear(h, blk + "attn_v.weight").view(n_batch, n, nkv, hd)
        q = (q * hd ** -.5).to(dtype).transpose(1, 2)
        k = k.to(dtype).transpose(1, 2).repeat_interleave(nh // nkv, 1)
        v = v.transpose(1, 2).repeat_interleave(nh // nkv, 1)
        p = torch.softmax(q @ k.transpose(-1, -2) + mask, -1)
        x = x + linear((p @ v).transpose(1, 2).reshape(n_batch, n, nh * hd), blk + "attn_output.weight")
        h = rms_norm(x, w[blk + "ffn_norm.weight"], c["eps"]).to(dtype)
        h = F.silu(linear(h, blk + "ffn_gate.weight")) * linear(h, blk + "ffn_up.weight")
        x = x + linear(h, blk + "ffn_down.weight")
    return linear(rms_norm(x, w["output_norm.weight"], c["eps"]), "token_embd.weight").view(n_batch * n, -1)


def loss_of(w, c, batch, dtype):
    ids, doc, target = batch
    return F.cross_entropy(forward(w, c, ids, doc, dtype).float(), target.reshape(-1), ignore_index=-100)


def held_out_loss(w, c, batches_, dtype):
    with torch.no_grad():
        n = [(b[2] >= 0).sum().item() for b in batches_]
        return sum(loss_of(w, c, b, dtype).item() * m for b, m in zip(batches_, n)) / sum(n)


def save(w, c, path):
    np.savez(os.path.join(path, "model.tmp.npz"), **{k: v.detach().numpy() for k, v in w.items()})
    os.replace(os.path.join(path, "model.tmp.npz"), os.path.join(path, "model.npz"))
    with open(os.path.join(path, "config.json"), "w") as f:
        json.dump(c, f, indent=1)


def main():
    ap = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    ap.add_argument("--vocab", default="vocab.json")
    ap.add_argument("--out", default=".")
    ap.add_argument("--steps", type=int, default=3000)
    ap.add_argument("--rows", type=int, default=16)
    ap.add_argument("--lr", type=float, default=2e-3)
    ap.add_argument("--threads", type=int, default=2)
    ap.add_argument("--float32", action="store_true")
    args = ap.parse_args()
    torch.manual_seed(1)
    torch.set_num_threads(args.threads)
    dtype = torch.float32 if args.float32 else torch.bfloat16
    vocab, c = bpe.Vocab.load(args.vocab), CONFIG
    w = {k: v.requires_grad_() for k, v in new_weights(len(vocab.tokens), c).items()}
    held = [b for b, _ in zip(batches(vocab, HELD_OUT_SEED, args.rows), range(6))]
    opt = torch.optim.AdamW([{"params": [v for v in w.values() if v.ndim == 2], "weight_decay": .1},
                             {"params": [v for v in w.values() if v.ndim == 1], "weight_decay": 0}],
                            lr=args.lr, betas=(.9, .95))
    log, start, total, recent = [], time.time(), 0, []
    for step, batch in zip(range(args.steps), batches(vocab, TRAIN_SEED, args.rows)):
        warm = min(1, (step + 1) / 200)
        cosine = .5 * (1 + math.cos(math.pi * step / args.steps))
        for group in opt.param_groups:
            group["lr"] = args.lr * warm * (.02 + .98 * cosine)
        loss = loss_of(w, c, batch, dtype)
        opt.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(w.values(), 1.0)
        opt.step()
        total += batch[0].numel()
        recent.append(loss.item())
        if step % 100 == 99 or step == args.steps - 1 or step in (9, 29):
            seconds = time.time() - start
            row = dict(step=step + 1, tokens=total, seconds=round(seconds), train=round(sum(recent) / len(recent), 4))
            if step % 500 == 499 or step == args.steps - 1:
                row["held_out"] = round(held_out_loss(w, c, held, dtype), 4)
                save(w, c, args.out)
            log.append(row)
            recent = []
            print(row, f"{total / seconds:.0f} tokens/s", flush=True)
            with open(os.path.join(args.out, "log.json"), "w") as f:
                json.dump(dict(config=c, parameters=sum(v.numel() for v in w.values()), rows=args.rows, row=ROW,
                    lr=args.lr,
                               dtype=str(dtype), log=log), f, indent=0)


if __name__ == "__main__":
    main()
