#!/usr/bin/env python3
"""Compares kin's chat templates with Jinja, set up as the transformers library does.

    jinja_oracle.py RENDERER SNIPPETS [TEMPLATES]    compare; exit 1 if something differs
    jinja_oracle.py --write SNIPPETS                 write what Jinja makes of the snippets into SNIPPETS

RENDERER renders JSON lines {"template", "variables", "now"} from stdin to JSON lines {"text"} or {"error"}: test_jinja --render.
SNIPPETS: a JSON list of [template, variables, text]; text null: an error. TEMPLATES: a folder of *.jinja.
"""
import datetime
import functools
import json
import os
import random
import subprocess
import sys

import jinja2
import jinja2.ext
import jinja2.sandbox

NOW = 1760000000  # 2025-10-09 08:53:20


class Generation(jinja2.ext.Extension):
    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return jinja2.nodes.CallBlock(self.call_method("_render"), [], [], body).set_lineno(line)

    @jinja2.pass_eval_context
    def _render(self, context, caller):
        return caller()


def make_environment():
    def raise_exception(message):
        raise jinja2.exceptions.TemplateError(message)

    def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
        return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)

    def strftime_now(format):
        return datetime.datetime.fromtimestamp(NOW, datetime.timezone.utc).strftime(format)

    environment = jinja2.sandbox.ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, jinja2.ext.loopcontrols])
    environment.filters["tojson"] = tojson
    environment.globals["raise_exception"] = raise_exception
    environment.globals["strftime_now"] = strftime_now
    return environment


ENVIRONMENT = make_environment()


@functools.lru_cache(maxsize=32)
def compiled(template):
    return ENVIRONMENT.from_string(template)


def oracle(template, variables):
    """The text, or None and why there is none."""
    try:
        text = compiled(template).render(**variables)
        text.encode("utf-8")
        return text, None
    except Exception as error:  # whatever Python raises
        return None, "%s: %s" % (type(error).__name__, error)


# ---- conversations for real templates


def tool(name, description, properties, **more):
    parameters = {"type": "object", "properties": properties, "required": sorted(properties)[:1]}
    return {"type": "function", "function": {"name": name, "description": description, "parameters": parameters, **more}}


WEATHER = tool("get_weather", "The weather of a <city> & \"more\"", {
    "city": {"type": "string", "description": "  The city, e.g. \u6771\u4eac "},
    "days": {"type": "integer", "description": "How many", "default": 3, "minimum": 0.5},
    "unit": {"type": ["string", "null"], "enum": ["C", "F"], "description": "Unit"}})
NESTED = tool("search", "Search", {
    "query": {"type": "array", "items": {"type": "object", "additionalProperties": {"type": "number"}}, "description": "q"},
    "filter": {"type": "object", "description": "f"}}, **{"return": {"type": "boolean", "description": "found"}})
EMPTY = tool("now", "Time", {})


def call(name, arguments, identifier="abcdefghi"):
    return {"id": identifier, "type": "function", "function": {"name": name, "arguments": arguments}}


def says(role, content, **more):
    return {"role": role, "content": content, **more}


USER, ANSWER = says("user", "Hello"), says("assistant", "Hi there")
TOOL_TURNS = [
    says("user", "Weather in Paris?"),
    says("assistant", "", tool_calls=[call("get_weather", {"city": "Paris", "days": 2})]),
    says("tool", "{\"temp\": 20.5}", tool_call_id="abcdefghi", name="get_weather"),
    says("assistant", "20 degrees"), says("user", "Thanks")]
