#!/usr/bin/env python3
"""Copies a GGUF file with all weights in F32, of the same values: exact.py FROM TO

llama-quantize leaves some tensors of new families as they are. Weights may be F32, F16 or Q8_0.
"""
import struct
import sys

F32, F16, Q8_0 = 0, 1, 8
SIZES = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}  # of values of metadata
STRING, ARRAY = 8, 9
ALIGNMENT = 32

data = open(sys.argv[1], "rb").read()
at = 0


def read(form):
    global at
    value = struct.unpack_from("<" + form, data, at)[0]
    at += struct.calcsize("<" + form)
    return value


def skip_string():
    global at
    n = read("Q")
    at += n


def skip_value(kind):
    global at
    if kind == STRING:
        skip_string()
    elif kind == ARRAY:
        of, n = read("I"), read("Q")
        for _ in range(n):
            skip_value(of)
    else:
        at += SIZES[kind]


def floats(kind, n, begin):
    if kind == F32:
        return data[begin : begin + 4 * n]
    if kind == F16:
        return struct.pack(f"<{n}f", *struct.unpack_from(f"<{n}e", data, begin))
    assert kind == Q8_0, kind
    blocks = (struct.unpack_from("<e32b", data, begin + 34 * i) for i in range(n // 32))
    return b"".join(struct.pack("<32f", *(block[0] * q for q in block[1:])) for block in blocks)


at = 8
n_tensors, n_keys = read("Q"), read("Q")
for _ in range(n_keys):
    skip_string()
    skip_value(read("I"))
head, tensors = data[:at], []
for _ in range(n_tensors):
    begin = at
    skip_string()
    name, n_dims, n = data[begin:at], read("I"), 1
    dims = [read("Q") for _ in range(n_dims)]
    for d in dims:
        n *= d
    tensors.append((name, dims, n, read("I"), read("Q")))
begin = (at + ALIGNMENT - 1) // ALIGNMENT * ALIGNMENT

infos, body = b"", b""
for name, dims, n, kind, offset in tensors:
    infos += name + struct.pack(f"<I{len(dims)}QIQ", len(dims), *dims, F32, len(body))
    body += floats(kind, n, begin + offset)
    body += bytes(-len(body) % ALIGNMENT)
with open(sys.argv[2], "wb") as f:
    f.write(head + infos + bytes(-len(head + infos) % ALIGNMENT) + body)
