#!/usr/bin/env python3
"""Conversations about the stories of stories.py, written by a grammar.

    chats.py --n 10 --seed 1 [--kind tell]

A conversation is a list of turns. The storyteller tells stories, answers questions about them (questions.py), calls
tools (tools.py), and writes JSON. As with stories, a seed gives the same conversations on every machine.
"""
import argparse
import json
import re

import stories
import tools
from bpe import IM_END, IM_START
from questions import ABOUT, ANY, CHILD, NAMED_ANIMAL, SUMMARY
from teller import ANIMALS, BOYS, COLORS, FOREST, GIRLS, SYLLABLES, TALE, TOYS, Teller

NAMES = """Ahmed Akira Amara Anders Annika Arjun Asha Astrid Bea Bjorn Camila Carlos Chiara Chloe Dmitri Elias Elif Elin
Esra Farid Felicia Freya Gabriel Gita Gustav Hamid Heidi Hiro Ida Igor Ingrid Isaac Isla Jakob Jamal Jana Jin Jonah Juan
Kai Karim Klara Lars Leon Lin Linus Lotte Luca Maja Malik Marco Marta Mateo Mehmet Mika Milan Mohamed Nadia Naomi Nikolai
Olga Oskar Otto Pedro Petra Quinn Rafael Rania Rosa Sami Sasha Selma Sofia Stella Sven Talia Tariq Thea Tove Uma Victor
Vera Wanda Xavier Yara Yuki Yusuf Zara Zeno""".split()
# What each turn of the assistant is measured as by check.py.
TELL, ANSWER, SUM, CHAT, UNKNOWN, CALL, RESULT, FORM = ("story", "question", "summary", "small talk", "unknown", "tool call",
                                                        "tool result", "JSON")


class Turn:
    """role: system, user, assistant or tool. text: may have parts between \\x01 and \\x02, which nobody could guess and
    which are not learned. kind, facts: what an assistant's turn is, and what a right one must say."""

    def __init__(self, role, text, kind="", facts=()):
        self.role, self.text, self.kind, self.facts = role, text, kind, tuple(facts)

    def plain(self):
        return re.sub("[\x01\x02]", "", self.text)


# ---------------------------------------------------------------- stories and their facts

class Recorder(Teller):
    """A Teller that remembers the first friend as {f}."""

    def cast(self, *args, **kw):
        super().cast(*args, **kw)
        return self.set(f=self.b)


