#!/usr/bin/env python3
"""Random JSON schemas, and an independent opinion on documents that kin's grammars write for them.

    schemas.py generate N SEED             N schemas, one a line
    schemas.py arguments N SEED            N schemas of a tool's arguments: objects
    schemas.py check SCHEMAS DOCUMENTS     holds line I of DOCUMENTS (of bench/schema_walk) against schema I

Exit status 1 if a document is invalid, or if there are too few documents; 77 if there is no jsonschema.
"""
import json
import random
import sys

NAMES = ["a", "b", "ab", "name", "na\u00efve", "id", "value", "x-y", "with space", 'quo"te', "items", "back\\slash"]
PATTERNS = ["^[a-z]+$", "^\\d{3}-\\d{4}$", "^(foo|bar)?$", "[0-9]", "^a.b$", "^[^x]{2,5}$", "^\\w+@\\w+\\.com$", "x|y", "^(ab|c){1,3}$",
            "^\\S+$", "^[\\u00e0-\\u00ff]$", "^[A-F0-9]{2}(:[A-F0-9]{2}){1,7}$", "^\"\\\\$", "^$", "^[\\s]?z", "^[+-]?\\d+(\\.\\d+)?$"]
AHEAD = ["^(?=.*[A-Z])(?=.*\\d).{2,9}$", "^(?!ab)[a-z]{1,5}$", "^(?!.*xx)[a-z ]*$", "(?=\\d{2})\\d", "^(?:a(?!c)|b)+[abc]?$", "^(?![^a]*b$).{1,4}$",
         "^(?!.*\\W\\W)\\S+$", "^(?=[^\\d]+$)\\w*$"]
BESIDE_FORMAT = ["^20", "[02468]", "^[^a-f]+$", "Z$", "^(?!.*T00)", "^\\d{4}-(0[13-9]|1[0-2])-", "^(?=.*7).*\\d$", "-4[0-9a-f]{3}-", "0{2}",
                 "^[0-9:.]+(Z|[+-]\\d\\d:00)$", "^(10|192\\.168)\\."]
FORMATS = ["date", "time", "date-time", "uuid", "ipv4", "color"]


