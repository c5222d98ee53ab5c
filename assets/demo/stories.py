#!/usr/bin/env python3
"""Stories for small children, written by a grammar.

    stories.py --n 1000 --seed 1 > stories.txt      one story per record, records end with a line "<|endoftext|>"

A story is a plot (a function below) told by a Teller. The plot first fixes the facts: who the hero is, who helps,
what the thing is called, where it is hidden. Then it tells them in text full of [this|that] alternatives; {a} is the
hero, {a.he} the pronoun, {o} a thing. Facts are chosen once and words many times, so a model trained on the output
must learn to keep the facts straight.

The same seed gives the same stories on every machine: only Random.random() is used, whose sequence Python guarantees.
"""
import argparse
import sys

from teller import COLORS, FARM, FOODS, FOREST, FRUITS, PETS, QUALITIES, SMALL_ANIMALS, SMALL_THINGS, Teller, Who

EOT = "<|endoftext|>"

# ---------------------------------------------------------------- plots
# {a} hero, {b} friend, {m} grown-up, {o} thing, {p} place. A pronoun always means the last one named as subject.

def lost_toy(t):
    t.cast().toy(colored=True).place()
    s = t.some(t.p.spots, 3)
    t.set(w1=s[0], w2=s[1], spot=s[2])
    t.begin("""{S} had {o.a}. [{a.he} [loved|liked] to {use}.|It was {a.his} favorite thing.|{a.he} took it
        everywhere.|It was a gift from {m}.|]""".replace("{use}", t.use), duo=True)
    t("""{One_day} {a} [took the {o.n} {p.to}|played {p.at} with the {o}|went {p.to} with the {o.n}]. [It was
        fun.|{a.he} played for a long time.|{a.he} ran and jumped and sang.|] [But when it was time to go home, the
        {o.n} was gone!|Then {a.he} looked around. The {o} was gone!|After a while, {a.he} saw that the {o.n} was
        [gone|not there].]""")
    t.par()
    t("""["Oh no! Where is my {o.n}?" {a.he} [cried|said].|"I lost my {o}!" {a.he} cried.|{a} felt [very sad|so sad]
        and began to cry.|{a.he} did not know what to do.]""")
    t("""[{b.friend} heard {a.him}.|{b.friend} came [by|along|running].|Just then, {b.friend} came.] ["What is
        wrong?"|"Why are you sad?"|"What happened?"] asked {b}. ["I lost my {o.n}," said {a}.|"I cannot find my {o},"
        said {a}.|"My {o.n} is gone," {a} said.] ["Do not worry. I will help you," said {b}.|"Let us look for it
        together," said {b}.|"I can help you find it," {b} said.]""")
    t("""[First, they|They] looked {w1}, but [it was not there|they found only [an old shoe|a button|a bug]].
        [Then|Next,] they looked {w2}, but [there was nothing|it was not there either]. [At last, {b} looked {spot}.
        [There it was!|There was the {o}!]|Then {a} looked {spot}. "[I found it|Here it is]!" {a}
        [cried|shouted].|Then {b} saw something {o.word} {spot}. It was the {o.n}!]""")
    t.par()
    t("""[{a} hugged the {o.n}.|{a} jumped [up and down|for joy].|{a} was so happy.] ["Thank you, {b}!" said {a}.|"You
        are a good friend," {a} said to {b}.|{a} thanked {b}.]""")
    t.end("""[{a} and {b} played with the {o.n} until [the sun went down|it was dark|dinner].|From then on, {a} always
        took good care of the {o.n}. |{a} [held|carried] the {o.n} [tight|carefully] all the way home.|"Let us play
        with it together," said {a}, and so they did.]""")


def share_toy(t):
    t.cast().toy().place()
    t.begin("""{S} had {o.a}. [It was [new|very nice|the best {o.n} of all].|{a.he} got it from {m}.|{a.he} loved it
        very much.|]""", duo=True)
    t("""{One_day} {a} [played with it {p.at}|was playing {p.at}|took it {p.to}]. {b.friend} [came and saw the
        {o.n}|came to play|was there too]. ["Can I play with it?"|"May I have a turn?"|"Your {o.n} is so nice! Can I
        try it?"] asked {b}. ["No! It is mine,"|"No, it is my {o.n},"] said {a}[.| and held it tight.| and turned
        away.]""")
    t.par()
    t("""{b} [was sad and sat down alone|looked down and walked away|felt sad and said nothing]. [{a} played alone,
        but it was not [fun|much fun].|{a} played with the {o.n}, but [{a.he} did not feel happy|something was
        wrong].] [{m} saw this. "It is nice to share," said {m}. "[Sharing makes everyone happy|Two can have more fun
        than one]."|{a} looked at {b}. "[Now {b} is sad because of me|It is no fun to play alone]," thought {a}.]""")
    t("""[So {a}|Then {a}] went to {b}. ["I am sorry. [You can play with my {o.n}|Let us play together]," said
        {a}.|"Here, you can have a turn," said {a}, and gave {b} the {o.n}.] {b} [smiled|was very happy|jumped up with
        a smile]. ["Thank you!" said {b}.|]""")
    t.par()
    t("""[They took turns with the {o.n}.|They played with the {o} together.|First {b} had a turn, and then {a} had a
        turn.] [They laughed and laughed.|It was much more fun than playing alone.|]""")
    t.end("""[{a} learned that [it is good to share|sharing is fun].|Now {a} always shares the {o.n}.|After that, {a}
        and {b} shared all their toys.|"Sharing is fun!" said {a}.]""")


def stuck_toy(t):
    t.cast()
    if t.a.kind in ("bird", "owl", "parrot", "duck", "dragon", "giraffe"):
        t.set(a=t.child())
        t.cast("child")
    t.toy(things=["ball", "kite", "balloon", "toy plane", "hat", "scarf"]).place("the park", "the garden",
        "the village") if not t.a.animal \
        else t.toy(things=["ball", "kite", "balloon", "hat", "scarf"]).place("the forest", "the garden", "the village")
    t.set(where=t.pick(["in a tall tree", "on the roof", "on a high branch", "at the top of a tree", "on a high wall"]))
    t.begin("[{S} had {o.a}.|{S} got {o.a} for {a.his} birthday.|{S} was very proud of {a.his} {o}.]")
    t("""{One_day} {a} [took it {p.to}|went {p.to} with the {o.n}|was {p.at} with the {o.n}]. [Suddenly,|Then] the
        wind [began to blow|blew hard], and the {o.n} [flew away|went up, up, up]. [It landed|It got stuck|It came
        down] {where}. ["Oh no!" cried {a}.|{a} looked up. It was too high.|"How can I get it back?" said {a}.]""")
    t.par()
    t("""{a} [jumped|jumped and jumped], but {a.he} was too [small|short]. [{a.he} threw a stick, but it did not
        help.|{a.he} tried to climb, but {a.he} slipped.|{a.he} shouted at the {o.n}, but it did not move.|]""")
    h = t.rng.random()
    if h < .4:
        t.set(h=t.animal(["owl", "bird", "squirrel", "parrot"], not t.a.male, [t.a, t.b]))
        go = "climbed up" if t.h.kind == "squirrel" else "flew up"
        t.set(go=go)
        t("""[{h.intro} saw {a}.|Just then, {h.intro} came by.|{h.intro} was watching.] ["Do you need help?" asked
            {h}.|"I can help you," said {h}.] ["Yes, please!"|"Yes! My {o.n} is stuck,"] said {a}.""")
        t("{h} {go}[| very fast], took the {o.n}, and brought it [down|back].")
    elif h < .7:
        t("""{b.friend} [came by|heard the noise]. ["I have an idea," said {b}.|"Let us work together," said {b}.]
            [{b} brought a long stick. {a} held it up and pushed the {o.n}. [Push, push, push!|One, two, three!] |{a}
            stood on the shoulders of {b}. {a} reached up as high as {a.he} could.] [The {o.n} fell down!|At last, the
            {o.n} came down.]""")
        t.set(h=t.b)
    else:
        t("""{a} ran to {m}. ["My {o} is stuck {where}!" said {a}.|"Please help me get my {o.n}," said {a}.] [{m}
            brought a ladder and climbed up.|{m} got a long ladder.] [Soon|Slowly,] {m} [came down with the
            {o.n}|reached the {o.n} and gave it back].""")
        t.set(h=t.m)
    t.par()
    t("""["Thank you, {h}!" said {a}.|{a} was so happy. "Thank you!" said {a}.|{a} gave {h} a big hug.]""")
    t.set(b=t.h)
    t.end("""[{a} held the {o.n} tight on the way home.|After that, {a} was careful when the wind blew.|{a} and {h}
        laughed [together|about it].|Now {a} knew that it is good to ask for help.]""")