class Story:
    """A story with its facts; text is the same as of stories.story(seed), but that a child may have another name."""

    def __init__(self, seed):
        t = Recorder(seed)
        plot = t.pick(stories.PLOTS)
        plot(t)
        self.plot, self.text, self.world, self.t = plot.__name__, t.text(), t.world, t
        self.find_more()
        self.hero = self.world["a"]
        if not self.hero.animal and t.chance(.35):
            self.rename(t.pick(NAMES) if t.chance(.6) else "".join(t.some(SYLLABLES, 2 + t.chance(.4))).capitalize())

    def find_more(self):
        """Facts that a plot does not keep under a name of their own."""
        w, text = self.world, self.text
        low = text.lower()
        if self.plot == "be_brave":
            w["fear"] = re.search(r"afraid of ([a-z ]+?)\.", text).group(1)
        if self.plot == "the_race":
            w["winner"] = "nobody" if "both" in low else str(w["f"])
        if self.plot == "high_fruit":
            w["helper"] = w["h"] if str(w["h"]) in low or str(w["h"]) in text else w["f"]
        if self.plot == "little_dragon":
            w["crying"] = w["b"] if w["a"].kind != "dragon" else "nobody"
            w.setdefault("do", "nothing")
        if self.plot == "first_school_day":
            w["bag"] = w["col"] if f"{w['col']} bag" in text else "nothing"

    def rename(self, name):
        old = self.hero.name
        if re.search(rf"\b{name}\b", self.text):
            return
        def new(s):
            return re.sub(rf"\b{old}\b", name, s)
        self.text = new(self.text)
        for who in self.world.values():
            if isinstance(who, stories.Who):
                who.name, who.full, who.intro = new(who.name), new(who.full), new(who.intro)

    def is_whole(self):
        return self.text.count("\n\n") >= 2

    def says(self, fact):
        return re.search(rf"(?<![a-z]){re.escape(fact.lower())}", self.text.lower()) is not None

    def fill(self, template):
        """The template's text with its facts in it, as a sentence."""
        n = len(self.t.parts)
        self.t(template)
        return self.t.parts.pop() if len(self.t.parts) > n else ""

    def facts_of(self, template):
        """The facts that a template names, as words of the text."""
        names = [x.replace("p.at", "p.name") for x in re.findall(r"{([a-z0-9._]+)}", template)]
        return {n: ("{" + n + "}").format(**self.world) for n in names if not n.endswith((".his", ".he"))}

    def questions(self):
        """(question, answer, facts of the answer) of this story, each that the text can answer."""
        subjects, _, own = ABOUT[self.plot]
        if self.hero.kind in ("boy", "girl"):
            own = own + CHILD
        elif not self.hero.name.startswith("the "):
            own = own + NAMED_ANIMAL
        out = []
        for question, answer in own + ANY:
            try:
                facts = self.facts_of(answer)
            except (KeyError, AttributeError):
                continue
            asked = self.facts_of(question)
            new = [v for k, v in facts.items() if k not in asked or "the name of" in question and k == "a"]
            new = [v for v in new if v != str(self.hero)] or new
            is_kind = "{a.kind}" in answer
            if all(is_kind or self.says(v) for v in facts.values()) and "nobody" not in new:
                out.append((self.fill(question), self.fill(answer), new or [self.fill(answer)]))
        if self.plot == "the_race" and self.world["winner"] == "nobody":
            out.append((self.fill("[Who won?|Who won the race?]"), "They both won.", ["both"]))
        return out

    def summary(self):
        text = ABOUT[self.plot][1]
        text = "In short, " + (text[0].lower() + text[1:] if text.startswith(("The ", "It ", "A ")) else text)
        return self.fill(SUMMARY), self.fill(text), list(self.facts_of(text).values())[:2]

    def subjects(self):
        """What somebody may have asked for who was told this story."""
        t, w, hero = self.t, self.world, self.hero
        kind = hero.kind
        out = [f"a {kind}", f"a {kind}", f"a {kind}"]
        if not hero.name.startswith("the "):
            out += [f"a {kind} named {hero}", f"a {kind} called {hero}", f"{hero}"] * 2
            out += [f"{hero} the {kind}"] * (hero.animal and kind not in TALE)
        else:
            out += [f"a little {kind}", f"{hero}"]
        for key in "os":
            if key in w and self.says(w[key].n):
                thing = f"a {w[key].n}"
                out += [f"a {kind} and {thing}", f"{hero} and {thing}", thing]
                out += [f"a {w[key]}"] * (w[key].word in COLORS)
        if "p" in w and self.says(w["p"].name):
            out += [f"a {kind} {w['p'].at}", w["p"].name]
        f = w.get("f")
        if f and f is not hero and f.kind not in ("boy", "girl") and hero.animal and self.says(f.kind):
            out += [f"a {kind} and a {f.kind}"] * 2
        elif f and f is not hero and hero.kind in ("boy", "girl") and self.says(f.name):
            out += [f"{hero} and {f}"]
        own = [self.fill(s) for s in ABOUT[self.plot][0]]
        own = [s[0].lower() + s[1:] if not s.startswith(("Grand", "Mom", "Dad")) else s for s in own]
        return t.pick([t.pick(out), t.pick(own)])

    def record(self):
        """key: value of this story, for JSON."""
        w, hero = self.world, self.hero
        out = {}
        named = not hero.name.startswith("the ")
        out["name" if named else "hero"] = str(hero)
        out["hero"] = str(hero)
        out["kind"] = hero.kind
        if hero.animal and hero.kind not in TALE:
            out["animal"] = hero.kind
        for key in "os":
            if key in w and self.says(str(w[key])):
                out["thing"] = w[key].n
                if w[key].word in COLORS:
                    out["color"] = w[key].word
        if "p" in w and self.says(w["p"].name):
            out["place"] = w["p"].name
        f = w.get("f")
        if f and self.says(f.name) and f is not hero and self.plot != "little_dragon":
            out["friend"] = f.name
        return out


