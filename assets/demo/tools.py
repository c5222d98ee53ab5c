"""Tools for the conversations of chats.py: their names, what a user asks for, the call, the result, and what is said of it.

Everything a call needs stands in the question; the answer needs the question and the result only.
"""
import json

from teller import BOYS, GIRLS, TOYS

CITIES = """Paris London Berlin Rome Madrid Vienna Oslo Lisbon Dublin Prague Athens Cairo Tokyo Delhi Lima Boston Chicago
Denver Dallas Miami Seattle Toronto Sydney Zurich Geneva Milan Venice Naples Hamburg Munich Cologne Warsaw Riga Helsinki
Stockholm Bergen Glasgow Leeds Bristol Lyon Nice Porto Seville Kyoto Osaka Seoul Beijing Mumbai Nairobi Accra Lagos Tunis
Havana Quito Bogota Houston Austin Portland Montreal Perth Auckland Istanbul Moscow Kiev Budapest Bern Basel Graz""".split()
WORDS = """apple river castle dragon lamp forest mountain pillow rainbow thunder wizard lantern meadow harbor island
whistle candle bridge garden anchor basket feather kitten market needle orange pencil ribbon saddle teapot umbrella valley
window yellow zebra acorn blanket compass desert engine fountain giraffe hammer jungle ladder mirror nest ocean puddle
quilt rocket shadow tunnel village wagon badger cloud drum eagle flute goose honey igloo jacket kettle lemon moss""".split()
ROOMS = "kitchen|bathroom|bedroom|living room|garden|hall|attic|cellar|garage|office".split("|")
SKIES = "sunny rainy cloudy windy snowy foggy stormy cold warm hot".split()
MEANINGS = ["a kind of bird", "a small animal", "something to eat", "a tall tree", "a big house", "a thing that gives light",
    "a place with many trees", "something to play with", "a kind of boat", "a soft thing", "a color", "a very old song",
    "a little river", "a warm coat", "a round stone"]
MESSAGES = ["dinner is ready", "I am late", "the cake is done", "it is raining", "I love the book", "we go home now",
    "the dog is hungry", "I found the key", "the party is tomorrow", "the ball is red"]


def number(t, top=99):
    return int(t.rng.random() * top) + 1


def made_up(t, seq):
    """One of seq, or now and then a word that nobody knows: it has to be copied letter by letter."""
    if t.chance(.75):
        return t.pick(seq)
    word = "".join(t.pick("bcdfghjklmnprstvwz") + t.pick("aeiou") for _ in range(2 + t.chance(.5))) + t.pick(["", "n", "r",
        "s", "l"])
    return word.capitalize() if seq[0][0].isupper() else word


def weather(t):
    x, sky, degrees = made_up(t, CITIES), t.pick(SKIES), number(t, 35)
    key = t.pick(["city", "place", "location"])
    ask = t.pick([f"[What is|How is] the weather in {x}?", f"[What is|How is] the weather in {x} today?",
        f"[Is it|Will it be] {t.pick(SKIES)} in {x}?", f"Do I need an umbrella in {x}?", f"Tell me the weather in {x}.",
        f"I am going to {x}. How is the weather?", f"How warm is it in {x}?"])
    if t.chance(.5):
        result = t.pick([f"{sky}, {degrees} degrees", json.dumps({"sky": sky, "degrees": degrees}),
            json.dumps({"weather": sky, "temperature": degrees}), f"It is {sky}, {degrees} degrees."])
        answer = f"It is {sky}, {degrees} degrees."
    else:
        result = t.pick([sky, json.dumps({"weather": sky}), f"It is {sky}."])
        answer = f"It is {sky}."
    return t.pick(["get_weather", "get_weather", "weather", "current_weather"]), {key: x}, ask, result, answer


def clock(t):
    x, time = made_up(t, CITIES), f"{number(t, 23)}:{number(t, 49) + 10}"
    ask = t.pick([f"What time is it in {x}?", f"How late is it in {x}?", f"Tell me the time in {x}."])
    result = t.pick([time, json.dumps({"time": time})])
    return t.pick(["get_time", "time", "clock"]), {t.pick(["city", "place"]): x}, ask, result, f"It is {time}."


