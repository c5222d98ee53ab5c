#!/bin/sh
# Damaged model files: `kin run` and `kin info` end with status 1 and one error message, and never crash.
#
#   test_damaged.sh PATH_TO_KIN      (mkmodel is in the same folder; VERBOSE=1 shows the sentences)
set -u
# shellcheck source=tests/checks.sh
. "$(dirname "$0")/checks.sh"

# expect_sentence NAME COMMAND...: status 1, nothing on stdout, one line "kin: ..." on stderr.
expect_sentence() {
    claim=$1
    shift
    status 1 "$@"
    lines "$err" 1
    says "$err" '^kin: .'
    says_not "$out" . # except possibly a newline
    [ -z "${VERBOSE:-}" ] || sed "s/^/$claim   /; s|$dir/||" "$err"
}

# damaged NAME: $dir/m.gguf must be refused by both commands.
damaged() {
    expect_sentence "info: $1" "$kin" info "$dir/m.gguf"
    expect_sentence "run: $1" "$kin" run -m "$dir/m.gguf" -p x -n 2
}

fresh() { cp "$dir/good.gguf" "$dir/m.gguf"; }

# put OFFSET BYTES: writes bytes, given as printf escapes, into m.gguf.
# shellcheck disable=SC2059 # escapes
put() { printf "$2" | dd of="$dir/m.gguf" bs=1 seek="$1" conv=notrunc 2>/dev/null; }

# offset_of TEXT: prints the offset of its first occurrence.
offset_of() { LC_ALL=C grep -abo -- "$1" "$dir/good.gguf" | head -n 1 | cut -d : -f 1; }

# Makes good.gguf, with further options of mkmodel.
make() { "$mkmodel" --preset tiny --layers 2 --vocab 300 --type q4_0 "$@" -o "$dir/good.gguf" >/dev/null || exit 1; }

make
claim='the sound model'
status 0 "$kin" run -m "$dir/good.gguf" -p x -n 2
status 0 "$kin" info "$dir/good.gguf"
[ "$n_failed" -eq 0 ] || exit 1
size=$(wc -c <"$dir/good.gguf")

# ---- truncated files
for n in 0 1 3 4 7 8 15 16 23 24 25 31 32 40 100 1000 5000 9999 $((size / 4)) $((size / 2)) $((size - 65536)) $((size - 1)); do
    head -c "$n" "$dir/good.gguf" >"$dir/m.gguf"
    damaged "cut at $n bytes"
done

# ---- header: magic, version, number of tensors, number of keys
header() {
    fresh
    put "$1" "$2"
    damaged "$3"
}
header 0 '\107\107\115\114' 'another magic'
header 0 '\106\125\107\107' 'the magic backwards'
header 4 '\000' 'version 0'
header 4 '\001' 'version 1'
header 4 '\377' 'version 255'
header 4 '\000\000\000\003' 'big-endian'
header 8 '\377\377\377\377\377\377\377\377' '2^64-1 tensors'
header 8 '\377\377\377\377\377\377\377\177' '2^63-1 tensors'
header 8 '\000\000\000\000\001' '2^32 tensors'
header 8 '\000' 'no tensors'
header 8 '\001' 'one tensor'
header 16 '\377\377\377\377\377\377\377\377' '2^64-1 keys'
header 16 '\000\000\000\000\000\000\000\100' '2^62 keys'
header 16 '\000' 'no keys'
header 16 '\001' 'one key'
header 24 '\377\377\377\377\377\377\377\377' 'a key of 2^64-1 bytes'
header 24 '\000\000\000\000\000\000\000\200' 'a key of 2^63 bytes'
header 24 '\000' 'an empty key'