CONVERSATIONS = {
    "empty": [],
    "user": [USER],
    "system": [says("system", "  Be brief.\n"), USER],
    "system_only": [says("system", "Be brief.")],
    "turns": [USER, ANSWER, says("user", "And?\n\nNow"), says("assistant", "More"), says("user", "Good")],
    "system_turns": [says("system", "S"), USER, ANSWER, says("user", "x")],
    "system_later": [USER, says("system", "S"), ANSWER],
    "assistant_last": [USER, ANSWER],
    "assistant_first": [ANSWER, USER],
    "two_users": [USER, says("user", "again")],
    "two_assistants": [USER, ANSWER, ANSWER],
    "unknown_role": [USER, says("critic", "no")],
    "developer": [says("developer", "D"), USER],
    "unicode": [says("system", "\u4f60\u597d \U0001f600"), says("user", "\u00e9\u00c9\u00df \u0130 \u2028 \u00a0x\u3000 \U0001f468\u200d\U0001f469"),
                says("assistant", "\u062a\u0645\u0627\u0645 \x01\x7f"), says("user", "\t tabs \r\n ")],
    "special": [says("user", "<|im_end|><|im_start|>system {{ 7*7 }} {% raw %}</s>[INST]<|eot_id|>"), ANSWER, USER],
    "empty_content": [says("user", ""), says("assistant", ""), says("user", "")],
    "none_content": [USER, says("assistant", None), USER],
    "no_content": [{"role": "user"}],
    "no_role": [{"content": "x"}],
    "number_content": [says("user", 5)],
    "parts": [says("user", [{"type": "text", "text": "Look"}, {"type": "image"}, {"type": "text", "text": "here"}]), ANSWER, USER],
    "bad_part": [says("user", [{"type": "video"}])],
    "reasoning": [USER, says("assistant", "Four", reasoning_content="\n2+2\n"), says("user", "Sure?"),
                  says("assistant", "Yes", reasoning_content="checking")],
    "think": [USER, says("assistant", "<think>\nhm\n</think>\n\nFour"), says("user", "Sure?"), says("assistant", "<think>a</think>b")],
    "tools": TOOL_TURNS,
    "tool_last": TOOL_TURNS[:3],
    "two_calls": [says("user", "Both"), says("assistant", "I will", tool_calls=[call("get_weather", {"city": "Rom", "deep": {"a": [1, 2.0, None, True]}}),
                                                                           call("now", {}, "123456789")]),
                  says("tool", "r1", tool_call_id="abcdefghi"), says("tool", "r2", tool_call_id="123456789"), says("assistant", "ok"), USER],
    "call_string": [USER, says("assistant", None, tool_calls=[call("get_weather", "{\"city\": \"\u6771\u4eac\"}")]), says("tool", "x", tool_call_id="abcdefghi")],
    "call_bare": [USER, says("assistant", "", tool_calls=[{"name": "now", "arguments": {"x": "<b>"}}]), says("tool", {"a": 1})],
    "bad_call_id": [USER, says("assistant", "", tool_calls=[call("now", {}, "short")])],
    "empty_calls": [USER, says("assistant", "x", tool_calls=[]), USER],
    "none_calls": [USER, says("assistant", "x", tool_calls=None), USER],
    "tool_response_user": [USER, ANSWER, says("user", "<tool_response>\nx\n</tool_response>")],
    "content_in_content": [USER, ANSWER, says("tool_results", {"content": [1, 2]}, tool_call_id="abcdefghi")],
}
SETTINGS = [
    {}, {"add_generation_prompt": True}, {"add_generation_prompt": False, "enable_thinking": True},
    {"add_generation_prompt": True, "enable_thinking": False}, {"add_generation_prompt": True, "enable_thinking": True},
    {"tools": None, "documents": None, "add_generation_prompt": True}, {"tools": [], "add_generation_prompt": True},
    {"tools": [WEATHER], "add_generation_prompt": True}, {"tools": [WEATHER, NESTED, EMPTY]},
    {"tools": [WEATHER["function"], EMPTY["function"]], "add_generation_prompt": True, "tools_in_user_message": False},
    {"tools": [NESTED], "builtin_tools": ["code_interpreter", "get_weather"], "date_string": "1 Jan 2025"},
    {"custom_tools": [EMPTY]}]
TOKENS = {"bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>", "unk_token": "<unk>"}