def baby_animal(t):
    t.cast("child")
    kind = t.pick(SMALL_ANIMALS)
    t.set(n=Who("the " + kind, t.chance(.5), kind, "a " + kind, "the " + kind), pet=t.pick(PETS))
    t.set(left="flew off" if kind == "bird" else "ran off",
          parent={"kitten": "cat", "puppy": "dog", "duckling": "duck", "chick": "hen", "lamb": "sheep"}.get(kind, kind))
    t.set(where=t.pick(["under a bush", "by the road", "near the gate", "behind the shed", "under a tree",
        "beside the path"]))
    t.begin("""{S} loved animals. [{a.he} wanted to be [an animal doctor|a farmer] one day.|{a.he} was always kind to
        them.|]""")
    t("""{One_day} {a} [was walking home|was playing outside|went for a walk with {m}]. {a.he} heard a
        [tiny|small|soft] [sound|cry|noise]. {where}, there was a [tiny|small|little] {n.kind}. [It was all alone.|It
        was [wet|cold] and [scared|shaking].|It had hurt its leg.|It was lost and hungry.]""")
    t.par()
    if t.chance(.5):
        t("""["Do not be afraid," said {a}.|"You poor thing," said {a}.] [{a.he} picked it up [softly|gently|with both
            hands] and took it home.|{a.he} put it in {a.his} [hat|basket|coat] and carried it home.] ["Can we help
            it?" {a} asked {m}.|"Look what I found!" {a} said to {m}.] ["Of course," said {m}.|"Yes, we can," said
            {m}.|{m} nodded.]""")
        t("""They [gave the {n.kind} [some milk|some water|some food] and made a [soft|warm] bed [in a box|from an old
            towel]|made a [warm|soft] bed and fed the {n.kind}]. [Day after day|Every day|Each morning], {a} [fed it
            and talked to it|took care of it|sat next to it and sang]. [Soon|After a week,] the {n.kind} was
            [strong|well|strong and happy] again.""")
        t.par()
        t("""[{a} wanted to keep it. "May it stay?" asked {a}. "Yes, [it can live with us|if you take good care of
            it]," said {m}. {a} named the {n.kind} {pet}. |"Now it must go back to its family," said {m}. {a} was a
            little sad, but {a.he} [opened the door|opened {a.his} hands]. The {n.kind} looked back once and [went
            home|{left} happily].]""")
        t.end("""[The {n.kind} and {a} became [good|best] friends.|{a} was proud that {a.he} had helped.|"You did a
            good thing," said {m}.|{a} smiled. It felt good to help.]""")
    else:
        t("""["Where is your mother?" asked {a}.|"You must miss your mother," said {a}.] [The {n.kind} looked up with
            big eyes.|The {n.kind} made a sad sound.] ["We will find her," said {a}.|"I will help you find her," {a}
            said.] {a} [carried the {n.kind} in {a.his} arms|held the {n.kind} gently] and [looked everywhere|walked
            along the path].""")
        x, y = t.some(["by the river", "in the field", "behind the barn", "near the old bridge",
            "under the big oak tree"], 2)
        t.set(x=x, y=y)
        t("""They looked {x}, but [she was not there|there was no one]. Then they [looked|went to look] {y}. [There
            was a big {parent}!|A big {parent} was [waiting|looking] there!] It was the mother!""")
        t.par()
        t("""[The {n.kind} ran to its mother.|The mother was so happy to see her baby.|{a} put the {n.kind} down, and
            it ran to its mother.] ["Goodbye, little {n.kind}!" said {a}.|{a} waved goodbye.|]""")
        t.set(b=t.m)
        t.end("""[{a} went home and told {m} all about it.|{m} was proud of {a}.|{a} felt warm inside. It is good to
            help.]""")


def missing_ingredient(t):
    t.cast()
    food = t.pick(list(FOODS))
    ing = t.pick(FOODS[food].split())
    t.set(food=food, a_food=("" if food in ("bread", "soup") or food.endswith("s") else "a ") + food)
    t.set(ing=ing, are="are" if ing == "eggs" else "is", nb=t.pick(["Mrs. Brown", "Mr. Green", "Mrs. Lee", "Mr. Hill",
        "Mrs. Stone", "Mr. Baker"])
          if not t.a.animal else t.b.name)
    t.begin("{S} [loved to cook|loved to help in the kitchen|was hungry|wanted to make something good to eat].")
    t("""{One_day} {a} and {m} [wanted to make|were going to make|decided to make] {a_food}. [They washed their
        hands.|"First we need a big bowl," said {m}.|They put everything on the table.] But [something was
        missing|then they looked in the cupboard]. ["Oh no, we have no {ing}!" said {m}.|"There {are} no {ing} left,"
        said {m}.]""")
    t.par()
    if t.a.animal:
        t("""["I will ask {b.full}," said {a}.|"{b.full} may have some," said {a}.] {a} [ran|walked] [down the
            path|over the hill|through the trees] and knocked on the door. ["Hello, {b}! Do you have some {ing}?"
            asked {a}.|"Could you give us some {ing}, please?" asked {a}.] ["Of course," said {b}[.| and gave {a} some
            {ing}.]|"Yes, take as much as you need," said {b}.]""")
    else:
        t("""["I can ask {nb} next door," said {a}.|"Go and ask {nb}," said {m}.] {a} [ran|walked] [next door|across
            the street] and knocked. ["Hello, {nb}! Do you have some {ing}?" asked {a}.|"Could you give us some {ing},
            please?" asked {a}.] ["Of course," said {nb}[.| with a smile.]|"Yes, here you are," said {nb}.]""")
    t("""[{a} said thank you and carried the {ing} home very carefully.|{a} thanked {nb} and ran home.] [Now they
        could begin.|They mixed and stirred.|{a} stirred and stirred.] Soon the [kitchen|whole house] smelled [so
        good|wonderful].""")
    t.par()
    t("""["Let us give some to {nb}," said {a}.|"We should share it with {nb}," said {m}.|{a} took some of the {food}
        to {nb}.] [{nb} was very happy.|They all sat down and ate together.|Everyone ate until they were full.]""")
    t.set(b=t.m)
    t.end("""[It was so good that nothing was left.|"Yum!" said {a}. "This is the best {food} in the world!"|Everyone
        said it was very tasty.]""", home=True, alone=True)


def garden(t):
    t.cast()
    plant = t.pick(["sunflower", "pumpkin", "rose", "carrot", "apple tree", "bean plant", "tomato plant", "tulip",
        "watermelon"])
    t.set(plant=plant, col=t.pick(COLORS[:8]))
    t.begin("""[{S} found a [tiny|small|strange|brown] seed.|{S} got a [tiny|small] seed from {m}.|{S} wanted to grow
        something.]""")
    t("""{One_day} {a} [made a hole in the ground|dug a little hole in the garden] and put the seed in it. [{a.he}
        covered it with soil.|{a.he} gave it some water.|"Grow, little seed," {a.he} said.] Every [day|morning], {a}
        [gave it water|watered it] and [looked at it|sang to it|waited]. But [nothing happened|there was nothing to
        see].""")
    t.par()
    t("""["Why does it not grow?" {a} asked {m}.|"Maybe it is a bad seed," {a} said to {m}.|{a} was sad. "My seed is
        asleep," {a.he} said to {m}.] ["You must wait," said {m}. "Good things take time."|"Give it time," said {m}.
        "It needs sun and rain."|{m} smiled. "Seeds are slow," said {m}. "Be patient."] So {a} waited[| and waited].
        [The sun was warm.|It rained for two days.|The days went by.]""")
    t("""Then, one morning, {a} saw [something green|a tiny green leaf|a little green stem]. ["It is growing!"|"Look!
        It is coming up!"] {a.he} [shouted|cried|said]. The plant [grew and grew|grew bigger every day|grew taller and
        taller]. [At last|By the end of summer|After many weeks], there was a [big|huge|beautiful|lovely] {plant}.""")
    t.par()
    t("""[{a} showed it to {b.friend}. "It is so [big|beautiful]!" said {b}.|{b.friend} came to see it. "Did you grow
        that?" asked {b}. "Yes, I did!" said {a}.|{a} called {b.friend} to look. {b} [clapped and cheered|could not
        believe it].]""")
    t.end("""[{a} was very proud.|"You see?" said {m}. "You waited, and now you have a {plant}."|{a} learned that good
        things take time.|{a} gave {b} a seed, so that {b} could grow a {plant} too.]""", home=True)


def rainy_day(t):
    t.cast("child").toy(things=["kite", "ball", "toy plane", "toy boat"])
    t.begin("{S} wanted to [play outside|go to the park|play outside with {a.his} {o}].", "[gray|dark|cloudy|wet]")
    t("""[{One_day} it began to rain.|But it began to rain.|But the sky was dark, and soon it rained.] [Drip, drop,
        drip, drop!|The rain fell on the window.|It rained and rained.] ["I hate the rain," said {a}.|"Now I cannot go
        out," said {a}.|{a} sat by the window and felt sad.]""")
    t.par()
    game = t.pick(["fort", "picture", "boat", "game"])
    if game == "fort":
        t("""["Let us build a fort!" said {m}.|"I have an idea. We can build a tent," said {m}.] They took [some
            blankets|two chairs and a blanket] and [some pillows|all the pillows]. {a} [crawled inside|went in first].
            [It was dark and cozy.|It was like a small cave.] [They read a book with a flashlight.|They told stories
            and ate cookies.|{m} told a story about a dragon.]""")
    elif game == "picture":
        t("""["Why don't we paint?" said {m}.|"You can draw the sun," said {m}.] {a} took [{a.his} crayons|some paint
            and paper]. {a.he} drew a big yellow sun, [a green tree|a red house|a blue river], and [a happy dog|a
            cat|three flowers]. {m} [put the picture on the wall|said it was beautiful]. ["Now we have a sun in the
            house," said {a}.|]""")
    elif game == "boat":
        t("""["Put on your boots," said {m}.|"Rain can be fun too," said {m}. "Put on your boots."] {a} put on {a.his}
            [yellow|red|blue] boots and went out with {m}. They [jumped in the puddles|made little boats from paper].
            Splash! Splash! [{a} laughed.|They got very wet, and they laughed.]""")
    else:
        t("""{b.friend} [came to visit|knocked on the door]. ["Do you want to play hide and seek?" asked {b}.|"Let us
            play inside," said {b}.] {a} hid [under the bed|in the closet|behind the curtain], and {b} counted to ten.
            {b} looked and looked. "I found you!" said {b}. [They laughed.|Then {b} hid, and {a} looked for {b}.]""")
    t.par()
    t("""[Then the rain stopped.|Soon the rain stopped, and the sun came out.|After a while, the sky was blue again.]
        [There was a big rainbow in the sky.|{a} saw a rainbow over the houses.|] ["Look, a rainbow!" said {a}.|"You
        can go out now," said {m}.]""")
    t.set(b=t.m) if game != "game" else None
    t.end("""[{a} smiled. A rainy day can be fun too.|"I like the rain now," said {a}.|{a} was not sad anymore.]""",
        home=True)


