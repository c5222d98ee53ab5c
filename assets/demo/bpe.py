#!/usr/bin/env python3
"""Byte-level BPE, the GPT-2 way: train a vocabulary, encode, decode.

    bpe.py train stories.txt vocab.json --size 1280
    bpe.py extend vocab.json stories.txt chats.txt longer.json --size 1408
    bpe.py show vocab.json "Once upon a time"

Ids 0..255 are the bytes, in GPT-2's order; then one id per merge; then the control tokens: <|endoftext|>, both the
beginning and the end of every story, and, in a vocabulary that was extended for conversations, <|im_start|> and
<|im_end|>. Text is cut into words by GPT-2's regular expression, written here for ASCII letters and digits.
"""
import collections
import json
import re
import sys

EOT, IM_START, IM_END = "<|endoftext|>", "<|im_start|>", "<|im_end|>"
WORDS = re.compile(r"'s|'t|'re|'ve|'m|'ll|'d| ?[A-Za-z]+| ?[0-9]+| ?[^\sA-Za-z0-9]+|\s+(?!\S)|\s+")


def byte_chars():
    """A printable character for each byte: itself where printable, else one from 256 on. The order is GPT-2's."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [b for b in range(256) if b not in printable]
    return {b: chr(b) for b in printable} | {b: chr(256 + i) for i, b in enumerate(others)}


BYTE_CHAR = byte_chars()
CHAR_BYTE = {c: b for b, c in BYTE_CHAR.items()}


def spell(word):
    return [BYTE_CHAR[b] for b in word.encode()]


def train(text, size):
    """The merges of a vocabulary of so many tokens."""
    counts = collections.Counter(WORDS.findall(text.replace(EOT + "\n", "")))
    return grow([(spell(w), n) for w, n in sorted(counts.items())], size - 257)


def extend(vocab, old_text, new_text, size):
    """More merges, for what new_text has and old_text has not: the old text keeps its tokens."""
    def cut(text):
        for control in (EOT, IM_START, IM_END):
            text = text.replace(control + "\n", "\n").replace(control, "\n")
        counts = collections.Counter(WORDS.findall(text))
        return [([vocab.tokens[i] for i in vocab.word(w)], n) for w, n in sorted(counts.items())]

    never = {p for w, _ in cut(old_text) for p in zip(w, w[1:])}
    return vocab.merges + grow(cut(new_text), size - 259 - len(vocab.merges), never)


def grow(words, n_merges, never=()):
    """The merges: the most frequent pair of neighbours within words becomes one token, again and again. Ties are
    broken by the alphabet, so the result depends on nothing but the text."""
    pairs, where = collections.Counter(), collections.defaultdict(set)
    for i, (w, n) in enumerate(words):
        for p in zip(w, w[1:]):
            pairs[p] += n
            where[p].add(i)
    merges = []
    while len(merges) < n_merges:
        best = max((p for p in pairs if p not in never), key=lambda p: (pairs[p], p))
        merges.append(best)
        for i in sorted(where[best]):
            w, n = words[i]
            for p in zip(w, w[1:]):
                pairs[p] -= n
                if not pairs[p]:
                    del pairs[p]
            w = merge(w, best)
            words[i] = (w, n)
            for p in zip(w, w[1:]):
                pairs[p] += n
                where[p].add(i)
        where.pop(best)
    return merges


def merge(word, pair):
    out, i = [], 0
    while i < len(word):
        if i + 1 < len(word) and word[i] == pair[0] and word[i + 1] == pair[1]:
            out.append(pair[0] + pair[1])
            i += 2
        else:
            out.append(word[i])
            i += 1
    return out


class Vocab:
    def __init__(self, merges, control=(EOT,)):
        self.merges, self.control = [tuple(m) for m in merges], list(control)
        self.tokens = list(BYTE_CHAR.values()) + [a + b for a, b in self.merges] + self.control
        self.id = {t: i for i, t in enumerate(self.tokens)}
        self.rank = {m: i for i, m in enumerate(self.merges)}
        self.eot = self.id[EOT]
        self.cache = {}
        assert len(self.id) == len(self.tokens)

    @staticmethod
    def load(path):
        with open(path) as f:
            v = json.load(f)
        return Vocab(v["merges"], v["control"])

    def save(self, path):
        with open(path, "w") as f:
            json.dump({"control": self.control, "merges": self.merges}, f, indent=0)
        print(f"{len(self.merges)} merges, {len(self.tokens)} tokens")

    def word(self, word):
        if word not in self.cache:
            w = spell(word)
            while len(w) > 1:
                best = min(zip(w, w[1:]), key=lambda p: self.rank.get(p, 1 << 30))
                if best not in self.rank:
                    break
                w = merge(w, best)
            self.cache[word] = [self.id[t] for t in w]
        return self.cache[word]

    def encode(self, text):
        return [i for w in WORDS.findall(text) for i in self.word(w)]

    def decode(self, ids):
        return bytes(CHAR_BYTE[c] for i in ids if self.tokens[i] not in self.control for c in self.tokens[i]).decode(errors="replace")


def read(path):
    with open(path) as f:
        return f.read()


def main():
    if sys.argv[1:2] == ["train"] and len(sys.argv) == 6:
        Vocab(train(read(sys.argv[2]), int(sys.argv[5]))).save(sys.argv[3])
    elif sys.argv[1:2] == ["extend"] and len(sys.argv) == 8:
        v = Vocab.load(sys.argv[2])
        merges = extend(v, read(sys.argv[3]), read(sys.argv[4]), int(sys.argv[7]))
        Vocab(merges, [EOT, IM_START, IM_END]).save(sys.argv[5])
    elif sys.argv[1:2] == ["show"] and len(sys.argv) == 4:
        v = Vocab.load(sys.argv[2])
        print([v.tokens[i] for i in v.encode(sys.argv[3])])
    else:
        sys.exit(__doc__)


if __name__ == "__main__":
    main()