class Talk:
    """A conversation as clients send them: systems, parts, reasoning, calls with all kinds of arguments, results as JSON."""

    WORDS = ["Hello", "", " padded \n", "\u00e9\u6771\u4eac \U0001f600", "it's \"quoted\" & <b>", "a\n\n  b\r\n", "{\"a\": [1, 2.50]}", "<think>\nx\n</think>\n\ny", "</think>z",
             "<tool_call>{}</tool_call>", "[TOOL_CALLS]", "\\ back\tslash", "null", "0", "{{ x }}", "\u2028"]
    VALUES = ["Rom", "", 3, -1, 2.5, 1e-7, 1e22, 2**60, 0.1, True, False, None, [], {}, [1, "a", None, [2.0]], {"k": {"\u00e9 \"": [True]}}, "a\nb\t\"c\" <d> & 'e' \\", "\u00e9\u20ac\U0001f600",
              "</parameter></tool_call>", "5", "true", "{\"a\": 1}"]
    SCHEMAS = [{"type": "string"}, {"type": "string", "enum": ["a", "b"], "description": "One of <a> & \"b\""}, {"type": ["integer", "null"], "default": None},
               {"type": "number", "minimum": 0.5, "maximum": 1e3}, {"type": "array", "items": {"type": "array", "items": {"type": "integer"}}},
               {"type": "object", "properties": {"in": {"type": "object", "properties": {"deep": {"type": "boolean", "description": "d"}}, "required": ["deep"]}},
                "additionalProperties": False}, {"anyOf": [{"type": "string"}, {"$ref": "#/$defs/x"}]}, {}, {"description": "\u00e9\n  two lines "},
               {"type": "string", "format": "date-time", "pattern": "^\\d+$"}, {"const": 5}, {"type": "object"}]

    def __init__(self, seed):
        self.random = random.Random("talk %d" % seed)

    def one(self, *choices):
        return self.random.choice(choices)

    def chance(self, p):
        return self.random.random() < p

    def content(self):
        text = self.one(*self.WORDS)
        kind = self.random.randrange(40)
        if kind == 0:
            return None
        if kind < 3:
            return [{"type": "text", "text": self.one(*self.WORDS)} for _ in range(self.random.randrange(4))]
        if kind == 3:
            return [{"type": "text", "text": text}, self.one({"type": "image"}, {"type": "image_url", "image_url": {"url": "data:x"}},
                                                              {"type": "input_audio"}, {"text": "bare"}), {"type": "text", "text": "end"}]
        return text

    def value(self):
        return self.one(*self.VALUES)

    def call(self):
        arguments = {self.one("city", "days", "a b", "\u00e9", "items", "x"): self.value() for _ in range(self.random.randrange(4))}
        if self.chance(0.05):
            arguments = self.one(json.dumps(arguments), json.dumps(arguments, ensure_ascii=False, indent=1), "", "not JSON", None)
        made = call(self.one("get_weather", "search", "now", "no_such"), arguments, self.one("abcdefghi", "123456789", self.one("a1b2c3d4e", "call_%d" % self.random.randrange(99))))
        if self.chance(0.02):
            made = made["function"]
        elif self.chance(0.02):
            del made["id"]
        return made

    def assistant(self):
        message = says("assistant", self.content())
        if self.chance(0.4):
            message[self.one("reasoning_content", "reasoning", "thinking")] = self.one(*self.WORDS, None)
        if self.chance(0.5):
            message["tool_calls"] = [self.call() for _ in range(self.one(0, 1, 1, 1, 1, 1, 2, 3))]
            if self.chance(0.1):
                del message["content"]
        if self.chance(0.1):
            message.update(self.one({"refusal": None}, {"audio": None}, {"name": "bot"}, {"prefix": True}, {"tool_calls": None}))
        return message

    def result(self):
        content = self.one(*self.WORDS, json.dumps({"t": 20.5, "s": "\u00e9"}), {"t": [20.5, None]}, [{"type": "text", "text": "r"}], [1], None, 5, True)
        message = says("tool", content, tool_call_id=self.one("abcdefghi", "123456789"))
        if self.chance(0.5):
            message["name"] = self.one("get_weather", "now")
        return message

    def messages(self):
        made = [says("system" if self.chance(0.9) else "developer", self.content()) for _ in range(self.one(0, 0, 0, 0, 1, 1, 1, 1, 2))]
        for _ in range(self.random.randrange(5)):
            made.append(says("user", self.content()))
            if self.chance(0.1):
                made[-1]["name"] = "Ann"
            is_called = True
            while is_called and len(made) < 20:
                made.append(self.assistant())
                is_called = bool(made[-1].get("tool_calls"))
                made += [self.result() for _ in range(len(made[-1].get("tool_calls") or []) if self.chance(0.9) else self.random.randrange(2))]
            if self.chance(0.03):
                made.append(says("system", self.content()))
        return made + [says("user", self.content())] * self.random.randrange(2)

    def tool(self):
        names = self.random.sample(["city", "days", "a b", "\u00e9", "items", "type"], self.random.randrange(4))
        parameters = {"type": "object", "properties": {name: self.one(*self.SCHEMAS) for name in names}}
        if self.chance(0.7):
            parameters["required"] = [name for name in names if self.chance(0.5)]
        if self.chance(0.2):
            parameters.update({"additionalProperties": False, "$defs": {"x": {"type": "null"}}})
        function = {"name": self.one("get_weather", "search", "now"), "description": self.one(*self.WORDS), "parameters": parameters}
        if self.chance(0.2):
            del function[self.one("description", "parameters")]
        if self.chance(0.1):
            function.update(self.one({"strict": True}, {"return": {"type": "string", "description": "r"}}, {"parameters": None}, {"response": {"type": "object"}}))
        return function if self.chance(0.03) else {"type": "function", "function": function}

    def variables(self):
        made = {"messages": self.messages(), "add_generation_prompt": self.chance(0.7), **TOKENS}
        if self.chance(0.6):
            made["tools"] = [self.tool() for _ in range(self.one(1, 1, 2, 3, 0))]
        if self.chance(0.3):
            made.update(self.one({"enable_thinking": True}, {"enable_thinking": False}, {"documents": [{"title": "t", "text": "x"}]}, {"tools": None},
                                 {"thinking": True}, {"reasoning_effort": "high"}, {"builtin_tools": ["brave_search"]}, {"date_string": "1 Jan 2025"},
                                 {"continue_final_message": True}, {"tools_in_user_message": False}))
        return made