class Maker:
    def __init__(self, rng):
        self.rng = rng
        self.n_defs = rng.randrange(3)

    def pick(self, *choices):
        return self.rng.choice(choices)

    def chance(self, p):
        return self.rng.random() < p

    def scalar(self):
        return self.pick(None, True, False, 0, 1, -7, 2.5, 1e3, "", "a", "some text", "tab\t\"quoted\"", "\u20ac", "\U0001f600")

    def value(self):
        return self.pick(self.scalar(), self.scalar(), [self.scalar()], {"k": self.scalar()}, [], {})

    def number(self, integer):
        bound = self.pick(0, 1, -1, 7, 10, -10, 99, 100, 101, 255, 1000, -500, 65535, 123456789, 2**53, 10**18)
        if not integer and self.chance(0.4):
            bound = self.pick(0.5, -0.5, 0.25, 1.75, -3.125, 99.99, 0.001, 10.01)
        return bound

    def numbers(self, integer):
        schema = {"type": "integer" if integer else "number"}
        if self.chance(0.5):
            low = self.number(integer)
            schema[self.pick("minimum", "exclusiveMinimum")] = low
            if self.chance(0.5):
                schema[self.pick("maximum", "exclusiveMaximum")] = low + self.pick(1, 2, 5, 10, 93, 1000, 0.5, 10**6)
        elif self.chance(0.4):
            schema[self.pick("maximum", "exclusiveMaximum")] = self.number(integer)
        if self.chance(0.2):
            schema["multipleOf"] = self.pick(1, 2, 3, 7, 10, 60, 1000, 0.5, 2.5)
        return schema

    def string(self):
        schema = {"type": "string"}
        kind = self.rng.randrange(8)
        if kind == 0:
            schema["pattern"] = self.pick(*PATTERNS)
        elif kind == 5:
            schema["pattern"] = self.pick(*AHEAD)
        elif kind == 6:
            schema["pattern"] = self.pick(*PATTERNS, *AHEAD)
            schema["maxLength"] = self.pick(1, 4, 12, 30)
            if self.chance(0.4):
                schema["minLength"] = self.pick(1, 3)
            if self.chance(0.4):
                schema["allOf"] = [{"pattern": self.pick(*PATTERNS, *AHEAD)}]
        elif kind == 7:
            schema["format"] = self.pick(*FORMATS[:-1])  # with "color", random tokens would not get to what the pattern asks for
            schema["pattern"] = self.pick(*BESIDE_FORMAT, self.pick(*PATTERNS, *AHEAD))
            if self.chance(0.3):
                schema["allOf"] = [{"pattern": self.pick(*BESIDE_FORMAT)}]
            if self.chance(0.3):
                schema[self.pick("minLength", "maxLength")] = self.pick(9, 10, 20, 36)
        elif kind == 1:
            schema["format"] = self.pick(*FORMATS)
        elif kind == 2:
            schema["minLength"] = self.pick(0, 1, 3, 20)
            if self.chance(0.6):
                schema["maxLength"] = schema["minLength"] + self.pick(0, 1, 5, 200)
        elif kind == 3:
            schema["maxLength"] = self.pick(0, 1, 4, 12, 100, 5000)
        return schema

    def array(self, depth):
        schema = {"type": "array"}
        if self.chance(0.8):
            schema["items"] = self.schema(depth - 1)
        if self.chance(0.25):
            schema["prefixItems"] = [self.schema(depth - 1) for _ in range(self.rng.randrange(1, 4))]
            if self.chance(0.3):
                schema["items"] = False
        if self.chance(0.3):
            schema["minItems"] = self.rng.randrange(3)
        if self.chance(0.3):
            schema["maxItems"] = schema.get("minItems", 0) + self.pick(0, 1, 3, 100)
        return schema

    def object(self, depth):
        schema = {"type": "object"}
        names = self.rng.sample(NAMES, self.rng.randrange(6))
        if names or self.chance(0.5):
            schema["properties"] = {name: self.schema(depth - 1) for name in names}
        if self.chance(0.7):
            schema["required"] = [name for name in names if self.chance(0.5)] + (["extra"] if self.chance(0.1) else [])
        if self.chance(0.4):
            schema["additionalProperties"] = self.pick(True, False, False, self.schema(depth - 1))
        return schema

    def one_of(self, depth):
        if self.chance(0.5):
            alternatives = [self.object(depth - 1) for _ in range(self.rng.randrange(2, 4))]
            for i, alternative in enumerate(alternatives):
                alternative.setdefault("properties", {})["kind"] = {"const": "kind%d" % i}
                alternative["required"] = alternative.get("required", []) + ["kind"]
            return {"oneOf": alternatives}
        makers = [self.string, lambda: self.numbers(False), lambda: {"type": "null"}, lambda: {"type": "boolean"},
                  lambda: self.object(depth - 1), lambda: self.array(depth - 1)]
        return {"oneOf": [make() for make in self.rng.sample(makers, self.rng.randrange(1, 4))]}

    def combined(self, depth):
        kind = self.rng.randrange(4)
        if kind == 0:
            return {"anyOf": [self.schema(depth - 1) for _ in range(self.rng.randrange(1, 4))]}
        if kind == 1:
            return self.one_of(depth)
        if kind == 2:
            return {"allOf": [self.object(depth - 1) for _ in range(2)]}
        schema = self.object(depth)
        names = list(schema.get("properties", {})) or ["a"]
        schema["anyOf"] = [{"required": [self.pick(*names)]} for _ in range(2)]
        return schema

    def plain(self):
        kind = self.rng.randrange(10)
        if kind == 0:
            return self.pick(True, {}, {"title": "anything"})
        if kind == 1:
            return {"enum": [self.value() for _ in range(self.rng.randrange(1, 5))]}
        if kind == 2:
            return {"const": self.value()}
        if kind == 3:
            return {"type": self.pick("null", "boolean", "string", "integer", "number", "object", "array")}
        if kind == 4:
            return {"type": self.rng.sample(["null", "boolean", "string", "integer", "number", "object", "array"], 2)}
        if kind == 5:
            return {"type": self.pick("string", "integer", "number"), "enum": [self.scalar() for _ in range(6)] + ["z", 5]}
        if kind < 8:
            return self.string()
        return self.numbers(self.chance(0.5))

    def schema(self, depth):
        kind = self.rng.randrange(10)
        if depth <= 0 or kind < 3:
            return self.plain()
        if kind < 6:
            return self.object(depth)
        if kind < 8:
            return self.array(depth)
        if kind == 8:
            return self.combined(depth)
        if self.n_defs == 0:
            return self.plain()
        return {"$ref": "#/$defs/d%d" % self.rng.randrange(self.n_defs)}

    def whole(self):
        schema = self.schema(self.pick(0, 1, 2, 3))
        while not isinstance(schema, dict):
            schema = self.schema(2)
        if self.n_defs:
            schema["$defs"] = {"d%d" % i: self.schema(2) for i in range(self.n_defs)}
        if self.chance(0.2):
            schema.update({"$schema": "https://json-schema.org/draft/2020-12/schema", "description": "a schema"})
        return schema


    def arguments(self):
        schema = self.object(self.pick(1, 2, 3))
        if self.n_defs:
            schema["$defs"] = {"d%d" % i: self.schema(2) for i in range(self.n_defs)}
        return schema


