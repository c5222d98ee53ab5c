#!/usr/bin/env python3
"""Trains the storyteller: a small llama (RMSNorm, rotary positions on neighbouring pairs, SwiGLU, grouped heads).

    train.py --vocab vocab.json --out DIR --steps 3000                                           stories
    train.py --vocab longer.json --out DIR2 --chats --start DIR/model.npz --start-vocab vocab.json
             --keep DIR/model.npz --keep-vocab vocab.json                                        and conversations
    train.py --vocab longer.json --out DIR3 --chats --teacher DIR2/model.npz --layers 2           a draft for it

Documents are made as they are needed (mix.py), so none is seen twice. Master weights and norms are float32, matrix
products bfloat16 (on a CPU without bfloat16 instructions use --float32). With --keep half of what is learned of stories is
what those weights think of them, so conversations do not make stories worse. With a teacher the model learns the teacher's
probabilities, and begins with some of its layers. Writes DIR/model.npz (weights under llama.cpp's tensor names),
DIR/config.json and DIR/log.json.
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
import mix

CONFIG = dict(n_layer=8, n_embd=256, n_ff=768, n_head=4, n_head_kv=2, head_dim=64, n_ctx=512, rope_base=10000.0,
              eps=1e-5)
HELD_OUT_SEED = 7   # documents of this seed are never trained on


def batches(args, vocab, seed):
    for batch in mix.batches(vocab, seed, args.rows, args.row, args.chats):
        yield [torch.from_numpy(x) for x in batch]


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


def forward(w, c, ids, doc, dtype, wanted):
    """Logits of the positions that are wanted // (wanted, vocabulary). The output matrix is the embedding."""
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
    return linear(rms_norm(x[wanted], w["output_norm.weight"], c["eps"]), "token_embd.weight").float()


class Storyteller:
    """A model of stories alone, whose probabilities of their words are to be kept."""

    def __init__(self, path, old, vocab):
        self.w = grown(load(path), old, vocab)
        self.unknown = torch.tensor([token not in old.id for token in vocab.tokens])
        self.turn = vocab.id.get(bpe.IM_START, -1)

    def probabilities(self, c, batch, dtype):
        """(which tokens are of stories outside conversations, their probabilities)"""
        ids, doc, _, weight = batch
        turns = [set(d[i == self.turn].tolist()) for i, d in zip(ids, doc)]
        story = torch.tensor([[n not in row for n in d.tolist()] for row, d in zip(turns, doc)]) & (weight > 0)
        with torch.no_grad():
            logits = forward(self.w, c, ids, doc, dtype, story)
            return story, torch.softmax(logits.masked_fill(self.unknown, -math.inf), -1)


def loss_of(w, c, batch, dtype, keep=None):
    """Cross-entropy. With keep, half of what a story's token should be is what that storyteller thinks."""
    ids, doc, target, weight = batch
    learned = weight > 0
    logp = torch.log_softmax(forward(w, c, ids, doc, dtype, learned), -1)
    each = -logp.gather(1, target[learned][:, None])[:, 0]
    if keep:
        story, p = keep.probabilities(c, batch, dtype)
        story = story[learned]
        each = each.index_put((story,), .5 * each[story] - .5 * (p * logp[story]).sum(-1))
    return (each * weight[learned]).sum() / weight.sum()


def distance_of(w, c, batch, dtype, teacher, teacher_config):
    """How far the probabilities are from the teacher's: Kullback and Leibler's divergence."""
    ids, doc, _, weight = batch
    with torch.no_grad():
        want = torch.log_softmax(forward(teacher, teacher_config, ids, doc, dtype, weight > 0), -1)
    got = torch.log_softmax(forward(w, c, ids, doc, dtype, weight > 0), -1)
    return (want.exp() * (want - got)).sum(-1).mean()


def held_out_loss(w, c, batches_, dtype):
    with torch.no_grad():
        n = [b[3].sum().item() for b in batches_]
        return sum(loss_of(w, c, b, dtype).item() * m for b, m in zip(batches_, n)) / sum(n)


def agreement(w, c, batches_, dtype, teacher, teacher_config):
    """The share of learned tokens for which the likeliest one is the teacher's."""
    same = n = 0
    with torch.no_grad():
        for ids, doc, _, weight in batches_:
            a, b = (forward(x, y, ids, doc, dtype, weight > 0).argmax(-1) for x, y in ((w, c), (teacher, teacher_config)))
            same, n = same + (a == b).sum().item(), n + len(a)
    return same / n


def load(path):
    return {k: torch.from_numpy(v.astype(np.float32)) for k, v in np.load(path).items()}


def grown(w, old, vocab):
    """Weights for a longer vocabulary: a token keeps its row, a new one begins as the mean of the old tokens in it."""
    rows_, embd = [], w["token_embd.weight"]
    for token in vocab.tokens:
        text = "" if token in vocab.control else bytes(bpe.CHAR_BYTE[x] for x in token).decode(errors="replace")
        parts = [old.id[token]] if token in old.id else old.encode(text) or [old.eot]
        rows_.append(embd[parts].mean(0))
    return w | {"token_embd.weight": torch.stack(rows_)}


