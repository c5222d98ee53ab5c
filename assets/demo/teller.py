"""Who and what there is in the stories, and how a story is told: the words, the characters, and the Teller.

A plot (see stories.py) hands the Teller passages such as "{a} [looked|searched] {spot}." and the Teller chooses among
the alternatives in brackets, puts in the facts, and sees to capital letters, a and an, and he and she.
"""
import random
import re

# ---------------------------------------------------------------- words

GIRLS = """Lily Mia Anna Emma Sara Lucy Zoe Ella Rose Molly Ruby Nora Amy Ivy Kate Daisy Maya Alice Grace Jane Clara
Bella Sophie Hana Lena Tina Eva Olivia Nina Penny Rita Polly Betty Holly Dora Aya Leila Fatima Priya Mei Ines Greta
Wendy Sally Susie Jenny Mary Julia Laura Helen Ada Ruth Sonia Carla Emily Lola Luna""".split()
BOYS = """Tom Ben Max Sam Tim Jack Leo Finn Noah Luke Jake Oscar Hugo Adam Dan Theo Milo Peter Eric Omar Ravi Kenji
Paul Felix Henry George Charlie Toby Billy Bobby Joe Nick Will Oliver Lucas Ethan Liam Simon Ali Ivan Pablo Diego Hans
Arthur James David John Mark Daniel Anton Samir Bruno Jonas Emil Fred Harry Bob""".split()
PETS = """Pip Rusty Hazel Coco Biscuit Pepper Honey Spot Bubbles Ziggy Dot Ginger Maple Clover Momo Button Poppy Nibbles
Fern Willow Bramble Oakley Misty Sunny Pebble Tiko Lulu Benny Bobo Tilly Mimi Rocky Teddy Snowy Patch Acorn""".split()
SYLLABLES = "ba da ka la ma na ra ta za bi di ki li mi ni ri ti vi bo do ko lo mo no ro to zo lu mu nu ru su".split()

# kind: where it lives
FOREST = {
    "fox": "in a [cozy|warm|small] den", "rabbit": "in a [cozy|snug] burrow", "bear": "in a [big|dark|warm] cave",
    "mouse": "in a tiny hole under an old tree", "squirrel": "in a hollow tree", "hedgehog": "under a pile of leaves",
    "duck": "beside a [quiet|blue] pond", "frog": "near a [green|quiet] pond", "owl": "in a tall oak tree",
    "turtle": "beside the river", "bird": "in a nest [high in a tree|at the top of a tree]",
    "deer": "in the green forest",
    "beaver": "in a house of sticks by the river", "mole": "under the ground", "badger": "at the edge of the forest",
    "otter": "by the river", "raccoon": "in an old log", "wolf": "in the deep forest", "snail": "under a big leaf",
}
FARM = {
    "pig": "on a farm", "cow": "on a green farm", "lamb": "on a hill", "goat": "on a farm", "pony": "on a farm",
    "hen": "on a small farm", "kitten": "in a [little|cozy] house", "puppy": "in a [little|warm] house",
    "donkey": "on an old farm", "cat": "in a [little|cozy] house", "dog": "on a farm", "chick": "on a small farm",
}
FAR = {
    "lion": "in the wide grassland", "elephant": "in the jungle", "monkey": "in the jungle", "giraffe": "in a hot land",
    "tiger": "in the jungle", "dragon": "in a cave on a mountain", "penguin": "in the land of ice",
    "zebra": "in a hot land",
    "dinosaur": "in a green valley", "unicorn": "in a magic forest", "parrot": "in the jungle",
    "hippo": "near a wide river",
}
TALE = {
    "robot": "in a workshop", "fairy": "in a blue flower", "giant": "on a high mountain", "wizard": "in a tall tower",
    "witch": "in a crooked house", "elf": "under a red mushroom", "princess": "in a [big|white|tall] castle",
    "prince": "in a [big|white|tall] castle", "monster": "in a dark cave", "knight": "in an old castle",
    "ghost": "in an empty house",
    "queen": "in a golden palace", "king": "in a golden palace", "pirate": "on a small ship",
}
MALE = {"fairy": False, "wizard": True, "witch": False, "princess": False, "prince": True, "knight": True,
    "queen": False, "king": True}