def be_brave(t):
    t.cast("child" if t.chance(.7) else "any")
    fear, place, helped, did = t.pick([
        ("the dark", "At night, {a} could not sleep. The room was very dark.",
        "gave {a} a small lamp [shaped like a star|with a warm light]", "slept [all night|until morning]"),
        ("deep water", "[All|All of] the others were swimming in the lake. {a} stood on the shore.",
        "held {a}'s hand and went in slowly", "swam [across the lake|all by {a.self}|like a fish]"),
        ("thunder", "The sky was dark. Boom! There was loud thunder.",
        "sang a song and counted with {a} after each flash", "listened to the storm and was not afraid"),
        ("high places", "There was a tall hill with a beautiful view. {a} stood at the bottom.",
        "walked beside {a}, step by step", "stood at the very top and looked around"),
        ("the big slide", "There was a big slide at the playground. {a} climbed up and looked down.",
        "sat behind {a} and held on tight", "went down the slide ten times"),
        ("the old bridge", "There was an old bridge over the river. {a} did not want to cross it.",
        "held {a}'s hand and told {a.him} not to look down", "ran across the bridge and back"),
    ])
    t.begin(f"{{S}} was afraid of {fear}. [{{a.he}} did not tell anyone.|The others laughed at {{a.him}}.|]")
    t(place + """ ["I am scared," said {a}.|{a} began to shake.|"I cannot do it," said {a}.|{a} wanted to run away.]""")
    t.par()
    t("""{m} [saw this|came and sat down|heard it]. ["It is okay to be afraid," said {m}. "[I was afraid too when I
        was small|Being brave means trying anyway]."|"Everyone is afraid sometimes," said {m}. "Let us try together."]""")
    t("{m} " + helped + """. [{a} took a deep breath.|{a} closed {a.his} eyes and counted to three.|
      {a}'s heart beat fast.] [Slowly, {a} felt better.|"I can do it," {a} said softly.|"One, two, three!" said {a}.]""")
    t.par()
    t("""[And it was not so bad!|It was not scary at all!|It worked!] {a} """ + did + """.
      ["I did it!" said {a}.|"You are so brave," said {m}.|"Look at me!" {a} shouted.]""")
    t.set(b=t.m)
    t.end(f"[After that, {{a}} was not afraid of {fear} anymore.|{{a}} was proud, and {{m}} was proud too.|{{a}} "
          f"learned that it is good to try.]", home=True, alone=True)


def get_lost(t):
    t.cast()
    where = t.pick(["the forest", "the market", "the big city",
        "the hills"]) if not t.a.animal else t.pick(["the forest", "the hills", "the big field"])
    t.set(where=where, x=t.pick(["a butterfly", "a little bird", "a shiny beetle", "a dragonfly"]),
        col=t.pick(COLORS[:8]))
    t.set(h=t.animal(["owl", "deer", "fox", "rabbit", "turtle", "dog"], None,
        [t.a, t.b]) if t.a.animal or t.chance(.4) else
          t.pick([Who("the policeman", True, "man", "a policeman", "the policeman"),
              Who("the baker", True, "man", "a kind baker", "the baker"),
                  Who("the old woman", False, "woman", "an old woman", "the old woman"),
                  Who("the farmer", True, "man", "a farmer", "the farmer")]))
    t.set(parent=t.m.name.split()[-1].lower(),
          thanks="Thank you for your help" if t.h.name.startswith("the ") else "Thank you, " + t.h.name)
    t.begin("{S} went to {where} with {m}. [\"Stay close to me,\" said {m}.|\"Do not run away,\" said {m}.|]")
    t("""[Then {a}|After a while, {a}|Soon {a}] saw {x} and [ran after it|followed it]. [It flew over the flowers and
        around a corner.|It went this way and that way.|{a.he} ran on and on.] When {a.he} stopped, {a.he} [could not
        see {m} anymore|was all alone|did not know the way back]. ["Where am I?" said {a}.|"Oh no, I am lost," said
        {a}.|{a} began to cry.]""")
    t.par()
    t("""[Then {a.he} met {h.intro}.|Just then, {h.intro} came by.|{h.intro} saw {a}.] ["Are you lost?" asked
        {h}.|"Why are you crying?" asked {h}.|"What is the matter?" asked {h}.] ["I cannot find my {parent}," said
        {a}.|"I want to go home," said {a}.]""")
    t("""["Do not be afraid. [I know the way|We will find {m.him}]," said {h}.|"Come with me," said {h}.] [They walked
        past [the old well|a big rock|three tall trees] and over [a small bridge|the hill].|{h} showed {a} the
        way.|They walked side by side.]""")
    t.par()
    t("""[There was {m}!|And there was {m}, looking everywhere!|Soon they heard {m} calling.] {a} ran [to {m}|as fast
        as {a.he} could] [and hugged {m.him}|and hugged {m.him} tight]. ["I was so worried," said {m}.|"I am so glad
        you are safe," said {m}.] ["I am sorry. I will stay close now," said {a}.|"I will not run away again," said
        {a}.]""")
    t("[{m} thanked {h}.|\"{thanks},\" said {a}.|{a} waved goodbye to {h}.|]")
    t.set(b=t.m)
    t.end("""[Then they went home and had [soup|dinner|hot milk].|{a} held on to {m} all the way home.|{a} never ran
        away again.]""", alone=True)


def new_friend(t):
    t.cast().place()
    t.set(town="the forest" if t.a.animal else "town",
          who="I live near here" if t.a.name.startswith("the ") else "My name is " + t.a.name)
    t.begin("""{S} [had no friends|was new in {town}|was often alone|was very shy]. [{a.he} [wished|wanted very much]
        to have a friend.|{a.he} felt lonely.|]""")
    t("""{One_day} {a} [went {p.to}|was {p.at}]. There {a.he} saw {b.intro}. {b} was [sitting alone|playing
        alone|looking at the clouds|singing a little song|drawing in the sand]. [{a} wanted to say hello, but {a.he}
        was too shy.|{a} looked at {b}, and {b} looked at {a}.|{a} stood there and did not know what to say.]""")
    t.par()
    t("""[At last {a} said, "Hello. {who}."|Then {b} smiled. "Hello! Who are you?" asked {b}.|"Hi," {a} said
        [softly|in a small voice].] ["Do you want to play with me?" asked {b}.|"Would you like to play?" asked {a}.]
        ["Yes, I would love to!" was the answer.|They both smiled.|]""")
    t("""They [played tag|played hide and seek|built a little house from sticks|made a boat from a leaf|picked
        flowers|looked for pretty stones] [all afternoon|for a long time|until the sun went down]. [{a} showed {b} a
        secret place.|{b} taught {a} a funny song.|{b} gave {a} a pretty stone.|{a} and {b} shared an apple.]""")
    t.par()
    t("""["Will you come back tomorrow?" asked {b}. "Yes!" said {a}.|"This was fun," said {a}. "Let us play again
        tomorrow!"|"Now we are friends," said {b}.]""")
    t.end("""[{a} was not lonely anymore.|From that day on, {a} and {b} were best friends.|Now {a} had a friend, and
        {b} had one too.]""")


def broken_cup(t):
    t.cast("child")
    thing = t.pick(["cup", "vase", "plate", "lamp", "bowl", "clock", "flower pot"])
    t.toy(things=["ball", "toy plane", "drum", "toy car"])
    t.set(thing=thing, col=t.pick(COLORS))
    t.begin("{S} was playing with {a.his} {o} [in the house|inside|in the living room]. [\"Be careful,\" said {m}.|]")
    t("""[Then {a} ran too fast.|{a} was not careful.|{a} jumped and turned around.] Crash! The {col} {thing} [fell
        down and broke|was broken|broke into pieces]. [It was {m}'s favorite {thing}.|{a} looked at the pieces.|] ["Oh
        no!" said {a}.|{a} was scared.|{a.he} felt bad.]""")
    t.par()
    t("""[{a} wanted to hide the pieces.|First {a} wanted to say that the cat had done it.|"Maybe no one will see it,"
        thought {a}.] But [that did not feel right|{a.he} knew that it was wrong to lie]. [So {a}|{a} took a deep
        breath and] went to {m}. ["I broke the {thing}. I am very sorry," said {a}.|"It was me. I broke the {col}
        {thing}," said {a}.]""")
    t("""{m} [was quiet for a moment|looked at the pieces]. ["Thank you for telling me the truth," said {m}.|"I am sad
        about the {thing}, but I am glad that you told me," said {m}.|"You were brave to tell the truth," said {m}.]
        [{m} gave {a} a hug.|]""")
    t.par()
    t("""[They cleaned it up together.|They got some glue and fixed the {thing} together.|"Let us fix it together,"
        said {m}. They used a lot of glue.] [It did not look new, but it was good.|The {thing} looked a little funny,
        and they both laughed.|]""")
    t.set(b=t.m)
    t.end("""[From then on, {a} played with the {o.n} outside.|{a} felt much better. It is always good to tell the
        truth.|After that, {a} was more careful.]""", home=True, alone=True)