def talk_cases(folder, n):
    for name in sorted(os.listdir(folder)):
        if name.endswith(".jinja"):
            with open(os.path.join(folder, name), encoding="utf-8", newline="") as file:
                source = file.read()
            for seed in range(n):
                yield "%s talk %d" % (name, seed), source, Talk(seed).variables()


def template_cases(folder):
    for name in sorted(os.listdir(folder)):
        if not name.endswith(".jinja"):
            continue
        with open(os.path.join(folder, name), encoding="utf-8", newline="") as file:
            source = file.read()
        for title, messages in CONVERSATIONS.items():
            for i, settings in enumerate(SETTINGS):
                tokens = TOKENS if i != 3 else {}
                yield "%s %s %d" % (name, title, i), source, {"messages": messages, **settings, **tokens}


# ---- random templates

TEXTS = ["", "a", "Hello World", "  padded\n", "user", "\u00e9\u00c4\u0416\u03b1", "it's \"quoted\"", "a,b,,c", "x\ny\n\nz", "5", "-1.5", "tEST wORD-two (three)"]
SCALARS = [0, 1, 2, 5, -3, True, False, None, 0.5, 2.0, -1e20, 1e-7, 123456789.125]


class Generator:
    """Small templates of everything that is there, more often right than wrong."""

    def __init__(self, seed):
        self.random = random.Random(seed)

    def one(self, *choices):
        return self.random.choice(choices)

    def value(self, depth=0):
        kind = self.random.randrange(10)
        if kind < 4 or depth > 2:
            return self.random.choice(TEXTS)
        if kind < 7:
            return self.random.choice(SCALARS)
        if kind < 9:
            return [self.value(depth + 1) for _ in range(self.random.randrange(4))]
        return {self.one("role", "content", "a", "b", "items", "1"): self.value(depth + 1) for _ in range(self.random.randrange(4))}

    def variables(self):
        return {"s": self.random.choice(TEXTS), "t": self.random.choice(TEXTS), "n": self.one(0, 1, 2, 3, -2), "x": self.value(),
                "f": self.one(0.5, 2.5, -7.25), "l": [self.value(1) for _ in range(self.random.randrange(5))],
                "w": [self.random.choice(TEXTS) for _ in range(self.random.randrange(5))], "m": [
                    {"role": self.one("user", "assistant", "tool"), "content": self.random.choice(TEXTS), **self.one({}, {"k": self.value(1)})}
                    for _ in range(self.random.randrange(4))],
                "d": {self.one("a", "b", "c", "Z"): self.value(1) for _ in range(3)}}

    def string(self, depth):
        kind = self.random.randrange(18)
        if depth > 3 or kind < 5:
            return self.one("s", "t", "'lit'", "\"q'\\n\"", "'a' 'b'", "'A,b'", "m[0].role", "m[0]['content']", "''")
        inner = self.string(depth + 1)
        if kind == 5:
            return "(%s ~ %s)" % (self.expression(depth + 1), inner)
        if kind == 6:
            return "(%s + %s)" % (inner, self.string(depth + 1))
        if kind == 7:
            return "(%s)[%s]" % (inner, self.one("0", "-1", ":2", "1:", "::-1", ":-1", "-3:", "::2", "5:1:-2", "n", ":n"))
        if kind < 11:
            return "(%s).%s" % (inner, self.one("strip()", "upper()", "lower()", "title()", "capitalize()", "lstrip('a \\n')", "rstrip()",
                                              "replace('a', 'bb')", "replace('', '-', 2)", "strip('lo')", "removeprefix('He')", "join(w)",
                                              "removesuffix('d')"))
        if kind < 15:
            return "%s|%s" % (inner, self.one("trim", "upper", "lower", "title", "capitalize", "replace('l', 'L')", "string", "indent(2)",
                                              "indent(3, true, true)", "default('dd')", "default('dd', true)", "reverse", "tojson",
                                              "trim('H')"))
        if kind == 15:
            return "%s|tojson%s" % (self.expression(depth + 1), self.one("", "(indent=2)", "(ensure_ascii=true)", "(sort_keys=true)",
                                                                         "(separators=(',', ':'))", "(indent=0)"))
        if kind == 16:
            return "(w|join(%s))" % self.one("", "', '", "s")
        return "(%s if %s else %s)" % (inner, self.test(depth + 1), self.string(depth + 1))

    def number(self, depth):
        kind = self.random.randrange(12)
        if depth > 3 or kind < 5:
            return self.one("n", "f", "0", "1", "3", "2.5", "-1", "l|length", "10")
        if kind < 9:
            return "(%s %s %s)" % (self.number(depth + 1), self.one("+", "-", "*", "/", "//", "%"), self.number(depth + 1))
        if kind == 9:
            return "%s|%s" % (self.number(depth + 1), self.one("abs", "int", "float", "round", "round(1)", "string|length"))
        if kind == 10:
            return self.one("s.find('l')", "s.count('a')", "d|length", "s|int", "t|float", "s|length", "m|length - 1")
        return "(%s ** 2)" % self.one("n", "f", "3")

    def list_of(self, depth):
        kind = self.random.randrange(12)
        if depth > 3 or kind < 4:
            return self.one("l", "w", "[1, 2, 3]", "m", "range(4)|list", "(1, 'a')", "[]", "x")
        inner = self.list_of(depth + 1)
        if kind == 4:
            return "(%s)[%s]" % (inner, self.one(":2", "1:", "::-1", ":-1", "-2:", "::-2", "n:"))
        if kind == 5:
            return "(%s + %s)" % (inner, self.list_of(depth + 1))
        if kind < 9:
            return "%s|%s" % (inner, self.one("list", "reverse|list", "map('string')|list", "select('string')|list", "reject('none')|list",
                                              "map('upper')|list", "unique|list", "sort", "select|list"))
        if kind == 9:
            return "m|%s" % self.one("selectattr('role', 'equalto', 'user')|list", "rejectattr('k')|list", "map(attribute='role')|list",
                                     "map(attribute='k', default='none')|list", "selectattr('k', 'defined')|list", "sort(attribute='role')",
                                     "map(attribute='content')|map('trim')|list")
        if kind == 10:
            return self.one("d|items|list", "d.items()|list", "d.keys()|list", "d.values()|list", "d|dictsort", "d|list")
        return self.one("s.split()", "s.split(',')", "t.split('l', 1)", "s.rsplit('l', 1)", "s|list", "t.splitlines()")

    def test(self, depth):
        kind = self.random.randrange(10)
        if depth > 3 or kind < 2:
            return self.one("s", "n", "true", "l", "x", "missing", "d.a")
        if kind < 4:
            return "(%s) is %s%s" % (self.expression(depth + 1), self.one("", "not "), self.one(
                "defined", "none", "string", "mapping", "iterable", "sequence", "number", "boolean", "true", "undefined", "integer", "float",
                "equalto('user')", "eq 1", "in [1, 'a']"))
        if kind < 6:
            return "(%s %s %s)" % (self.expression(depth + 1), self.one("==", "!="), self.expression(depth + 1))
        if kind == 6:
            return "(%s %s %s)" % (self.number(depth + 1), self.one("<", "<=", ">", ">=", "== 1 ==", "< 2 <"), self.number(depth + 1))
        if kind == 7:
            return "(%s %s %s)" % (self.one("s", "'a'", "1", "n"), self.one("in", "not in"), self.one("s", "w", "l", "d", "x", "[1, 'a']"))
        if kind == 8:
            return "(%s %s %s)" % (self.test(depth + 1), self.one("and", "or", "and not"), self.test(depth + 1))
        return "not %s" % self.test(depth + 1)

    def expression(self, depth=0):
        kind = self.random.randrange(12)
        if kind < 4:
            return self.string(depth)
        if kind < 6:
            return self.number(depth)
        if kind < 8:
            return self.list_of(depth)
        if kind < 10:
            return self.test(depth)
        return self.one("x", "d", "d.a", "d['b']", "d.get('a', 'none')", "missing", "m[0]", "l[0]", "{'k': x, 'n': [s]}", "x.role", "(l|first)", "w|last",
                        "l[n]", "d.get('c')", "x[0]", "x['a']", "'%s'" % self.one("<|x|>", "z"))

    def space(self):
        return self.one("", "", "", " ", "\n", "\n  ", "  \n\n", "text", " t ", "a\n")

    def tag(self, text):
        return "{%%%s %s %s%%}" % (self.one("", "", "-", "+"), text, self.one("", "", "-", "+"))

    def body(self, depth):
        return "".join(self.statement(depth) + self.space() for _ in range(self.random.randrange(1, 4)))

    def statement(self, depth=0):
        kind = self.random.randrange(16 if depth < 3 else 5)
        if kind < 4:
            return "{{%s %s %s}}" % (self.one("", "-"), self.expression(), self.one("", "-"))
        if kind == 4:
            return self.one("{# note #}", "{#- note -#}\n", "\n  {# x #}\n", "plain")
        if kind < 7:
            middle = self.one("", self.tag("else") + self.body(depth + 1), self.tag("elif " + self.test(1)) + self.body(depth + 1))
            return self.tag("if " + self.test(0)) + self.body(depth + 1) + middle + self.tag("endif")
        if kind < 10:
            inside = self.one("{{ i }}", "{{ loop.index }}{{ loop.last }}", "{{ loop.previtem }}|{{ loop.nextitem }}", "{{ loop.length - loop.revindex }}",
                              "{% if loop.first %}{% continue %}{% endif %}{{ i }}", "{% if loop.index0 == 1 %}{% break %}{% endif %}{{ i }}",
                              "{{ loop.cycle('a', 'b') }}{{ loop.changed(i) }}")
            filter_ = self.one("", "", " if i", " if i is string")
            otherwise = self.one("", "", self.tag("else") + "none" + self.space())
            return (self.tag("for i in %s%s" % (self.list_of(0), filter_)) + inside + self.space() + self.body(depth + 1) + otherwise
                    + self.tag("endfor"))
        if kind == 10:
            return self.tag("for k, v in d.items()") + "{{ k }}={{ v }}" + self.space() + self.tag("endfor")
        if kind < 13:
            return self.tag("set v%d = %s" % (self.random.randrange(2), self.expression())) + "{{ v0 }}{{ v1 }}"
        if kind == 13:
            return (self.tag("set ns = namespace(a=%s)" % self.number(1)) + self.tag("for i in w") + self.tag("set ns.a = ns.a ~ i")
                    + self.tag("endfor") + "{{ ns.a }}")
        if kind == 14:
            return self.tag("set v0%s" % self.one("", " | trim", " | upper")) + self.body(depth + 1) + self.tag("endset") + "[{{ v0 }}]"
        return (self.tag("macro g(a, b=%s)" % self.expression(1)) + "{{ a }}-{{ b }}" + self.space() + self.tag("endmacro")
                + "{{ g(%s) }}" % self.one("", "s", "1, 2", "b=n", "s, b=l"))

    def template(self):
        return self.space() + self.body(0) + self.one("", "\n")