ANIMALS = {**FOREST, **FARM, **FAR, **TALE}
SMALL_ANIMALS = ["bird", "kitten", "puppy", "duckling", "rabbit", "squirrel", "hedgehog", "chick", "lamb", "mouse"]
COLORS = "red blue green yellow purple orange pink white golden silver brown black".split()
QUALITIES = "little big shiny new old pretty small soft round fine".split()
# thing: what one does with it
TOYS = {
    "ball": "[bounce|throw|kick|roll] it", "kite": "fly it [in the wind|high in the sky]",
    "doll": "[dress it|sing to it]",
    "teddy bear": "[hug it|hold it tight]", "toy car": "[race it|push it around]", "toy train": "push it around",
    "drum": "[beat|play] it", "toy boat": "sail it", "robot": "play with it", "balloon": "hold it by the string",
    "bell": "ring it", "whistle": "blow it", "book": "look at the pictures in it", "toy truck": "fill it with sand",
    "hat": "wear it", "scarf": "wear it", "flute": "play it", "bucket": "fill it", "toy plane": "fly it",
    "top": "spin it",
}
SMALL_THINGS = ["key", "ring", "button", "coin", "shell", "feather", "marble", "stone", "whistle", "bell", "spoon",
    "leaf"]
FRUITS = ["apples", "pears", "plums", "cherries", "berries", "nuts", "oranges", "grapes"]
# food: what may be missing
FOODS = {"cake": "eggs flour milk sugar butter", "pie": "flour butter sugar", "bread": "flour salt butter milk",
    "soup": "salt butter milk",
         "pizza": "flour salt cheese", "pancakes": "eggs flour milk sugar",
         "cookies": "flour butter sugar eggs honey", "muffins": "eggs flour milk honey"}

# place: (preposition, things to look behind and under)
PLACES = {
    "the park": ("in", "under the bench|behind the big tree|in the bushes|near the swings|beside the pond|in the "
                       "tall grass|"
                       "under the slide|by the gate"),
    "the garden": ("in", "under the bench|behind the shed|in the flowers|under a bush|beside the fence|in the tall "
                         "grass|"
                         "near the apple tree|behind the watering can"),
    "the forest": ("in", "under a bush|behind a log|by the stream|inside a hollow tree|beside a big rock|under the "
                         "leaves|"
                         "between the roots of a tree|in the ferns"),
    "the beach": ("at", "behind a rock|under the towel|in the sand|near the water|beside the boat|under the umbrella|"
                        "in a small pool|behind the sandcastle"),
    "the farm": ("on", "behind the barn|in the hay|under the cart|near the well|beside the fence|in the stable|"
                       "under the old tractor|by the pond"),
    "the village": ("in", "behind the bakery|under the bridge|near the well|beside the church|in the market|by the "
                          "gate|"
                          "under a bench|behind a cart"),
}


class Who:
    """A character: {a} is the name, {a.he} {a.him} {a.his} {a.self} the pronouns, {a.intro} the first mention
    ("a little girl named Mia"), {a.full} a first mention without "a" ("Mia", "Pip the fox"), {a.friend} a first
    mention as somebody's friend, {a.kind} the noun."""

    def __init__(self, name, male, kind, intro, full, friend=""):
        self.name, self.male, self.kind, self.intro, self.full, self.friend = name, male, kind, intro, full, friend
        self.animal, self.known, self.home = True, True, "in the forest"
        self.he, self.him, self.his, self.self = (("he", "him", "his", "himself") if male
                                                  else ("she", "her", "her", "herself"))

    def __str__(self):
        return self.name