def the_race(t):
    t.cast("animal")
    t.set(goal=t.pick(["the big oak tree", "the old bridge", "the river", "the top of the hill", "the red barn",
        "the tall rock"]))
    t.set(h=t.animal(["owl", "bear", "deer", "turtle"], None, [t.a, t.b]))
    t.begin("""{S} was [a very fast runner|proud and fast|the fastest of all]. ["Nobody is faster than me," {a.he}
        said every day.|{a.he} liked to win.|]""")
    t("""{One_day} {a} met {b.full}. ["Let us have a race to {goal}," said {a}.|"Do you want to race me to {goal}?"
        asked {a}.|"I can run to {goal} faster than you," said {a}.] ["All right," said {b}.|"Yes, let us race!" said
        {b}.|] [{h.full} counted: "One, two, three, go!"|{h.full} said, "Ready, set, go!"]""")
    t.par()
    r = t.rng.random()
    if r < .45:
        t("""[They ran and ran.|Off they went!] {a} was [far ahead|in front]. Then {a} [tripped over a root|fell into
            a hole|slipped in the mud]. ["Ouch! My foot!" cried {a}.|"Help!" cried {a}.] {b} [could have won the
            race|came running]. But {b} stopped[.| and went back.] ["Are you hurt?" asked {b}.|"Hold on to me," said
            {b}.|"Let me help you," said {b}.]""")
        t("""{b} helped {a} to stand up. They walked side by side, [slowly, slowly|step by step], and came to {goal}
            [at the same time|together]. ["You both win," said {h}.|Everyone cheered for both of them.|"Who won?"
            asked {h}. "We both did!" said {a}.]""")
        t.par()
        t.end("""[{a} learned that a friend is better than a prize.|"Thank you for stopping," said {a}. "You are a
            true friend."|After that, {a} did not care so much about winning.]""")
    elif r < .75:
        t("""{a} [ran so fast that soon {a.he} was far ahead|was very fast]. ["I have plenty of time," said {a}.|"{b}
            is so slow," thought {a}.] So {a} [lay down under a tree and fell asleep|stopped to eat some
            berries|stopped to look at the butterflies]. But {b} did not stop. {b} went on and on, step by step.""")
        t("""When {a} [looked up], it was too late. {b} was already at {goal}! ["{b} is the winner!" said
            {h}.|Everyone cheered for {b}.]""")
        t.par()
        t.end("""["You won," said {a}. "I should not have stopped."|{a} learned not to be so proud.|{a} said sorry to
            {b}, and they became friends.]""")
    else:
        t("""[They ran and ran.|Off they went!] {a} ran past [the pond|the big stones], and {b} was right behind. [The
            wind blew.|Their feet flew over the grass.] At the end, {b} gave one big jump and [won|got there first].
            ["Hooray for {b}!" said {h}.|{h} clapped.]""")
        t("""{a} was [sad|angry] at first. ["I always win," {a} said.|{a} did not want to talk.] Then {b} said, "That
            was fun. [You run so well.|Will you race with me again tomorrow?]" """)
        t("""[{a} had to smile.|{a} smiled. "You run well too," said {a}.]""")
        t.par()
        t.end("""[{a} learned that it is fine to lose.|After that, they raced every day, and sometimes {a} won, and
            sometimes {b} won.]""")


def birthday(t):
    t.cast().set(x=t.pick(["a card", "a crown of flowers", "a necklace of shells", "a little boat", "a picture",
        "a tiny house from sticks", "a paper star", "a song"]))
    t.set(gave="sang the song for " + t.b.name if t.x == "a song" else f"gave {t.b} {t.x}")
    t.begin("{S} had a good friend, {b.full}. [It was almost {b}'s birthday.|Tomorrow was {b}'s birthday.]")
    t("""["What can I give {b}?" {a} asked {m}.|{a} wanted to give {b} a present, but {a.he} had no money.|{a} thought
        and thought about a present.] ["You can make something," said {m}.|"The best presents are made with love,"
        said {m}.|"What does {b} like?" asked {m}.]""")
    t("[So {a} made {x}.|{a} had a good idea. {a.he} made {x}.|All day, {a} worked on {x}.]" +
      ("" if t.x == "a song" else " [It was not easy, but {a.he} did not give up.|{a.he} worked very carefully.|"
       "It was the most beautiful thing {a.he} had ever made.|]"))
    t.par()
    t("""[The next day, {a} went to the party.|On the birthday, everyone came with presents.|Then the big day came.]
        [There was a big cake.|There were many [balloons|lights].|] [Some presents were big, and some were shiny.|The
        others gave {b} big boxes.] {a} [was worried|felt shy]. ["My present is so small," thought {a}.|"What if {b}
        does not like it?" thought {a}.]""")
    t("""[At last|Then] {a} {gave}. ["Did you make this for me?" asked {b}. "Yes," said {a}.|{b} looked at it for a
        long time.|{b} was quiet, and then {b} smiled.] ["It is the best present of all!" said {b}.|"I love it," said
        {b}. "Thank you!"]""")
    t.par()
    t.end("""[{a} was so happy that {a.he} danced.|Then they all ate cake.|{b} gave {a} the biggest piece of cake.|{b}
        kept it for a long, long time.]""")


def cannot_sleep(t):
    t.cast()
    noise, cause = t.pick([("a scratching sound", "a [little|gray] cat at the door"),
        ("a tapping sound", "a branch at the window"), ("a low howl", "the wind in the chimney"),
                           ("a squeak", "a tiny mouse with a piece of cheese"),
                           ("a bump", "a book that had fallen from the shelf"),
                           ("a soft hoot", "an owl in the tree outside"),
                           ("a strange drip", "the rain on the roof")])
    t.set(noise=noise, cause=t.spin(cause))
    t.begin("""{S} [was in bed|was tired|went to bed early]. [The moon was [bright|round].|The lights were out.|The
        stars were out.]""", "[quiet|cold|dark|windy]", night=True)
    t.set(One_day="")
    t("""But {a.he} could not sleep. [Then|Suddenly,] {a.he} heard {noise}. ["What was that?" {a.he}
        [whispered|asked].|{a} pulled the blanket over {a.his} head.|"Is it a monster?" thought {a}.|{a}'s heart went
        boom, boom, boom.]""")
    t.par()
    t("""[{a} called {m}. {m} came in with a light.|{a} got up and went to {m}.|"Help!" called {a}, and {m} came at
        once.] ["There is a monster," said {a}.|"I heard {noise}," said {a}.] ["Let us look together," said {m}.|"Show
        me where," said {m}. "We will look together."]""")
    t("""They [walked very softly|went slowly to see] and [looked|looked around]. And what was it? It was only
        {cause}! [{a} began to laugh.|They both laughed.|"You see? It is nothing bad," said {m}.]""")
    t.par()
    t("""{m} [sang a soft song|told a short story|sat on the bed for a while] [and tucked {a} in|and kissed {a} good
        night]. ["Good night," said {m}.|"Sleep well," said {m}.]""")
    t.set(b=t.m)
    t.end("""[{a} closed {a.his} eyes and soon {a.he} was asleep.|{a} was not afraid anymore and slept until
        morning.|In a minute, {a} was fast asleep.]""", home=True, alone=True)


def snowman(t):
    t.cast()
    t.set(coat="scarf" if t.a.animal else "coat")
    t.set(nose=t.pick(["a carrot", "a carrot", "a pine cone"]), hat=t.pick(["an old hat", "a red scarf", "a blue hat",
        "a green scarf"]))
    t.set(h=t.animal(["rabbit", "deer", "squirrel", "mouse"], None, [t.a, t.b]))
    t.begin("""[{S} looked out and saw snow everywhere.|{S} woke up and everything was white.|{S} was happy because it
        was snowing.]""", "[cold|white|snowy]", duo=True)
    t("""{a} put on a warm {coat} and called {b.friend}. ["Let us make a snowman!" said {a}.|"Do you want to build a
        snowman?" asked {a}.] [They rolled a big ball of snow, then a smaller one, and then a tiny one.|They rolled
        and pushed the snow until they had three big balls.] [They used [stones|buttons] for the eyes.|Two stones were
        the eyes.] {nose} was the nose, and they gave it {hat}.""")
    t.par()
    t("""[The next morning|Later|After lunch], the nose was gone! ["Who took the nose?" asked {b}.|"Where is the
        nose?" said {a}.] They saw small tracks in the snow. They followed the tracks [to a tree|behind the fence|to a
        bush]. There sat {h.intro}. ["I am sorry," said {h}. "I was so hungry."|"I took it," said {h}. "[My children
        are hungry|I had nothing to eat]."]""")
    t("""[{a} was not angry.|{a} and {b} looked at each other.] ["You can keep it," said {a}.|"We can give you more
        food," said {b}.] They brought {h} [some bread and nuts|some apples|a bowl of warm food]. {h} [was so
        happy|said thank you] and gave them [a red berry|a round nut|a small stick] for a new nose.""")
    t.par()
    t.end("""[Now the snowman had a new nose, and {h} was not hungry anymore.|The snowman looked even better than
        before.|Every day, {h} came to visit the snowman.]""", home=True)


def treasure(t):
    t.cast()
    places = t.some(["the old bridge", "the tall tree", "the big rock", "the dark cave", "the waterfall",
        "the stone well", "the red flowers", "the hollow log"], 3)
    t.set(x=places[0], y=places[1], z=places[2], box=t.pick(["box", "chest", "bag"]),
          gold=t.pick(["golden coins", "old toys", "shiny stones", "sweet candies", "books full of stories",
              "pretty shells", "warm cookies and a note"]))
    t.set(attic="in a hollow tree" if t.a.animal else "in the attic")
    t.begin("""{S} found an old map [in a book|under a stone|{attic}|in a bottle|behind a picture]. [There was a big X
        on it.|It was yellow and torn.|]""", duo=True)
    t("""["It is a treasure map!" said {a}.|"Maybe there is a treasure," said {a}.] {a} [ran to|showed it to]
        {b.friend}. ["Will you come with me?" asked {a}. "Yes!" said {b}.|"Let us go and find it," said {b}.]""")
    t.par()
    t("""First, they went to {x}. [There they turned left.|From there, they took ten big steps.|There the map said:
        walk to the sun.] Then they came to {y}. [It was a long way.|{b} was tired, but {a} said, "We are almost
        there."|They sat down and shared some bread.|They had to climb over some stones.] At last they saw {z}. ["Here
        is the X!" said {a}.|"This is the place," said {b}.]""")
    t("""They [dug and dug|dug with their hands|looked under the leaves]. [Clonk!|Bump!|] There was an old {box}. [{a}
        opened it slowly.|They opened it together.|"Open it!" said {b}, and {a} did.] Inside were {gold}!""")
    t.par()
    t("""["Half for you, and half for me," said {a}.|"We found it together, so we share it," said {b}.|"Let us share
        with everyone," said {a}.] [They danced around the {box}.|They carried the {box} home.|]""")
    t.end("""[But the best treasure was a good friend.|That night, {a} dreamed of new adventures.|{m} could not
        believe what they had found.|"What an adventure!" said {b}.]""")