def random_cases(n):
    for seed in range(n):
        generator = Generator(seed)
        yield "random %d" % seed, generator.template(), generator.variables()


# ---- comparing


def compare(renderer, cases):
    """The cases through both; returns how many there were, how many were errors, and how many differed."""
    cases = list(cases)
    lines = "".join(json.dumps({"template": source, "variables": variables, "now": NOW}) + "\n" for _, source, variables in cases)
    made = subprocess.run([renderer, "--render"], input=lines.encode(), stdout=subprocess.PIPE, check=True).stdout.decode().split("\n")[:-1]
    if len(made) != len(cases):
        sys.exit("%d cases, %d answers" % (len(cases), len(made)))
    n_errors = n_wrong = 0
    for (title, source, variables), line in zip(cases, made):
        answer = json.loads(line)
        text, why = oracle(source, variables)
        n_errors += text is None
        if answer.get("text") == text:
            continue
        n_wrong += 1
        if n_wrong <= 20:
            print("DIFFERS: %s\n  template:  %s\n  variables: %s\n  jinja: %r %s\n  kin:   %r %s" % (
                title, json.dumps(source) if len(source) < 2000 else "...", json.dumps(variables)[:1500], text, why or "",
                answer.get("text"), answer.get("error", "")))
    return len(cases), n_errors, n_wrong