class Thing:
    """{o} "red ball" is used after the, {o.a} "a red ball", {o.n} "ball", {o.word} "red"."""

    def __init__(self, word, noun):
        self.n, self.word, self.full, self.a = noun, word, word + " " + noun, "a " + word + " " + noun

    def __str__(self):
        return self.full


class Place:
    def __init__(self, name, prep, spots):
        self.name, self.at, self.to, self.spots = name, prep + " " + name, "to " + name, spots.split("|")

    def __str__(self):
        return self.name


class Teller:
    def __init__(self, seed):
        self.rng = random.Random(seed)
        self.parts, self.world = [], {}

    # chance, from random() alone
    def chance(self, p):
        return self.rng.random() < p

    def pick(self, seq):
        return seq[int(self.rng.random() * len(seq))]

    def some(self, seq, n):
        left, out = list(seq), []
        for _ in range(n):
            out.append(left.pop(int(self.rng.random() * len(left))))
        return out

    def spin(self, text):
        """[a|b|c] becomes one of a, b, c; innermost first."""
        while "[" in text:
            text = re.sub(r"\[([^\[\]]*)\]", lambda m: self.pick(m.group(1).split("|")), text)
        return text

    def set(self, **facts):
        self.world.update(facts)
        return self

    def __getattr__(self, key):
        try:
            return self.__dict__["world"][key]
        except KeyError:
            raise AttributeError(key)

    def __call__(self, text):
        """Tells one passage."""
        text = self.spin(self.spin(" ".join(text.split())).format(**self.world))
        text = " ".join(text.split())
        if text:
            text = text[0].upper() + text[1:]
            text = re.sub(r'((?:^|[ \n])"|[.!?] |\." )([a-z])', lambda m: m.group(1) + m.group(2).upper(), text)
            text = re.sub(r"\b([Aa]) (?=[aeiou])(?!un[iu]|use|one)", r"\1n ", text)
            text = re.sub(r"\b([Aa])n (?=unicorn)", r"\1 ", text)
            self.parts.append(text)

    def par(self):
        self.parts.append("\n\n")

    def text(self):
        paragraphs = " ".join(self.parts).replace(" \n\n ", "\n\n").strip().split("\n\n")
        text = "\n\n".join(self.pronouns(p) for p in paragraphs)
        # nobody says "Thank you, the parrot!"
        return re.sub(r"(Thank you|Hello|Goodbye), (the|his|her) [a-z ]+?(?=[!,.?])", r"\1", text)

    def pronouns(self, paragraph):
        """Says he or she for a name at the start of a sentence where the sentence before had the same subject and
        spoke of nobody else who could be meant."""
        people = [w for w in self.world.values() if isinstance(w, Who)]
        out, subject = [], None
        for s in re.split(r'(?<=[.!?]) (?=[A-Z])', paragraph):
            who = next((w for w in people if s.lower().startswith(w.name.lower() + " ")), None)
            if who and who is subject and '"' not in s and self.chance(.75):
                s = who.he.capitalize() + s[len(who.name):]
            elif not who and subject and s.startswith(subject.he.capitalize() + " "):
                who = subject
            rivals = who and [w for w in people if w.male == who.male and w is not who and w.name.lower() in s.lower()]
            subject = who if '"' not in s and not rivals else None
            out.append(s)
        return " ".join(out)

    # ------------------------------------------------------------ casting

    def child(self, male=None, avoid=()):
        male = self.chance(.5) if male is None else male
        name, known = self.pick(BOYS if male else GIRLS), True
        if self.chance(.1):                                 # a name never met before: it has to be copied
            name = "".join(self.some(SYLLABLES, 2 + self.chance(.3))).capitalize()
            known = False
        if name in [str(x) for x in avoid]:
            return self.child(male, avoid)
        noun = "boy" if male else "girl"
        size = self.pick(["little ", "little ", "little ", "young ", "small ", "kind ", "clever ", "happy ", "shy ",
            "brave ", "curious ", ""])
        w = Who(name, male, noun, f"a {size}{noun} {self.pick(['named', 'named', 'called'])} {name}", name)
        w.known = known
        w.home = "in a [small|little|big|white|yellow] [house|house|town|village]"
        w.animal = False
        return w

    def animal(self, kinds=ANIMALS, male=None, avoid=()):
        male = self.chance(.5) if male is None else male
        kind = self.pick(list(kinds))
        if kind in [x.kind for x in avoid]:
            return self.animal(kinds, male, avoid)
        male = MALE.get(kind, male)
        size = self.pick(["little ", "little ", "small ", "young ", "brave ", "clever ", "kind ", "shy ", "happy ",
            "gentle ", "curious ", "friendly "])
        if self.chance(.5):
            name = self.pick(PETS)
            if name in [str(x) for x in avoid]:
                return self.animal(kinds, male, avoid)
            w = Who(name, male, kind, f"a {size}{kind} {self.pick(['named', 'named', 'called'])} {name}",
                f"{name} the {kind}")
        else:
            kept = size if size in ("little ", "small ", "young ") and self.chance(.5) else ""
            w = Who(f"the {kept}{kind}", male, kind, f"a {size}{kind}", f"the {kept}{kind}")
        w.home = ANIMALS.get(kind, "in the forest")
        w.animal = True
        return w

    def cast(self, who="any", kinds=None):
        """The hero {a}, a friend {b} of the same world, and a grown-up {m}."""
        a = self.animal(kinds or ANIMALS) if who == "animal" or who == "any" and self.chance(.42) else self.child()
        other = (not a.male) if self.chance(.75) else a.male
        if a.animal:
            kinds = next(k for k in (FOREST, FARM, FAR, TALE) if a.kind in k)
            b = self.animal(kinds, other, [a])
            b.friend = f"{a.his} friend {b.full}"
            mother = self.chance(.6)
            name = f"{a.his} " + (self.pick(["mother", "mama", "grandmother"]) if mother else self.pick(["father",
                "papa", "grandfather"]))
        else:
            b = self.child(other, [a])
            rel = self.pick(["friend", "friend", "best friend", "brother" if b.male else "sister", "cousin"])
            b.friend = f"{a.his} {rel} {b}"
            mother = self.chance(.55)
            names = (["mom", "mom", "mother", "grandma"] if mother else ["dad", "dad", "father", "grandpa"])
            word = self.pick(names)
            name = f"{a.his} {word}" if self.chance(.7) else word.capitalize()
        m = Who(name, not mother, "grown-up", name, name)
        return self.set(a=a, b=b, m=m)

    def toy(self, key="o", things=None, colored=False):
        noun = self.pick(list(things or TOYS))
        word = self.pick(COLORS) if colored or self.chance(.75) else self.pick(QUALITIES)
        if not colored and word in COLORS and self.chance(.2):
            word = self.pick(["big", "little", "small", "shiny", "new"]) + " " + word
        self.set(**{key: Thing(word, noun)})
        if noun in TOYS:
            self.set(use=TOYS[noun])
        return self

    def place(self, *names):
        if not names:
            names = (["the forest", "the forest", "the garden", "the farm", "the village"] if self.a.animal
                     else ["the park", "the park", "the garden", "the beach", "the farm", "the forest"])
            if self.a.kind in FARM:
                names = ["the farm", "the garden", "the village"]
            if self.a.kind in FAR:
                names = ["the forest", "the beach", "the village"]
        name = self.pick(names)
        return self.set(p=Place(name, *PLACES[name]))

    # ------------------------------------------------------------ beginnings

    def begin(self, fact, day="[sunny|warm|bright|lovely|quiet]", duo=False, night=False):
        """Introduces {a}; `fact` is a sentence about {S}, the subject. Leaves {One_day} set for the next sentence.
        duo: {a} and {b} may be introduced together."""
        a, r = self.a, self.rng.random()
        one_day = f"One [day|day|day|{day} day|{day} morning|morning|afternoon|{day} afternoon],"
        if a.animal:
            likes = ("[loved to [sing|run|dance|play|explore] [in the sun|all day|every morning]|"
                     "was always [kind|polite|busy|curious]]")
        else:
            likes = ("[loved to [sing|draw|run|dance|play outside|read books|climb trees|play with {a.his} friends]|"
                     "was [four|five|six|seven] years old|was always [kind|polite|cheerful|curious]]")
        home = a.home
        if duo and self.chance(.15):
            self.set(S=a.name)
            self("[|Once upon a time, |Once upon a time, ]{a.full} and {b.full} were [best friends|good "
                 "friends|neighbors]. [|They [played together every day|liked the same games|did everything "
                 "together].] " + fact)
            self.b.friend = self.b.name
        elif r < .32:
            self.set(S=a.he)
            self("[Once upon a time,|Once upon a time,|Once upon a time,|Once upon a time|Once,|Long ago,|A long "
                 "time ago,] there [was|was|lived] {a.intro}."
                 f"[| {{a.he}} {likes}.] " + fact)
        elif r < .47:
            self.set(S=a.he)
            self(f"[Once upon a time,|Once upon a time,|Long ago,|] {{a.intro}} lived {home}[| with {{a.his}} "
                 f"family]." + f"[| {{a.he}} {likes}.] " + fact)
        elif r < .54:
            self.set(S=a.he)
            where = ("[in a [big|green|quiet|dark] forest|deep in the woods|on the other side of the hill|near a "
                     "wide river|"
                     "at the edge of the forest]" if a.animal else
                     "[in a small [village|town]|near the sea|at the end of a long street|in a [little|white|tall] "
                     "house|"
                     "on top of a hill]")
            self("[Once upon a time, |]" + where + "[,|] there [was|lived] {a.intro}. " + fact)
        elif r < .60 and not a.animal:
            self.set(S=a.he)
            if a.known:
                self("{a} was [a [little|young|kind|happy] {a.kind}|a [little|young] {a.kind} with "
                     "[brown|blue|green|big] eyes|[four|five|six|seven] years old]. " + fact)
            else:
                self("{a} was a [little|young|kind|happy] {a.kind}. " + fact)
        elif r < .64 and not night:
            self.set(S=a.he)
            self(f"One [morning|day|{day} morning], " + "[{a.intro}|{a.intro}|{a.full}] woke up [early|and got out "
                                                        "of bed|and looked out of the window]. " + fact)
            one_day = "[That day,|Later,|]"
        elif r < .75:
            self.set(S=a.full)
            self(f"It was a {day} {'night' if night else '[day|morning|afternoon]'}. " + fact)
            one_day = "[That day,|Today,|]"
        else:
            self.set(S=a.full)
            if not a.animal and not a.known:
                self.set(S=a.he)
                self("There was {a.intro}.")
            self(fact)
        self.set(One_day=self.spin(one_day))

    # ------------------------------------------------------------ endings

    def end(self, own, home=False, alone=False):
        """`own`: endings of this plot. home: the story ends at home; alone: {b} is no friend to play with."""
        if self.chance(.6):
            self(own)
        else:
            ends = ["It was [a very good|a wonderful|the best] day.",
                "{a} was [very happy|the happiest {a.kind} in the world].",
                    "That night, {a} [slept very well|had sweet dreams|fell asleep with a smile].",
                    "{a} never forgot that day.",
                    "[And they|They all|And they all] lived happily ever after."]
            if not home:
                ends.append("{a} went home with a big smile.")
            if not alone:
                ends += ["{a} and {b} [smiled|laughed|danced for joy]" + ("." if home else " and went home together."),
                         "From that day on, {a} and {b} played together every day."]
            self(self.pick(ends))
        if self.chance(.12):
            self("The end.")
