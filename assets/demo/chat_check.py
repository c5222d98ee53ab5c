#!/usr/bin/env python3
"""How often the model of a GGUF file answers rightly: conversations that were not trained on.

    chat_check.py demo.gguf [--n 200] [--kind tell] [--show 3] [--draft demo-draft.gguf] [--server http://127.0.0.1:8080]

Each turn of the assistant is written at temperature 0 after the conversation as it should have gone, by check.py's
forward pass or by a kin serve that has the same model. A story is right if it ends and has the name or the animal that
was asked for; an answer if it says every fact it must say; a call and JSON if they are equal as JSON. "Word for word"
counts the replies that are exactly the generator's. With --draft, the share of the tokens of the model's own replies that
the draft finds likeliest, given all before them.
"""
import argparse
import collections
import json
import re
import urllib.request

import bpe
import chats
import check

HELD_OUT_SEED = 7
MOST, MOST_OF_STORY = 60, 330       # tokens of a reply


class Model:
    """The numbers of a file, in numpy."""

    def __init__(self, path):
        meta, w = check.load(path)
        self.vocab, self.model, self.ids = check.vocab_of(meta), check.Model(meta, w), []

    def logits(self, ids):
        """Of each token behind those that were read before."""
        same = 0
        while same < min(len(ids) - 1, len(self.ids)) and ids[same] == self.ids[same]:
            same += 1
        if self.ids:
            self.model.rewind(same)
        self.ids = list(ids)
        return self.model(ids[same:])

    def write(self, ids, most):
        """A reply's ids, the last one an end if it came in time."""
        ends, out = {self.vocab.eot, self.vocab.id[bpe.IM_END]}, []
        while len(out) < most and not (out and out[-1] in ends):
            out.append(int(self.logits(ids + out)[-1].argmax()))
        return out


class Served:
    """The same from a server."""

    def __init__(self, path, url):
        self.vocab, self.url = check.vocab_of(check.load(path)[0]), url

    def write(self, ids, most):
        body = dict(prompt=ids, n_predict=most, temperature=0, return_tokens=True, cache_prompt=True)
        with urllib.request.urlopen(self.url + "/completion", json.dumps(body).encode()) as f:
            answer = json.load(f)
        return answer["tokens"] + [self.vocab.eot] * (answer["stop_type"] == "eos")


def parsed(text):
    try:
        return json.loads(text)
    except ValueError:
        return None


def is_right(turn, asked, reply, ended):
    if turn.kind == chats.TELL:
        kinds = "|".join(sorted(chats.ANIMALS, key=len, reverse=True))
        wanted = re.findall(rf"(?<=[a-z,] )[A-Z][a-z]+|\b(?:{kinds})\b", asked)
        return ended and len(reply) > 200 and all(w.lower() in reply.lower() for w in wanted[:1])
    if turn.kind == chats.CALL:
        call = re.fullmatch(r"<tool_call>\n(.*)\n</tool_call>", reply)
        return call is not None and parsed(call.group(1)) == parsed(turn.text.split("\n")[1])
    if turn.kind == chats.FORM:
        return parsed(reply) == parsed(turn.plain())
    return ended and all(f.lower() in reply.lower() for f in turn.facts)


def turns_of(vocab, turns):
    """For each turn of the assistant: (turn, what was asked, the ids before it)."""
    for i, turn in enumerate(turns):
        if turn.role == "assistant" and turn.kind != "form":
            ids = [vocab.eot]
            for text, _, control in chats.pieces(turns[:i]):
                ids += [vocab.id[text]] if control else vocab.encode(text)
            yield turn, turns[i - 1].plain(), ids + [vocab.id[bpe.IM_START]] + vocab.encode("assistant\n")


def measure(model, draft, n, kind, show):
    """kind: [right, word for word, all], and [tokens that the draft guesses, all]."""
    table, guessed = collections.defaultdict(lambda: [0, 0, 0]), collections.defaultdict(lambda: [0, 0])
    for i in range(n):
        for turn, asked, ids in turns_of(model.vocab, chats.chat(HELD_OUT_SEED * 10_000_000 + 2_000_000 + i, kind)):
            most = MOST_OF_STORY if turn.kind == chats.TELL else MOST
            out = model.write(ids, min(most, 512 - len(ids)))
            reply = model.vocab.decode(out)
            right = is_right(turn, asked, reply, len(out) < most)
            row = table[turn.kind]
            row[0], row[1], row[2] = row[0] + right, row[1] + (reply == turn.plain()), row[2] + 1
            if not right and row[2] - row[0] <= show:
                print(f"[{turn.kind}] {asked[-160:]!r}\n    said {reply[-200:]!r}\n    not  {turn.plain()[-200:]!r}", flush=True)
            if draft:
                draft.ids = []
                draft.model.reset()
                best = draft.logits((ids + out)[:-1]).argmax(-1)[len(ids) - 1:]
                g = guessed[turn.kind]
                g[0], g[1] = g[0] + sum(int(b) == o for b, o in zip(best, out)), g[1] + len(out)
    return table, guessed


def main():
    ap = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    ap.add_argument("gguf")
    ap.add_argument("--n", type=int, default=200, help="conversations")
    ap.add_argument("--kind", help="only " + ", ".join(k.__name__ for k, _ in chats.KINDS))
    ap.add_argument("--show", type=int, default=0, help="so many wrong replies of each kind")
    ap.add_argument("--draft")
    ap.add_argument("--server", help="a kin serve of the same file writes the replies")
    args = ap.parse_args()
    model = Served(args.gguf, args.server) if args.server else Model(args.gguf)
    table, guessed = measure(model, Model(args.draft) if args.draft else None, args.n, args.kind, args.show)
    print("| reply | right | word for word | of |" + " the draft guesses |" * bool(guessed))
    print("|---|---|---|---|" + "---|" * bool(guessed))
    for kind, (right, exact, n) in sorted(table.items()):
        tail = f" {100 * guessed[kind][0] / guessed[kind][1]:.0f} % |" if guessed else ""
        print(f"| {kind} | {100 * right / n:.1f} % | {100 * exact / n:.1f} % | {n} |" + tail)


if __name__ == "__main__":
    main()