def generate(n, seed, what):
    for i in range(n):
        print(json.dumps(getattr(Maker(random.Random("%d/%d" % (seed, i))), what)()))


def check(schemas, documents):
    try:
        import jsonschema
    except ImportError:
        print("no python3-jsonschema")
        return 77
    validator_of = jsonschema.Draft202012Validator
    n = n_documents = n_endless = n_invalid = 0
    refused = {}
    for schema, document in zip(open(schemas), open(documents, encoding="utf-8", errors="replace")):
        n += 1
        document = document[:-1]
        if document[0] == "-":
            refused[document[1:70]] = refused.get(document[1:70], 0) + 1
            continue
        if document[0] == "?":  # random tokens have not ended a call; it is no call then
            n_endless += 1
            continue
        n_documents += 1
        try:
            if document[0] != "+":
                raise ValueError(document)
            validator_of(json.loads(schema), format_checker=validator_of.FORMAT_CHECKER).validate(json.loads(document[1:]))
        except Exception as error:  # any error: the document is not what the schema asked for
            n_invalid += 1
            if n_invalid <= 5:
                print("INVALID: %s\n  schema:   %s  document: %s" % (str(error).split("\n")[0][:200], schema, document[:300]))
    for why, count in sorted(refused.items(), key=lambda pair: -pair[1])[:8]:
        print("  %5d refused: %s" % (count, why))
    print("%d schemas, %d documents, %d without an end, %d invalid" % (n, n_documents, n_endless, n_invalid))
    return 1 if n_invalid or n_documents < n // 2 else 0


if __name__ == "__main__":
    if sys.argv[1:2] == ["generate"] and len(sys.argv) == 4:
        generate(int(sys.argv[2]), int(sys.argv[3]), "whole")
    elif sys.argv[1:2] == ["arguments"] and len(sys.argv) == 4:
        generate(int(sys.argv[2]), int(sys.argv[3]), "arguments")
    elif sys.argv[1:2] == ["check"] and len(sys.argv) == 4:
        sys.exit(check(sys.argv[2], sys.argv[3]))
    else:
        sys.exit(__doc__)