def pupil(teacher, n_teacher, n_layer):
    """Begins as the teacher without most of its layers: the first and the last ones stay."""
    keep = [round(i * (n_teacher - 1) / max(1, n_layer - 1)) for i in range(n_layer)]
    w = {k: v for k, v in teacher.items() if not k.startswith("blk.")}
    for new, il in enumerate(keep):
        w |= {k.replace(f"blk.{il}.", f"blk.{new}."): v for k, v in teacher.items() if k.startswith(f"blk.{il}.")}
    return {k: v.clone() for k, v in w.items()}


def save(w, c, path):
    np.savez(os.path.join(path, "model.tmp.npz"), **{k: v.detach().numpy() for k, v in w.items()})
    os.replace(os.path.join(path, "model.tmp.npz"), os.path.join(path, "model.npz"))
    with open(os.path.join(path, "config.json"), "w") as f:
        json.dump(c, f, indent=1)


def arguments():
    ap = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    ap.add_argument("--vocab", default="vocab.json")
    ap.add_argument("--out", default=".")
    ap.add_argument("--chats", action="store_true", help="conversations too")
    ap.add_argument("--start", help="weights to begin with")
    ap.add_argument("--start-vocab", help="their vocabulary, if it is another one")
    ap.add_argument("--keep", help="weights that tell stories well, to be kept near in stories")
    ap.add_argument("--keep-vocab", help="their vocabulary")
    ap.add_argument("--teacher", help="weights of a model of 8 layers to learn from")
    ap.add_argument("--layers", type=int, default=CONFIG["n_layer"])
    ap.add_argument("--steps", type=int, default=3000)
    ap.add_argument("--minutes", type=float, default=0, help="instead of all steps: the rate falls to its end by then")
    ap.add_argument("--rows", type=int, default=8)
    ap.add_argument("--row", type=int, default=512, help="tokens in a row of a batch")
    ap.add_argument("--lr", type=float, default=2e-3)
    ap.add_argument("--seed", type=int, default=1, help="of the documents; not 7")
    ap.add_argument("--threads", type=int, default=2)
    ap.add_argument("--float32", action="store_true")
    return ap.parse_args()


def first_weights(args, vocab, c, teacher):
    if teacher and not args.start:
        return pupil(teacher, CONFIG["n_layer"], args.layers)
    w = load(args.start) if args.start else new_weights(len(vocab.tokens), c)
    return grown(w, bpe.Vocab.load(args.start_vocab), vocab) if args.start_vocab else w


def train(args, vocab, c, w, teacher, keep, dtype):
    held = [b for b, _ in zip(batches(args, vocab, HELD_OUT_SEED), range(6))]
    opt = torch.optim.AdamW([{"params": [v for v in w.values() if v.ndim == 2], "weight_decay": .1},
                             {"params": [v for v in w.values() if v.ndim == 1], "weight_decay": 0}],
                            lr=args.lr, betas=(.9, .95))
    log, start, total, recent = [], time.time(), 0, []
    for step, batch in zip(range(args.steps), batches(args, vocab, args.seed)):
        done = step / args.steps if not args.minutes else min(1, (time.time() - start) / 60 / args.minutes)
        cosine = .5 * (1 + math.cos(math.pi * done))
        for group in opt.param_groups:
            group["lr"] = args.lr * min(1, (step + 1) / 50) * (.02 + .98 * cosine)
        loss = distance_of(w, c, batch, dtype, teacher, CONFIG) if teacher else loss_of(w, c, batch, dtype, keep)
        opt.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(w.values(), 1.0)
        opt.step()
        total += batch[0].numel()
        recent.append(loss.item())
        last = step == args.steps - 1 or done == 1
        if step % 50 == 49 or last or step in (9, 29):
            seconds = time.time() - start
            row = dict(step=step + 1, tokens=total, seconds=round(seconds), train=round(sum(recent) / len(recent), 4))
            if step % 100 == 99 or last:
                row["held_out"] = round(held_out_loss(w, c, held, dtype), 4)
                if teacher:
                    row["agreement"] = round(agreement(w, c, held, dtype, teacher, CONFIG), 4)
                save(w, c, args.out)
            log.append(row)
            recent = []
            print(row, f"{total / seconds:.0f} tokens/s", flush=True)
            with open(os.path.join(args.out, "log.json"), "w") as f:
                json.dump(dict(config=c, parameters=sum(v.numel() for v in w.values()), rows=args.rows, row=args.row,
                               lr=args.lr, dtype=str(dtype), log=log), f, indent=0)
        if last:
            break


def main():
    args = arguments()
    torch.manual_seed(1)
    torch.set_num_threads(args.threads)
    os.makedirs(args.out, exist_ok=True)
    vocab, c = bpe.Vocab.load(args.vocab), CONFIG | {"n_layer": args.layers}
    teacher = load(args.teacher) if args.teacher else None
    keep = Storyteller(args.keep, bpe.Vocab.load(args.keep_vocab), vocab) if args.keep else None
    w = {k: v.requires_grad_() for k, v in first_weights(args, vocab, c, teacher).items()}
    train(args, vocab, c, w, teacher, keep, torch.float32 if args.float32 else torch.bfloat16)


if __name__ == "__main__":
    main()