def high_fruit(t):
    t.cast("animal", list(FOREST) if t.chance(.7) else list(FARM))
    t.set(fruit=t.pick(FRUITS))
    tall = t.animal(["bear", "giraffe", "deer", "elephant", "pony", "monkey"], not t.a.male, [t.a, t.b])
    t.set(h=tall)
    t.begin("{S} was [very hungry|hungry]. [{a.he} had not eaten all day.|{a.his} stomach made a funny sound.|]")
    t("""[Then|Soon|After a while,] {a} [saw|found] a tree full of {fruit}. [They looked so sweet.|"Yum!" said {a}.|]
        But the {fruit} were too high. {a} jumped, but {a.he} could not reach them. [{a.he} jumped again and fell
        down.|{a.he} shook the tree, but nothing fell.|{a.he} sat down and sighed.]""")
    t.par()
    if t.chance(.6):
        t("""{h.intro} came by. [{h} was much bigger.|{h} looked at {a} and smiled.|] ["I can reach the {fruit}," said
            {h}. "But my eyes are bad, and I cannot see which ones are ripe."|"I can reach them for you," said {h}.
            "But I have no basket to carry them."]""")
        t("""["Then let us work together," said {a}.|"I can help you with that," said {a}. "Let us do it together."]
            [So {a} helped from below, and {h} picked the {fruit}.|So {h} picked the {fruit}, and {a} put them in a
            pile.] Soon they had [a big pile of {fruit}|more {fruit} than they could eat].""")
        t.par()
        t("""[They sat under the tree and ate together.|They ate until they were full.] ["It is good to have a
            friend," said {h}.|"Together we can do it," said {a}.|]""")
        t.set(b=t.h)
        t.end("""[From that day on, they met under the tree every day.|{a} was full and happy.|They gave the rest to
            the other animals.]""")
    else:
        t("""{b.friend} came by. ["What are you doing?" asked {b}. "I want the {fruit}, but they are too high," said
            {a}.|"Those {fruit} look good," said {b}. "But I cannot reach them," said {a}.] ["Stand on my back," said
            {b}.|"I will stand still, and you can climb on my back," said {b}.]""")
        t("""{a} climbed up. [{a.he} stretched and stretched.|It was a bit shaky.] Then {a.he} got the first one, and
            the next one, and the next one. [The {fruit} fell down on the grass.|Plop, plop, plop!]""")
        t.par()
        t("""["Half of them are for you," said {a}.|{a} gave half of the {fruit} to {b}.|"We did it together, so we
            eat together," said {a}.] [They were very sweet.|They ate and ate.|]""")
        t.end("[{a} and {b} were full and happy.|{a} learned that two friends can reach higher than one.]")


def learn_skill(t):
    t.cast()
    if t.a.animal:
        able = ("duck", "frog", "otter", "beaver", "penguin", "turtle", "bird", "squirrel", "monkey")
        skill = t.pick(["sing", "dance", "whistle"] if t.a.kind in able else
                       ["swim", "sing", "dance", "whistle", "climb", "jump over the stream"])
    else:
        skill = t.pick(["ride a bike", "swim", "whistle", "read", "skate", "play the piano", "tie {a.his} shoes",
            "jump rope", "draw a horse", "play the drum"])
    skill = skill.format(a=t.a)
    t.set(skill=skill)
    t.begin("""{S} [wanted to learn to {skill}|could not {skill}|wished that {a.he} could {skill}]. [{b.friend} could
        do it very well.|All the others could do it, and {b.friend} was the best.]""")
    t("""{One_day} {a} tried to {skill}. [It did not go well.|But it was very hard.|{a.he} tried once. {a.he} tried
        twice. It did not work.] ["I will never learn it," said {a}.|{a} was [angry|sad] and wanted to [stop|give
        up].|"It is too hard for me," {a} said.]""")
    t.par()
    t("""["Nobody can do it on the first day," said {m}.|{m} said, "You have to practice a little every day."|"Do not
        give up," said {b}. "I can show you."|"It was hard for me too," said {b}.] So {a} [tried again|tried again and
        again|practiced every day]. [On Monday it was bad. On Tuesday it was a little better.|The first day was hard.
        The second day was better.|Slowly, it got better.]""")
    t("""Then, one [morning|day], it [worked|happened]! ["Look, I can do it!" {a} called.|{a} could {skill}!|"I did
        it! I did it!" {a} shouted.]""")
    t.par()
    t("""[{b} clapped.|{m} clapped and laughed.|Everyone was proud of {a}.] ["You did not give up," said {m}.|"I knew
        you could do it," said {m}.|]""")
    t.end("""[After that, {a} helped others to learn it too.|{a} learned that practice makes things easy.|{a} was so
        proud.]""", alone=True)


def sandcastle(t):
    t.cast("child")
    t.set(n=t.pick(["two", "three", "four", "five"]), flag=t.pick(["a feather", "a shell", "a red flag",
        "a blue flag", "a leaf"]))
    t.begin("""{S} went to the beach with {m}. [The sea was blue, and the sand was warm.|The sun was hot.|{a.he} had a
        bucket and a shovel.|]""")
    t("""{a} [wanted to build|began to build] a big sandcastle. [{b.friend} helped {a.him}.|{b.friend} came to help.]
        They made {n} towers and put {flag} on top. ["It is the best castle in the world," said {a}.|"It looks so
        nice!" said {b}.]""")
    t.par()
    t("""Then a big wave came. [Splash!|Whoosh!] The castle was gone. ["Oh no! Our castle!" cried {b}.|{a} was so sad
        that {a.he} cried.|{a} was angry at the sea.] ["The sea did not mean it," said {m}. "[You built too close to
        the water|Build a new one up here]."|"That is what waves do," said {m}. "Shall we build a new one?"]""")
    t.set(flag2=t.pick(["a white shell", "a piece of wood", "a smooth stone"]))
    t("""[So they|They] went [farther up the beach|away from the water] and began again. This time, {m} helped too.
        [They worked together and were very fast.|{a} carried water, and {b} dug.|They dug a deep ditch around it.]
        The new castle was even [bigger|better] than the first one. {a} put {flag2} on the top.""")
    t.par()
    t("""[The waves came, but they could not reach it.|The next wave came, but the castle was safe.] ["Hooray!"
        shouted {b}.|They cheered.|]""")
    t.end("""[When the sun went down, they went home, tired and happy.|{a} learned that you can always start
        again.|{m} took a picture of {a}, {b}, and the castle.]""")


def magic_thing(t):
    t.cast().toy("s", SMALL_THINGS).place("the forest", "the garden", "the beach" if not t.a.animal else "the forest")
    spot = t.pick(t.p.spots)
    t.set(spot=spot, wish=t.pick(["a mountain of candy", "a hundred toys", "a house full of cake",
        "all the balloons in the world", "a very big pie"]))
    t.set(was="were" if t.wish.startswith(("a hundred", "all")) else "was")
    t.begin("{S} was [walking|playing] {p.at}. [{a.he} was looking for pretty things.|]")
    t("""[{spot}, {a.he} found {s.a}.|There, {spot}, {a.he} saw {s.a}.] [It was warm and it shone.|It glowed in the
        light.|It sang a quiet song.] ["I am a magic {s.n}," it said. "I can give you one wish."|A tiny voice said,
        "This is a magic {s.n}. Make a wish!"]""")
    t.par()
    if t.chance(.5):
        t("""["I want {wish}!" said {a}.|{a} did not think for long. "I wish for {wish}," said {a}.] Poof! There {was}
            {wish}. [{a} was happy at first.|{a} played and ate and laughed.] But soon {a} [felt sick and alone|was
            bored and alone]. ["It is no fun without a friend," said {a}.|"I have so much, but nobody to share it
            with," said {a}.]""".replace("{was}", "were" if t.wish.startswith(("a hundred", "all")) else "was"))
        t("""So {a} [called|ran to] {b.friend}. ["Come and share this with me!" said {a}.|"Please help me," said {a}.
            "It is all too much for me."] {b} and all the others came. They [shared everything|had a big party].""")
        t.par()
        t.end("""[It was the best party ever.|Then the magic {s.n} was just {s.a} again. But {a} had many friends.|{a}
            learned that good things are better when you share them.]""")
    else:
        t("""{a} thought [about it|hard]. [{a.he} could wish for {wish}.|{a.he} wanted many things.] But then {a.he}
            thought of {b.friend}, who was [sick in bed|very sad that day|alone and cold]. ["I wish that {b} would be
            well and happy," said {a}.|"Please make {b} happy again," said {a}.]""")
        t("""The {s.n} [shone very bright|began to shine|sang]. Just then, {b} came running! ["I feel so good!" said
            {b}.|"I do not know what happened, but I feel wonderful!" said {b}.] {a} [smiled and said nothing|hugged
            {b}|told {b} about the magic {s.n}].""")
        t.par()
        t.end("""["You have a kind heart," said the {s.n}.|It was the best wish in the world.|{a} put the {s.n} back,
            so that someone else could make a wish.]""")