# ---------------------------------------------------------------- what is said

HELLO = ["Hello!", "Hi!", "Hello", "Hi", "Good morning!", "Hey!", "Hi there!", "Good evening!", "hello", "hi"]
TALK = [
    ("[How are you?|How are you today?|Are you well?]", "I am very well, thank you! Shall I tell you a story?"),
    ("[Who are you?|What are you?|What is your name?|Who is there?|Are you a robot?]",
     "I am a little storyteller. I live in this computer."),
    ("[What can you do?|What do you do?|How can you help me?|Help|help|What can I ask you?|Can you help me?]",
     "I can tell you little stories and answer questions about them."),
    ("[Thank you!|Thanks!|Thank you very much.|Thanks|That was nice.|What a nice story!|I like it.|Great!|Wow!]",
     "You are welcome!"),
    ("[Goodbye!|Bye!|Bye|Good night!|See you tomorrow.|I have to go now.]", "Goodbye! Come back soon."),
    ("[Who made you?|Where do you come from?|How were you made?]", "I was made from nothing but little stories."),
    ("[Do you like stories?|Do you know stories?|Do you know a story?]", "Yes, I love stories! Shall I tell you one?"),
    ("[Are you real?|Are you alive?|Are you human?|Are you a person?]", "No, I am only a very small model."),
    ("[How old are you?|When were you born?]", "I do not know. I am very young."),
    ("[I am sad.|I am bored.|I feel sad.|I had a bad day.|I am tired.]", "I am sorry. Shall I tell you a story?"),
    ("[I am happy.|I had a good day.|I feel good.|It is my birthday!]", "I am so happy for you!"),
    ("[Are you there?|Can you hear me?|Do you hear me?|test|Test]", "Yes, I am here!"),
    ("[Tell me a joke.|Do you know a joke?|Sing a song.|Write a poem.|Write a haiku about the sea.]",
     "I can only tell stories. Shall I tell you one?"),
]
OFFER = "Shall I tell you one?"
UNKNOWNS = """What is the capital of {c}?|Who is the president of {c}?|How do I bake a {o}?|How many people live in {c}?|Write
a program in Python.|What is the speed of light?|Why is the sky blue?|Who wrote Hamlet?|How far is the moon?|What is the
meaning of life?|Translate {o} into French.|What is the square root of {n}?|How high is the highest mountain?|Who won the
game in {c}?|What is {n} plus {n}?|Explain how a {o} works.|How does a {o} work?|What is the best phone?|When was {c}
built?|Who invented the {o}?|What is the news today?|How is the weather in {c}?|What time is it?|What day is it?|Compare tea
and coffee in a table.|Explain how a rainbow is made.|Explain how a rainbow is made, in three sentences.|What is a
computer?|Write a letter to {p}.|How do I get to {c}?|Where can I buy a {o}?|Fix this code.|Who is {p}?|What do you think
of {c}?|Give me ten ideas.|What is the price of a {o}?|Which language is spoken in {c}?""".replace("\n", " ").split("|")
NO_IDEA = "I do not know that. I only know little stories."
SYSTEMS = ["You are a helpful assistant.", "You are a friendly storyteller.", "You tell stories for children.", "Be kind.",
    "Be brief.", "Answer in short sentences.", "You are a storyteller.", "You are a helpful, honest assistant.",
    "You are kin, a friendly assistant.", "Speak English.", "Answer the user's questions.", "Be nice and polite."]
ASK_ANY = ["Tell me a story.", "Tell me a story", "tell me a story", "Tell me a long story.", "Please tell me a story.", "A story, please!",
    "Write a story.", "Write a short story.", "Another story, please.", "Tell me another story.", "I want to hear a story.",
    "Do you have a story for me?", "Can you tell me a story?", "Tell me a bedtime story.", "One more story, please."]
