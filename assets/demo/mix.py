"""What the model is trained on: stories, or stories and conversations, as rows of tokens, made as they are needed.

A row holds whole documents, one behind the other; a token attends only to its own document, just as it will when the
model is asked. Each token to be guessed has a weight: 0 for what a user says, and more for short answers than for stories.
"""
import numpy as np

import chats
import stories
from bpe import IM_END, IM_START

SHARE_OF_STORIES = .5
WEIGHT = {chats.TELL: 1.0}
ANSWER_WEIGHT = 3.0
POOL = 48                   # documents to choose from when a row is filled


def story_tokens(vocab, seed):
    ids = [vocab.eot] + vocab.encode(stories.story(seed)) + [vocab.eot]
    return ids, [0.0] + [1.0] * (len(ids) - 1)


def chat_tokens(vocab, turns):
    ids, weights = [vocab.eot], [0.0]
    kinds = iter([t.kind for t in turns if t.role == "assistant"])
    weight = 0.0
    for text, learned, control in chats.pieces(turns):
        new = [vocab.id[text]] if control else vocab.encode(text)
        if text == "assistant\n" and not learned and ids[-1] == vocab.id[IM_START]:
            weight = WEIGHT.get(next(kinds), ANSWER_WEIGHT)
        ids += new
        weights += [weight if learned else 0.0] * len(new)
    return ids, weights


def documents(vocab, seed, with_chats):
    """Endless (ids, weights)."""
    n = seed * 10_000_000
    while True:
        n += 1
        if with_chats and stories.Teller(n + 3_000_000).chance(1 - SHARE_OF_STORIES):
            yield chat_tokens(vocab, chats.chat(n))
        else:
            yield story_tokens(vocab, n)


def rows(vocab, seed, length, with_chats):
    """Endless rows of length + 1: (ids, weights, number of the document of each position, -1 for the empty rest). The
    longest document that still fits is next; one that no row can hold is left out."""
    source, pool = documents(vocab, seed, with_chats), []
    while True:
        ids, weights, doc, n = [], [], [], 0
        while True:
            pool += [d for d, _ in zip(source, range(POOL - len(pool))) if len(d[0]) <= length + 1]
            pool.sort(key=lambda d: len(d[0]))
            fits = [i for i, d in enumerate(pool) if len(ids) + len(d[0]) <= length + 1]
            if not fits:
                break
            one = pool.pop(fits[-1] if n else len(pool) // 2)
            ids, weights, doc, n = ids + one[0], weights + one[1], doc + [n] * len(one[0]), n + 1
        rest = length + 1 - len(ids)
        yield ids + [vocab.eot] * rest, weights + [0.0] * rest, doc + [-1] * rest


def batches(vocab, seed, n_rows, length, with_chats):
    """Endless (ids, doc, target, weight), each (n_rows, length)."""
    source = rows(vocab, seed, length, with_chats)
    while True:
        ids, weights, doc = (np.array(x) for x in zip(*(next(source) for _ in range(n_rows))))
        yield ids[:, :-1], doc[:, :-1], ids[:, 1:], weights[:, 1:].astype(np.float32)