# ---- values. after TEXT N BYTES CLAIM: writes BYTES at N bytes after the first TEXT. A value follows its key's name and its kind (u32).
after() {
    at=$(offset_of "$1")
    [ -n "$at" ] || fail "there is no $1 in the file"
    fresh
    put $((at + ${#1} + $2)) "$3"
    damaged "$4"
}
after general.architecture 0 '\011' 'the family of another kind'
after general.architecture 4 '\377\377\377\377\377\377\377\377' 'a family name of 2^64-1 bytes'
after general.architecture 12 'xxxxx' 'an unknown family'
after llama.block_count 4 '\000\000\000\000' 'no layers'
after llama.block_count 4 '\003\000\000\000' 'more layers than tensors'
after llama.block_count 4 '\377\377\377\377' '2^32-1 layers'
after llama.block_count 0 '\006' 'a number of layers of kind float'
after llama.block_count 0 '\143' 'a value of an unknown kind'
after llama.embedding_length 4 '\000\000\000\000' 'a width of 0'
after llama.embedding_length 4 '\001\001\000\000' 'a width of 257'
after llama.embedding_length 4 '\377\377\377\177' 'a width of 2^31-1'
after llama.attention.head_count 4 '\000\000\000\000' 'no heads'
after llama.attention.head_count 4 '\007\000\000\000' 'heads that do not divide'
after llama.attention.head_count_kv 4 '\003\000\000\000' 'KV heads that do not divide'
after llama.attention.head_count_kv 4 '\000\000\000\000' 'no KV heads'
after llama.rope.dimension_count 4 '\377\377\000\000' 'more rotated dimensions than a head has'
after llama.context_length 4 '\000\000\000\000' 'a context of 0'
after llama.feed_forward_length 4 '\001\000\000\000' 'a feed-forward width of 1'
after tokenizer.ggml.tokens 8 '\377\377\377\377\377\377\377\377' '2^64-1 tokens'
after tokenizer.ggml.tokens 4 '\011' 'an array of arrays'

# ---- tensor directory: after a name come the number of dimensions (u32), the dimensions (u64 each), type (u32), offset (u64)
after blk.0.attn_q.weight 0 '\000\000\000\000' 'no dimensions'
after blk.0.attn_q.weight 0 '\377\377\377\377' '2^32-1 dimensions'
after blk.0.attn_q.weight 4 '\000\000\000\000' 'a row of 0'
after blk.0.attn_q.weight 4 '\001\001\000\000' 'a row that is no whole blocks'
after blk.0.attn_q.weight 4 '\000\002\000\000' 'another shape'
after blk.0.attn_q.weight 4 '\000\000\000\000\000\000\000\100' 'a row of 2^62'
after blk.0.attn_q.weight 12 '\377\377\377\377\377\377\377\377' '-1 rows'
after blk.0.attn_q.weight 20 '\377\377\377\377' 'type 2^32-1'
after blk.0.attn_q.weight 20 '\004\000\000\000' 'a type that was removed'
after blk.0.attn_q.weight 20 '\030\000\000\000' 'integer weights'
after blk.0.attn_q.weight 24 '\001\000\000\000' 'data that is not aligned'
after blk.0.attn_q.weight 24 '\000\000\000\000\000\000\000\100' 'data beyond the end'
after blk.0.attn_q.weight 24 '\340\377\377\377\377\377\377\377' 'data before the beginning'
after blk.0.attn_norm.weight 12 '\002\000\000\000' 'a norm of integers or Q4_0'
fresh
put $(($(offset_of blk.0.attn_q.weight) + 5)) 'Attn'
damaged 'a layer without a weight'
fresh
put $(($(offset_of blk.1.attn_q.weight) + 4)) '0'
damaged 'two tensors of one name'
fresh
put $(($(offset_of output_norm.weight))) 'Output'
damaged 'no output norm'

# ---- experts
make --experts 4 --experts-used 2
after llama.expert_used_count 4 '\011\000\000\000' 'more experts used than there are'
after llama.expert_used_count 4 '\000\000\000\000' 'no experts used'
after llama.expert_count 4 '\010\000\000\000' 'more experts than weights for them'
after llama.expert_count 4 '\377\377\377\377' '2^32-1 experts'

# ---- weights that are all NaN: noticed when probabilities are computed from them, after the prompt has been printed
for options in '' '--experts 64 --experts-used 8 --ff 256'; do
    # shellcheck disable=SC2086 # words of options
    make $options
    size=$(wc -c <"$dir/good.gguf")
    head -c 60000 "$dir/good.gguf" >"$dir/m.gguf"
    head -c $((size - 60000)) /dev/zero | tr '\000' '\377' >>"$dir/m.gguf"
    expect_sentence "weights of NaN $options" "$kin" run -m "$dir/m.gguf" -p x -n 2 --no-echo
    says "$err" "no usable logits .*: the file may be damaged, or .*'kin cache rm --conversations'"
done

# ---- paths that are not model files
for path in "$dir/none.gguf" "$dir" /dev/null; do
    expect_sentence "info: $path" "$kin" info "$path"
    expect_sentence "run: $path" "$kin" run -m "$path" -p x -n 2
done

# ---- bytes of the header, one at a time: the file may be refused or not, but there is no crash
make
i=0
while [ $i -lt 64 ]; do
    fresh
    put $((i * 5)) '\377'
    claim="byte $((i * 5)) is 255"
    "$kin" info "$dir/m.gguf" >"$out" 2>"$err" </dev/null
    got=$?
    n_checks=$((n_checks + 1))
    [ $got -le 1 ] || fail "status $got"
    i=$((i + 1))
done

tally