def pull_together(t):
    t.cast("animal", FARM if t.chance(.5) else FOREST)
    t.set(what=t.pick(["cart", "wagon", "truck", "wheelbarrow"]), n=t.pick(["apples", "hay", "pumpkins", "wood",
        "turnips", "potatoes"]))
    kinds = FARM if t.a.kind in FARM else FOREST
    t.set(h=t.animal(["mouse", "snail", "chick", "mole"], None, [t.a, t.b]))
    t.set(c=t.animal(kinds, None, [t.a, t.b, t.h]))
    t.set(some="something to eat" if t.n in ("hay", "wood") else "some " + t.n)
    t.begin("""{S} had a {what} full of {n}. [{a.he} wanted to bring it to the market.|{a.he} wanted to take it home
        before dark.|]""")
    t("""[But on the way,|Then] the {what} got stuck in the mud. {a} pulled and pulled, but the {what} did not move.
        ["I need help," said {a}.|"It is too heavy for me," said {a}.]""")
    t.par()
    t("""{b.full} came along. ["I will help you," said {b}.|"Let me pull too," said {b}.] {a} and {b} pulled and
        pulled, but the {what} did not move. Then {c.full} came. ["Three are better than two," said {c}.|"I am strong.
        I will help," said {c}.] They pulled and pulled, but the {what} still did not move.""")
    t("""Then {h.full} came. ["Can I help?" asked {h}.|"Let me help," said {h}.] ["You are too small," said
        {b}.|Everyone laughed. "You are so small!" said {c}.] ["Every little bit helps," said {a}.|"I may be small,
        but I can try," said {h}.] So they all pulled together. One, two, three! [Pop!|Splash!] The {what} came out of
        the mud!""")
    t.par()
    t("""["Hooray!" they all shouted.|They all fell down and laughed.] ["Thank you, my friends," said {a}.|{a} thanked
        them all.] {a} gave [each of them|everyone] {some}.""")
    t.end("""[And {h} got the most of all.|From then on, nobody laughed at {h} for being small.|Together, even the
        small ones are strong.]""")


def picnic(t):
    t.cast("child").place("the park", "the forest", "the beach")
    food = t.some(["sandwiches", "apples", "cookies", "grapes", "cheese", "carrots", "cake", "strawberries"], 3)
    t.set(f1=food[0], f2=food[1], f3=food[2], thief=t.pick(["squirrel", "duck", "dog", "bird", "raccoon", "mouse"]))
    one = ("cheese", "cake")
    t.set(were="was" if t.f1 in one else "were", little="a little of" if t.f2 in one else "some of")
    t.begin("""{S} and {b.friend} [wanted to have|were going to have] a picnic {p.at}. [{m} packed a basket.|They
        packed a basket.]""")
    t("""[They had {f1}, {f2}, and {f3}.|There was plenty to eat: {f1}, {f2}, and {f3}.] [They found a nice place in
        the shade.|They put a blanket on the ground.] ["I am so hungry," said {b}.|"Let us eat!" said {a}.] But first
        they [played with a ball|picked some flowers|went to look at the water]. When they came back, the {f1} {were}
        gone!""")
    t.par()
    t("""["Who took the {f1}?" asked {a}.|"Did you eat the {f1}?" asked {b}. "No, I did not," said {a}.] They [saw
        some crumbs on the grass|heard a noise in the bushes] and [looked closer|went to look]. There was a little
        {thief}! Its [mouth was full|cheeks were round]. [{a} and {b} began to laugh.|"You were hungry too!" said
        {a}.]""")
    t("""["It must be hungry," said {b}.|"Poor thing," said {b}. "Let us give it some more."] {a} gave the {thief}
        {little} the {f2}, and they ate the rest. There was enough for [everyone|all of them].""")
    t.par()
    t.end("""[The {thief} sat next to them until they went home.|"Next time, we will bring more {f1}," said {b}.|It
        was the funniest picnic ever.]""")


def first_school_day(t):
    t.cast("child")
    t.set(h=t.pick([Who("Mrs. Brown", False, "teacher", "Mrs. Brown", "Mrs. Brown"),
        Who("Mr. Green", True, "teacher", "Mr. Green", "Mr. Green"),
                    Who("Miss Hill", False, "teacher", "Miss Hill", "Miss Hill"),
                    Who("Mr. Lee", True, "teacher", "Mr. Lee", "Mr. Lee")]), col=t.pick(COLORS[:8]))
    t.begin("[It was {a}'s first day at school.|{S} was going to school for the first time.] [{a.he} had a new {col} "
            "bag.|{a.he} held {m}'s hand.|]"
            if t.a.known else "{S} was going to school for the first time. [{a.he} had a new {col} bag.|]")
    t("""["What if nobody likes me?" {a} asked.|{a} was nervous.|"I do not want to go," said {a}.] ["You will make a
        friend today," said {m}.|"Everyone is nervous on the first day," said {m}.] {m} [kissed {a} goodbye|waved
        goodbye].""")
    t.par()
    t("""The teacher was {h}. ["Good morning, children," said {h}.|"Welcome, {a}," said {h}.] [There were many
        children in the room.|The room was full of books and toys.] {a} sat down next to {b.intro}. [They did not
        talk.|{a} looked at the floor.] Then {a} saw that {b} had no [pencil|crayon|paper]. ["Do you want one of
        mine?" asked {a}.|"You can use mine," said {a}.] "Thank you," said {b}. [{b} smiled.|]""")
    t("""They drew [a house|a big whale|a rocket|a cat with a hat] together. ["What a nice picture!" said {h}.|{h} put
        the picture on the wall.] At lunch, they [shared an apple|sat together|traded sandwiches], and then they
        played [tag|on the swings|with a ball].""")
    t.par()
    t("""When {m} came, {a} did not want to go home. ["How was school?" asked {m}. "I have a new friend!" said {a}.
        "{b.his} name is {b}."]""")
    t.end("""["Can I come back tomorrow?" asked {a}. {m} laughed.|{a} could not wait for the next day.|School was not
        scary at all.]""", alone=True)


def messy_room(t):
    t.cast("child").toy(things=["teddy bear", "robot", "doll", "book", "toy car", "toy train", "flute", "hat"],
        colored=True)
    t.set(where=t.pick(["under a pile of clothes", "under the bed", "behind the toy box", "under a blanket",
        "inside a boot"]))
    t.begin("""{S} never cleaned {a.his} room. [There were toys everywhere.|There were clothes on the floor and toys
        on the bed.]""")
    t("""["Please clean your room," said {m}. "Later," said {a}.|"Your room is a mess," said {m}. "I will clean it
        tomorrow," said {a}.] [In the evening|Then], {a} wanted {a.his} {o}. {a.he} looked [here and there|in all the
        corners], but {a.he} could not find it. ["My {o.n} is gone!" cried {a}.|"Somebody took my {o}!" said {a}.]""")
    t.par()
    t("""["Nobody took it," said {m}. "It is somewhere in this mess."|"Clean the room, and you will find it," said
        {m}.] [{a} sighed.|{a} did not like that.] First {a.he} put the [books on the shelf|blocks in the box]. Then
        {a.he} put the [socks in the drawer|clothes in the closet]. [{a.he} found a lost sock, two crayons, and an old
        cookie.|{a.he} even found a coin.|]""")
    t("""And then, {where}, {a} saw something {o.word}. It was the {o.n}! ["Here you are!" said {a}.|{a} hugged it.|"I
        found it!" {a} shouted.]""")
    t.par()
    t("""{m} came in. ["What a clean room!" said {m}.|"I can see the floor!" said {m}, and laughed.]""")
    t.set(b=t.m)
    t.end("""[From then on, {a} put the {o.n} in the same place every night.|{a} learned that it is easy to find
        things in a clean room.|That night, {a} put the {o.n} next to the bed.]""", home=True, alone=True)


def sick_friend(t):
    t.cast()
    t.set(gift=t.pick(["some soup", "some flowers", "a jar of honey", "a funny book", "some warm bread",
        "a soft blanket"]), ill=t.pick(["a cold", "a fever", "a bad cough", "a sore throat"]))
    t.set(poor="Oh no, poor " + t.b.kind if t.b.name.startswith("the ") else "Poor " + t.b.name)
    t.begin("{S} [wanted to play with|was waiting for|always played with] {a.his} friend, {b.full}.", duo=True)
    t("""{One_day} {b} did not come. ["Where is {b}?" asked {a}.|{a} waited and waited.] ["{b} is sick," said {m}.
        "{b} has {ill}."|Then {m} came. "{b} has {ill} and must stay in bed," said {m}.] [{a} was sad.|"{poor}," said
        {a}.]""")
    t.par()
    t("""["I want to help," said {a}.|"What can we do?" asked {a}.|{a} had an idea.] {a} took {gift} and [walked|went]
        to the home of {b}. [On the way, it began to rain, but {a} did not turn back.|The way was long, but {a} did
        not stop.|] {a} knocked softly. ["Come in," said a weak voice.|{b} was in bed and looked very tired.]""")
    t("""["I brought you {gift}," said {a}.|"This is for you," said {a}, and gave {b} {gift}.] {b} [smiled for the
        first time that day|sat up and smiled]. ["You are so kind," said {b}.|"Thank you," said {b}. "I feel better
        already."] {a} [told a funny story|sat down and sang a song|made some tea].""")
    t.par()
    t("""[After a few days|The next week|Soon], {b} was well again. [They ran and played outside.|"Let us go and
        play!" said {b}.]""")
    t.end("""[{b} never forgot how kind {a} was.|"When you are sick, I will come to you too," said {b}.|It is good to
        have a friend when you are sick.]""", home=True)