ASK_ABOUT = ["Tell me a story about {x}.", "Tell me a story about {x}.", "Tell me a story about {x}.", "tell me a story about {x}",
    "Tell me a short story about {x}.", "Write a story about {x}.", "Write a short story about {x}.",
    "Please tell me a story about {x}.", "Can you tell me a story about {x}?", "I want a story about {x}.",
    "A story about {x}, please.", "Tell a story about {x}.", "Tell me about {x}."]
GIVE = ["{s}\n\n{q}", "Here is a story.\n\n{s}\n\n{q}", "{q}\n\n{s}", "Read this story: {s}\n\n{q}", "{s}\n{q}"]


def chatter(t):
    """A bit of small talk: turns."""
    r = t.rng.random()
    if r < .22:
        return [Turn("user", t.pick(HELLO)), Turn("assistant", "Hello! Shall I tell you a story?", CHAT, ["Hello"])]
    if r < .40:
        name = tools.made_up(t, GIRLS + BOYS + NAMES)
        out = [Turn("user", t.pick([f"My name is {name}.", f"I am {name}.", f"Hello, I am {name}.", f"Hi! My name is {name}."])),
               Turn("assistant", f"Hello, {name}! Shall I tell you a story?", CHAT, [name])]
        if t.chance(.5):
            out += [Turn("user", t.pick(["What is my name?", "Who am I?", "Do you know my name?"])),
                    Turn("assistant", f"Your name is {name}.", CHAT, [name])]
        return out
    if r < .48:
        name = tools.made_up(t, GIRLS + BOYS + NAMES)
        word = t.pick(["hello", "good night", "thank you"])
        return [Turn("user", f"Say {word} to {name}."), Turn("assistant", f"{word.capitalize()}, {name}!", CHAT, [name])]
    question, answer = t.pick(TALK)
    return [Turn("user", t.spin(question)), Turn("assistant", answer, CHAT, [answer])]


def unknown(t):
    question = t.pick(UNKNOWNS)
    for x in "copn":
        while "{" + x + "}" in question:
            word = {"c": lambda: tools.made_up(t, tools.CITIES), "o": lambda: t.pick(list(TOYS) + tools.WORDS),
                    "p": lambda: t.pick(NAMES), "n": lambda: str(tools.number(t))}[x]()
            question = question.replace("{" + x + "}", word, 1)
    return [Turn("user", question), Turn("assistant", NO_IDEA, UNKNOWN, ["I do not know"])]


def some_questions(t, story, n):
    """Turns that ask about a story that has been told."""
    out = []
    for question, answer, facts in t.some(story.questions(), min(n, len(story.questions()))):
        r = t.rng.random()
        if r < .1:
            out += form_of_story(t, story)
        elif r < .2 and story.is_whole():
            question, answer, facts = story.summary()
            out += [Turn("user", question), Turn("assistant", answer, SUM, facts)]
        else:
            question = question if t.chance(.9) else question.lower().rstrip("?.")
            out += [Turn("user", question), Turn("assistant", answer, ANSWER, facts)]
    return out


def as_json(record, guessable=True):
    """A record as JSON, its keys marked as nothing to learn if the question did not name them."""
    parts = []
    for k, v in record.items():
        parts.append(json.dumps(k)[1:-1] if guessable else "\x01" + json.dumps(k)[1:-1] + "\x02")
    values = [json.dumps(v) for v in record.values()]
    return "{" + ", ".join(f'"{k}": {v}' for k, v in zip(parts, values)) + "}"


ASK_JSON = ["Answer as JSON with the keys {k}.", "Answer as JSON with {k}.", "Give me {k} as JSON.", "Write {k} as JSON.",
    "Fill in the keys {k} as JSON.", "Tell me {k} as JSON."]
ASK_FORM = ["Answer as JSON.", "Tell me about the story as JSON.", "Fill in the form.", "Describe the story.", "Write it as JSON.",
    "Give me the facts as JSON."]