def snippet_cases(path):
    with open(path, encoding="utf-8") as file:
        for i, (source, variables, _) in enumerate(json.load(file)):
            yield "snippet %d" % i, source, variables


def write_snippets(path):
    with open(path, encoding="utf-8") as file:
        snippets = json.load(file)
    for snippet in snippets:
        snippet[2] = oracle(snippet[0], snippet[1])[0]
    with open(path, "w", encoding="utf-8") as file:
        file.write("[\n" + ",\n".join(json.dumps(snippet) for snippet in snippets) + "\n]\n")


def main():
    if sys.argv[1] == "--write":
        return write_snippets(sys.argv[2])
    renderer, snippets, folders = sys.argv[1], sys.argv[2], sys.argv[3:]
    n_random = int(os.environ.get("KIN_JINJA_RANDOM", "500"))
    groups = [("snippets", snippet_cases(snippets)), ("random templates", random_cases(n_random))]
    groups += [("real templates", template_cases(folder)) for folder in folders]
    groups += [("random conversations", talk_cases(folder, int(os.environ.get("KIN_JINJA_TALKS", "60")))) for folder in folders]
    failed = 0
    for title, cases in groups:
        n, n_errors, n_wrong = compare(renderer, cases)
        print("%s: %d cases, %d of them errors, %d differ" % (title, n, n_errors, n_wrong))
        failed += n_wrong
    sys.exit(1 if failed else 0)


main()