def little_dragon(t):
    t.cast("child")
    name = t.pick(PETS)
    named = t.chance(.6)
    male = t.chance(.5)
    d = Who(name if named else "the dragon", male, "dragon",
        "a little dragon named " + name if named else "a little dragon",
            name + " the dragon" if named else "the little dragon")
    d.animal, d.home, d.known = True, "in a cave on a mountain", True
    royal = t.pick([("king", True), ("queen", False), ("princess", False), ("prince", True), ("knight", True)])
    k = Who("the " + royal[0], royal[1], royal[0], "a " + royal[0], "the " + royal[0])
    k.animal, k.home, k.known = True, "in a [big|white|tall] castle", True
    if t.chance(.5):
        t.set(a=k, b=d)
        t.begin("{S} [was very brave|had a big garden|was often bored]. [Everyone in the land liked {a.him}.|]")
        t("""{One_day} there was smoke [over the hill|behind the castle]. ["A dragon! A dragon!" shouted the
            people.|Everybody ran away.] But {a} was not afraid. {a.he} [took a horse and rode|walked] [up the
            mountain|to the cave]. There sat {b.intro}. And {b} was crying!""")
        t.par()
        t("""["Why are you crying?" asked {a}.|"What is wrong?" asked {a}.] ["Everybody runs away from me," said
            {b}.|"I am alone, and nobody wants to play with me," said {b}.|"I only wanted to say hello," said {b}.]
            ["I will not run away," said {a}. "Come with me."|"I will be your friend," said {a}.]""")
        t("""{a} took {b} to the castle. [At first, the people were afraid.|The people hid behind their doors.] But
            {b} [lit all the lamps|made the cold rooms warm|cooked soup for everyone|gave the children a ride in the
            sky]. [Soon everyone loved {b}.|The people laughed and clapped.]""")
        t.par()
        t.end("""[From that day on, {b} lived in the castle garden.|{a} and {b} were friends for ever.|And nobody ran
            away from {b} again.]""")
    else:
        t.set(a=d, b=t.child(not d.male))
        t.begin("{S} could not [breathe fire|fly]. [The other dragons laughed.|{a.he} was very sad about it.|]")
        fire = "fire" in t.parts[-1]
        t.set(do="breathe fire" if fire else "fly")
        t("""{One_day} {a} met {b.intro}. ["Why are you so sad?" asked {b}.|"You are a dragon!" said {b}. "Why are you
            crying?"] "I cannot {do}," said {a}. "I will help you," said {b}.""")
        t.par()
        if fire:
            t("""[First, {a} ate hot peppers. Nothing happened.|{a} took a deep breath. There was only a little
                smoke.] Then {b} [tickled {a} with a feather|gave {a} a flower to smell]. "Ah, ah, achoo!" A big flame
                came out! ["Fire! I made fire!" shouted {a}.|"You did it!" said {b}.]""")
        else:
            t("""[First, {a} jumped from a small rock and fell on the grass.|{a} ran and jumped, but {a.he} fell
                down.] "Move your wings and look up," said {b}. [They tried again and again.|The next day, they tried
                again.] Then the wind came, and {a} went up, up, up! ["I am flying!" shouted {a}.|"You can fly!"
                shouted {b}.]""")
        t.par()
        t("[The other dragons did not laugh anymore.|The other dragons were surprised.|] " +
          ("{a} made a fire, and they [cooked soup|were warm all night]." if fire else
           "{b} sat on {a}, and they flew over the [hills|forest|sea]."))
        t.end("[{a} and {b} were best friends from then on.|\"Thank you for helping me,\" said {a}.]")


def lost_key(t):
    """Returning what somebody lost."""
    t.cast().toy("s", ["key", "ring", "coin", "purse", "watch", "button", "bell"]).place("the park", "the village",
        "the garden")
    spot = t.pick(t.p.spots)
    owner = t.pick([("the old woman", False), ("the old man", True), ("the baker", True), ("the gardener", True),
        ("the teacher", False), ("the farmer", True)]) if not t.a.animal else None
    h = Who(owner[0], owner[1], owner[0][4:], "a" + owner[0][3:], owner[0]) if owner else t.animal(FOREST, None,
        [t.a, t.b])
    first = t.s.word.split()[0]
    t.set(h=h, spot=spot, look="very " + first if first in QUALITIES else first)
    t.begin("{S} was walking {p.at}[| with {b.friend}].")
    t.set(b=h)
    t("""{spot}, {a.he} saw something. It was {s.a}! ["How pretty!" said {a}.|{a} picked it up. "I want to keep it,"
        {a.he} thought.|"Now it is mine," thought {a}.]""")
    t.par()
    t("""Then {a} saw {h.intro}. {h} [looked very sad|was looking for something on the ground|was looking around].
        ["Did you lose something?" asked {a}.|"What are you looking for?" asked {a}.] ["I lost my {s.n}," said {h}.
        "It is {look}."|"I lost {s.a}," said {h}.]""")
    t("""[{a} wanted to keep the {s.n}, but it was not right.|{a} looked at the {s.n} one more time.|{a} did not have
        to think for long.] ["Here it is," said {a}. "I found it {spot}."|"I found it {spot}," said {a}, and gave it
        back.] {h} [smiled from ear to ear|was so happy]. ["Thank you! You are very honest," said {h}.|"You are a good
        {a.kind}," said {h}.]""")
    t.par()
    t("""{h} gave {a} [a sweet apple|a big cookie|a bunch of flowers|a warm hug].""")
    t.end("""[{a} felt happy all day.|{a} was glad that {a.he} had done the right thing.|It is good to be honest.]""",
        alone=True)


def thorn(t):
    """The small one helps the big one."""
    t.cast("animal", ["mouse", "rabbit", "bird", "frog", "squirrel", "hedgehog", "mole", "chick", "snail", "lamb",
        "kitten"])
    big = t.pick(["bear", "lion", "wolf", "tiger", "elephant", "giant", "monster", "dragon"])
    male = t.chance(.5)
    t.set(b=Who("the " + big, male, big, "a big " + big, "the big " + big),
        thorn=t.pick(["a thorn", "a sharp stone", "a splinter"]),
          foot="foot" if big in ("giant", "monster", "elephant") else "paw")
    t.set(the_thorn="the" + t.thorn[1:])
    t.begin("""[{S} was very small.|{S} was the smallest of all.|{S} was small but not afraid of anything.] [Everyone
        was afraid of {b.full}.|All the others ran away from {b.full}.]""")
    t("""{One_day} {a} heard a loud [roar|cry|noise]. ["What is that?" said {a}.|The ground shook.|] [Everyone hid|All
        the others ran away], but {a} [went to look|walked closer]. There was {b}, and {b} was [crying|in pain]. ["Go
        away!" said {b}.|"Leave me alone!" said {b}.] ["You are hurt," said {a}.|"What is wrong?" asked {a}.]""")
    t.par()
    t("""["There is {thorn} in my {foot}," said {b}.|"My {foot} hurts so much," said {b}.] {a} looked. There was
        {thorn} in the {foot}. ["I can help you," said {a}. "Hold still."|"I am small, so I can reach it," said {a}.]
        {b} [held very still|closed both eyes]. {a} pulled and pulled. [Pop!|At last,] {the_thorn} came out.""")
    t("""["It does not hurt anymore!" said {b}.|"Oh, that feels so much better," said {b}.] ["Why were you not afraid
        of me?" asked {b}. "You looked sad, not bad," said {a}.|"You are small, but you are very brave," said
        {b}.|"Nobody ever helped me before," said {b}.]""")
    t.par()
    t.end("""[From that day on, nobody had to be afraid of {b}.|{b} never scared anyone again.|{b} carried {a} home,
        and all the others were surprised.|{a} learned that even the big ones need help sometimes.]""")


def too_much(t):
    t.cast()
    t.set(food=t.pick(["cookies", "berries", "cherries", "pancakes", "muffins", "plums", "strawberries"]))
    t.begin("{S} [loved {food}|loved {food} more than anything|could eat {food} all day].")
    t("""{One_day} {m} [made|brought home|got] a big bowl of {food}. ["They are for the party tonight," said {m}.
        "Please do not eat them."|"You may have two," said {m}. "The others are for tomorrow."] Then {m} went out. {a}
        looked at the {food}. [They smelled so good.|They looked so good.]""")
    t.par()
    t("""["Just one more," thought {a}.|"Nobody will see it," thought {a}.] {a} ate one, and then another one, and
        another one. Soon the bowl was [empty|almost empty]! Then {a} did not feel well. ["Oh, my stomach!" said
        {a}.|{a.he} had to lie down.] {m} came back and saw the bowl. ["Who ate all the {food}?" asked {m}.|"What
        happened here?" asked {m}.]""")
    t("""["I did," said {a}. "I am sorry."|{a} began to cry. "It was me. I am so sorry," said {a}.] {m} [sat down next
        to {a}|was not happy, but gave {a} some tea]. ["Thank you for being honest," said {m}.|"Now you know why I
        said no," said {m}.] ["Let us make new ones together tomorrow," said {m}.|"Tomorrow you can help me to get
        more," said {m}.]""")
    t.par()
    t.end("""[The next day, {a} helped, and this time {a.he} ate only two.|{a} learned that too much of a good thing
        is not good.|After that, {a} always listened to {m}.]""", home=True, alone=True)