def arithmetic(t):
    a, b = number(t, t.pick([9, 99, 999])), number(t, t.pick([9, 99, 999]))
    name, word, sign, r = t.pick([("add", "plus", "+", a + b), ("multiply", "times", "*", a * b),
        ("subtract", "minus", "-", a - b)])
    ask = t.pick([f"What is {a} {word} {b}?", f"How much is {a} {word} {b}?", f"What is {a} {sign} {b}?",
        f"{name.capitalize()} {a} and {b}." if name != "subtract" else f"What is {a} minus {b}?",
        f"Please tell me what {a} {word} {b} is."])
    result = t.pick([str(r), json.dumps({"result": r}), json.dumps({t.pick(["sum", "value", "answer"]): r})])
    return name, {"a": a, "b": b}, ask, result, f"It is {r}."


def look_up(t):
    x, meaning = made_up(t, WORDS), t.pick(MEANINGS)
    ask = t.pick([f"What does {x} mean?", f"What does the word {x} mean?", f"Look up the word {x}.", f"Look up {x}.",
        f"What is the meaning of {x}?"])
    result = t.pick([meaning, json.dumps({"meaning": meaning}), f"{x}: {meaning}"])
    return t.pick(["look_up", "dictionary", "define"]), {"word": x}, ask, result, f"It is {meaning}."


def timer(t):
    n = number(t, 60) + 1
    ask = t.pick([f"Set a timer for {n} minutes.", f"Please set a timer for {n} minutes.", f"Wake me in {n} minutes.",
        f"Tell me when {n} minutes are over."])
    return t.pick(["set_timer", "timer"]), {"minutes": n}, ask, done(t), f"The timer is set for {n} minutes."


def light(t):
    room, on = t.pick(ROOMS), t.chance(.5)
    word = "on" if on else "off"
    ask = t.pick([f"Turn {word} the light in the {room}.", f"Please turn {word} the light in the {room}.",
        f"Turn the light in the {room} {word}."])
    return f"turn_{word}", {"room": room}, ask, done(t), f"The light in the {room} is {word}."


def message(t):
    who, text = made_up(t, GIRLS + BOYS), t.pick(MESSAGES)
    ask = t.pick([f"Tell {who} that {text}.", f"Please tell {who} that {text}.", f"Send a message to {who}: {text}.",
        f"Write to {who} that {text}."])
    return t.pick(["send_message", "send", "tell"]), {"to": who, "text": text}, ask, done(t), f"I told {who}."


def price(t):
    x, n = t.pick(list(TOYS) + ["cake", "pear", "plum", "cookie", "pie"]), number(t, 50)
    ask = t.pick([f"How much is a {x}?", f"What does a {x} cost?", f"What is the price of a {x}?"])
    result = t.pick([f"{n} euros", json.dumps({"euros": n}), json.dumps({"price": f"{n} euros"})])
    return t.pick(["get_price", "price"]), {t.pick(["item", "thing"]): x}, ask, result, f"It costs {n} euros."


def done(t):
    return t.pick(["ok", "done", "true", '{"ok": true}', '{"status": "done"}', "sent", '{"success": true}'])


MAKERS = {weather: "Get the weather|The weather of a city|Says how the weather is|Get current weather",
    clock: "Get the time|The time in a city|What time it is", arithmetic: "Calculate|A calculator|Does it with two numbers",
    look_up: "Look up a word|What a word means|A dictionary", timer: "Set a timer|Wait for some minutes",
    light: "Turns the light on or off|Light switch|Switch a light", message: "Send a message|Tell somebody something",
    price: "What a thing costs|Get the price of a thing"}


def line(t, name, arguments, description):
    """How the chat template shows a tool. (See TEMPLATE in chats.py.)"""
    text = t.pick(description.split("|") + [""]) + t.pick(["", "."])
    return f"{name}({', '.join(arguments)})" + (": " + text if len(text) > 1 else "")


def some_tools(t):
    """A tool that is asked for, and the lines of it and up to two others: (lines, name, arguments, ask, result, answer)"""
    makers = t.some(list(MAKERS), 1 + int(t.rng.random() * 3))
    made = [m(t) for m in makers]
    lines = t.some([line(t, m[0], m[1], MAKERS[k]) for k, m in zip(makers, made)], len(made))
    name, arguments, ask, result, answer = made[0]
    return lines, name, arguments, t.spin(ask), result, answer


def call(name, arguments):
    return "<tool_call>\n" + json.dumps({"name": name, "arguments": arguments}) + "\n</tool_call>"