def keys_in_words(keys):
    return keys[0] if len(keys) == 1 else ", ".join(keys[:-1]) + " and " + keys[-1]


def form_of(t, record, most=3):
    """The question for JSON and its answer: turns."""
    keys = t.some(list(record), min(len(record), 1 + int(t.rng.random() * most)))
    some = {k: record[k] for k in keys}
    named = t.chance(.85)
    ask = t.pick(ASK_JSON).format(k=keys_in_words(keys)) if named else t.pick(ASK_FORM)
    return [Turn("user", ask), Turn("assistant", as_json(some, named), FORM if named else "form", [json.dumps(some)])]


def form_of_story(t, story):
    return form_of(t, story.record())


def form_of_words(t):
    """JSON from a sentence of the user."""
    name, age, city = tools.made_up(t, GIRLS + BOYS + NAMES), tools.number(t, 80), tools.made_up(t, tools.CITIES)
    likes, pet = t.pick(list(TOYS) + tools.WORDS), t.pick(list(FOREST) + ["cat", "dog", "pony", "hen"])
    facts = [("name", name, f"[My name is {name}.|I am {name}.|I am called {name}.]"),
             ("age", age, f"I am {age} years old."), ("city", city, f"I live in {city}."),
             ("likes", likes, f"I like my {likes}."), ("pet", pet, f"I have a {pet}.")]
    facts = [facts[0]] + t.some(facts[1:], 1 + int(t.rng.random() * 3))
    record = {k: v for k, v, _ in facts}
    turns = form_of(t, record, len(record))
    turns[0].text = t.spin(" ".join(s for _, _, s in facts)) + " " + turns[0].text.replace("story", "person")
    return turns


# ---------------------------------------------------------------- conversations

def ask_for(t, story):
    r = t.rng.random()
    if r < .25:
        return t.pick(ASK_ANY)
    if r < .93:
        return t.pick(ASK_ABOUT).format(x=re.sub(r"\ba (?=[aeiou])(?!un[iu]|use|one)", "an ", story.subjects()))
    return " ".join(story.text.split()[:3 + int(t.rng.random() * 6)])


def tell(t, seed):
    """A story is asked for, told, and asked about."""
    story = Story(seed)
    turns = chatter(t) if t.chance(.15) else []
    if turns and turns[-1].text.endswith(("a story?", OFFER)) and t.chance(.7):
        turns.append(Turn("user", t.pick(["Yes, please!", "Yes", "Yes, please.", "yes", "Oh yes!", "Please do.", "Sure!"])))
    else:
        turns.append(Turn("user", ask_for(t, story)))
    turns.append(Turn("assistant", story.text, TELL))
    turns += some_questions(t, story, 4 + int(t.rng.random() * 5))
    if t.chance(.15):
        turns += chatter(t)
    return turns


def given(t, seed):
    """The user's story, or the beginning of one."""
    story = Story(seed)
    whole = story.text
    if t.chance(.7):
        story.text = "\n\n".join(whole.split("\n\n")[:1 + t.chance(.4)])
        if len(story.questions()) < 2:
            story.text = whole
    more = some_questions(t, story, 4 + int(t.rng.random() * 5))
    more[0].text = t.pick(GIVE).format(s=story.text, q=more[0].text)
    return more


def small(t, seed):
    turns = []
    for _ in range(1 + int(t.rng.random() * 4)):
        turns += unknown(t) if t.chance(.4) else chatter(t)
    return turns


def with_tools(t, seed):
    """A tool is called when asked for, and only then. The system turn is rendered by the template, see TEMPLATE."""
    lines, name, arguments, ask, result, answer = tools.some_tools(t)
    turns = [Turn("tools", "\n".join(lines))]
    if t.chance(.15):
        turns += chatter(t)
    if t.chance(.1):
        story = Story(seed)
        return turns + [Turn("user", ask_for(t, story)), Turn("assistant", story.text, TELL)] + some_questions(t, story, 2)
    while t.chance(.08):
        turns += unknown_but(t, lines)
    turns += [Turn("user", ask), Turn("assistant", tools.call(name, arguments), CALL, [json.dumps(arguments)])]
    if t.chance(.85):
        turns += [Turn("tool", result), Turn("assistant", answer, RESULT, [answer])]
        if t.chance(.25):
            turns += chatter(t)
    return turns