def tree_house(t):
    t.cast()
    what = t.pick(["a tree house", "a raft", "a little bridge", "a bird house", "a swing"])
    t.set(what=what, it="the" + what[1:], c=t.animal(["owl", "bear", "beaver"], None, [t.a,
        t.b]) if t.a.animal else t.m, col=t.pick(COLORS[:8]))
    t.begin("{S} and {b.friend} wanted to build {what}. [They had a good plan.|They drew it on a piece of paper.|]")
    t("""[First, they looked for wood.|They found some old boards behind the shed.|They brought wood, nails, and a
        rope.] {a} [held|carried] the boards, and {b} [had the hammer|used the hammer]. Knock, knock, knock! [But it
        was not easy.|They worked all morning.] Then [the wind came|{b} leaned on it], and everything fell down. ["Oh
        no!" said {b}.|"All our work!" said {a}.]""")
    t.par()
    t("""["We will never finish it," said {b}. "Yes, we will," said {a}.|{b} wanted to stop, but {a} said, "Let us try
        one more time."] They asked {c} for help. ["You need [stronger wood|more nails|a better rope]," said {c}. "I
        will show you how."|{c} looked at it and smiled. "I know what to do," said {c}.] [They worked together|All
        three worked together] until [the evening|the sun went down].""")
    t("""[At last, {it} was ready!|Then it was done!] ["It is beautiful!" said {b}.|"We did it!" said {a}.] They
        painted it {col}[ and put a flag on it| and wrote their names on it|].""")
    t.par()
    t.end("""[{a} and {b} were very proud of {it}.|Every day, {a} and {b} came back to {it}.|{a} learned that you
        should not give up.|"We are the best builders in the world," said {a}.]""")


def clean_up(t):
    t.cast().place("the park", "the beach", "the forest")
    t.begin("{S} loved to go {p.to}. [{a.he} knew every corner of it.|It was {a.his} favorite place.|]")
    t("""{One_day} {a} saw that there was trash everywhere. [There were bottles and paper on the ground.|There were
        cans in the water and bags in the bushes.] ["This is so ugly," said {a}.|"Who did this?" asked {a}.|{a} felt
        sad.] [A little bird had a string around its foot. {a} took it off, and the bird flew away.|]""")
    t.par()
    t("""["I will clean it up," said {a}.|"We must do something," said {a}.] {a.he} took a big bag and began.
        {b.friend} came by. ["What are you doing?" asked {b}. "I am cleaning up," said {a}.|"Can I help you?" asked
        {b}. "Yes, please," said {a}.] So {b} helped too. Then [more friends came|others came and helped|{m} came with
        more bags]. [They picked up the bottles, the cans, and the paper.|One bag was full, then two, then three.]""")
    t("""[In the evening|Soon|After some hours], everything was clean [again|and beautiful]. [The birds were
        singing.|The flowers looked brighter.|] ["Look how nice it is!" said {b}.|"Now it is beautiful again," said
        {a}.]""")
    t.par()
    t.end("""[They made a sign that said: Please keep this place clean.|{a} was tired but very happy.|"Thank you,"
        said {m}. "You did a great job."|After that, everybody put the trash in the bin.]""")


def moon_dream(t):
    t.cast().toy(things=["toy boat", "balloon", "toy plane", "kite", "hat", "bucket"])
    where, what = t.pick([("the moon", "soft like cake"), ("a cloud", "soft like a pillow"),
        ("a star", "warm like bread"), ("the bottom of the sea", "blue and quiet")])
    t.set(where=where, what=what, gift=t.pick(["small stone", "tiny star", "white shell", "bright feather",
        "golden button"]), c=t.animal(["rabbit", "owl", "cat", "mouse", "bear", "turtle"], None, [t.a, t.b]))
    t.set(climbed="held on tight" if t.o.n in ("balloon", "kite") else "climbed in")
    t.begin("""{S} had {o.a}. [{a.he} always slept with it.|It stood beside {a.his} bed.|]""", "[quiet|warm|clear]",
        night=True)
    t("""One night, the {o.n} began to [grow|shine]. [It grew and grew until it was as big as a house.|"Come with me,"
        it said.] {a} [{climbed}|held on tight], and off they went! They [flew|went] over [the houses and the
        trees|the hills and the rivers], all the way to {where}. [It was {what}.|Everything there was {what}.]""")
    t.par()
    t("""There {a} met {c.intro}. ["Welcome to {where}," said {c}.|"I have been waiting for you," said {c}.|"Nobody
        has come here for a long time," said {c}.] They [danced|jumped] [up and down|round and round] and [ate star
        cookies|drank sweet milk|sang funny songs]. ["Can I stay here?" asked {a}.|{a} had never had so much fun.]
        ["You must go back before the sun comes up," said {c}.|"It is late now," said {c}. "Your family is waiting."]""")
    t("""{c} gave {a} a {gift}. ["So that you do not forget me," said {c}.|"This is for you," said {c}.] Then the
        {o.n} took {a} home.""")
    t.par()
    t("""In the morning, {a} woke up in bed. ["What a dream!" said {a}.|"Was it only a dream?" thought {a}.] But
        [under the pillow|in {a.his} hand] there was [a|the] {gift}.""")
    t.end("""[{a} smiled and told nobody but {b.friend}.|{a} kept it in a little box for ever.|{a} could not wait for
        the next night.]""", home=True, alone=True)


def the_band(t):
    t.cast("any")
    ins = t.some(["drum", "flute", "bell", "guitar", "horn", "fiddle", "whistle"], 3)
    c = t.animal(FARM, None, [t.a, t.b]) if t.a.animal else t.child(None, [t.a, t.b])
    t.set(i1=ins[0], i2=ins[1], i3=ins[2], c=c)
    t.begin("""{S} had a {i1} and played it every day. ["It is too loud," said the neighbors.|But it sounded a little
        sad all alone.|{a.he} wanted to play with others.]""")
    t("""{One_day} {a} met {b.full}, who had a {i2}. ["Shall we play together?" asked {a}.|"Let us make music
        together," said {b}.] So they played. [But it did not sound good.|It was loud and it was awful!] {a} played
        fast, and {b} played slow. ["You are too slow," said {a}. "You are too fast," said {b}.|They looked at each
        other and were angry.]""")
    t.par()
    t("""Then {c.full} came with a {i3}. ["You must listen to each other," said {c}.|"Do not only play. Listen too,"
        said {c}.] ["Let us count: one, two, three, four."|"I will count for you. One, two, three, four!"]""")
    t("""{a} listened to {b}, and {b} listened to {a}. [Now it sounded wonderful.|Suddenly, there was a beautiful
        song.] [Everyone came out to hear it.|The neighbors opened their windows and danced.|]""")
    t.par()
    t("""["We are a band!" said {a}.|"Let us play every day," said {b}.|"That was beautiful!" said {m}.]""")
    t.end("""[And so the {i1}, the {i2}, and the {i3} played together every evening.|{a} learned that it is good to
        listen.|At the end, everybody clapped.]""")


def visit_grandma(t):
    t.cast("child")
    how = t.pick(["train", "bus"])
    t.set(how=how, c=t.child(None, [t.a, t.b]), food=t.pick(["apple pie", "warm bread", "hot soup", "pancakes"]),
          gran=t.pick([Who("Grandma", False, "grandma", "Grandma", "Grandma"),
              Who("Grandpa", True, "grandpa", "Grandpa", "Grandpa")]))
    if t.m.name.lower().split()[-1] in ("grandma", "grandpa"):
        t.set(m=Who("Mom", False, "mom", "Mom", "Mom"))
    t.begin("{S} wanted to visit {gran}, who lived [far away|by the sea|in the hills|on a farm].")
    t("""{One_day} {a} and {m} took the {how}. [It was the first time for {a}.|{a} had a small bag and a sandwich.|]
        ["Look, cows!" said {a}.|They saw cows and rivers and hills.|{a} looked out all the time.] [Then {a} saw
        {c.intro}, who was crying.|Across from {a} sat {c.intro}, who was crying.] ["What is wrong?" asked {a}.|"Why
        are you sad?" asked {a}.] ["I forgot my lunch, and I am hungry," said {c}.|"I miss my home," said {c}.]""")
    t.par()
    t("""["Here, you can have half of my sandwich," said {a}.|"Do you want to share my sandwich?" asked {a}.] {c}
        [stopped crying|smiled a little] and took it. "Thank you," said {c}. They [played cards|counted the
        houses|told each other jokes|drew pictures] until the {how} stopped. ["Goodbye, {c}!" said {a}.|They waved
        goodbye.]""")
    t("""{gran} was [waiting|already there]. ["You have grown so much!" said {gran}.|{a} ran to {gran} and got a big
        hug.] [There was {food} on the table.|The house smelled of {food}.] {a} told {gran} about the {how} and about
        {c}. ["You have a kind heart," said {gran}.|"It was good of you to share," said {gran}.]""")
    t.par()
    t.end("""[In the evening, they looked at the stars together.|{a} fell asleep in a big soft bed.|{a} wanted to stay
        for ever.]""", home=True, alone=True)


PLOTS = [lost_toy, share_toy, stuck_toy, baby_animal, missing_ingredient, garden, rainy_day, be_brave, get_lost,
    new_friend,
         broken_cup, the_race, birthday, cannot_sleep, snowman, treasure, high_fruit, learn_skill, sandcastle,
             magic_thing,
         pull_together, picnic, first_school_day, messy_room, sick_friend, little_dragon, lost_key, thorn, too_much,
             tree_house, clean_up, moon_dream, the_band, visit_grandma]


def story(seed):
    t = Teller(seed)
    t.pick(PLOTS)(t)
    return t.text()


def main():
    ap = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    ap.add_argument("--n", type=int, default=5)
    ap.add_argument("--seed", type=int, default=1)
    ap.add_argument("--plot", help="only this plot")
    args = ap.parse_args()
    if args.plot:
        PLOTS[:] = [p for p in PLOTS if p.__name__ == args.plot]
    for i in range(args.n):
        sys.stdout.write(story(args.seed * 10_000_000 + i) + "\n" + EOT + "\n")


if __name__ == "__main__":
    main()