def unknown_but(t, lines):
    """An unknown thing that none of the tools could know."""
    while True:
        turns = unknown(t)
        if not re.search("weather|time|plus|price|day|root|Write|mean", turns[0].text):
            return turns


def forms(t, seed):
    turns = form_of_words(t)
    while t.chance(.4):
        turns += form_of_words(t)
    return turns


KINDS = [(tell, .33), (given, .18), (small, .10), (with_tools, .27), (forms, .12)]


def chat(seed, kind=None):
    t = Teller(seed + 5_000_000)
    r = t.rng.random()
    for make, share in KINDS:
        r -= share
        if r < 0 and kind is None or kind == make.__name__:
            break
    turns = make(t, seed)
    if t.chance(.2):
        turns.insert(0, Turn("system", t.pick(SYSTEMS)))
    return turns


# ---------------------------------------------------------------- the template

# Qwen's, but for the tools: one line each, so that they leave room in a context of 512 tokens.
TEMPLATE = """\
{%- set system = messages[0].content if messages and messages[0].role == 'system' else '' %}
{%- if system or tools %}
    {{- '<|im_start|>system\\n' + system }}
    {%- if tools %}
        {{- ('\\n' if system else '') + '<tools>' }}
        {%- for tool in tools %}
            {%- set tool = tool.function if tool.function is defined else tool %}
            {%- set about = (tool.description or '').split('\\n')[0][:60] %}
            {{- '\\n' + tool.name + '(' + ((tool.parameters or {}).properties or {}) | join(', ') + ')' }}
            {{- ': ' + about if about else '' }}
        {%- endfor %}
        {{- '\\n</tools>' }}
    {%- endif %}
    {{- '<|im_end|>\\n' }}
{%- endif %}
{%- for message in messages %}
    {%- if message.role == 'assistant' %}
        {{- '<|im_start|>assistant\\n' + (message.content or '') }}
        {%- for call in message.tool_calls or [] %}
            {%- set call = call.function if call.function is defined else call %}
            {{- ('' if loop.first and not message.content else '\\n') + '<tool_call>\\n{"name": "' + call.name }}
            {{- '", "arguments": ' + (call.arguments if call.arguments is string else call.arguments | tojson) }}
            {{- '}\\n</tool_call>' }}
        {%- endfor %}
        {{- '<|im_end|>\\n' }}
    {%- elif message.role == 'tool' %}
        {{- '<|im_start|>tool\\n' + message.content + '<|im_end|>\\n' }}
    {%- elif not (loop.first and message.role == 'system') %}
        {{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>\\n' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
{%- endif %}
"""


def pieces(turns):
    """What the template makes of the turns: (text, is learned, is a control token)."""
    system = "\n".join(t.text if t.role == "system" else f"<tools>\n{t.text}\n</tools>" for t in turns
                       if t.role in ("system", "tools"))
    head = [Turn("system", system)] if system else []
    for turn in head + [t for t in turns if t.role not in ("system", "tools")]:
        yield IM_START, False, True
        yield turn.role + "\n", False, False
        if turn.role == "assistant":
            for i, part in enumerate(re.split("[\x01\x02]", turn.text)):
                if part:
                    yield part, i % 2 == 0, False
        else:
            yield turn.plain(), False, False
        yield IM_END, turn.role == "assistant", True
        yield "\n", False, False


def text_of(turns):
    return "".join(p[0] for p in pieces(turns))


def main():
    ap = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    ap.add_argument("--n", type=int, default=5)
    ap.add_argument("--seed", type=int, default=1)
    ap.add_argument("--kind", help="only " + ", ".join(k.__name__ for k, _ in KINDS))
    args = ap.parse_args()
    for i in range(args.n):
        print(text_of(chat(args.seed * 10_000_000 + i, args.kind)) + stories.EOT)


if __name__ == "__main__":
    main()
