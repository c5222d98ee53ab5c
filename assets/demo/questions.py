"""What can be asked about each plot of stories.py: questions with their answers, subjects to ask for, and a summary.

{f} is the friend of the beginning (plots give {b} to others later); everything else is the plot's own. Questions have
[this|that] alternatives, answers one form each. An answer is asked for only where the story says it: every fact in it
that the question does not name must be in the text (see chats.py).
"""

# plot: (subjects, summary, [(questions, answer), ...])
ABOUT = {
    "lost_toy": (["a lost {o.n}", "a {o.n} that is lost"], "{a} lost {o.a}, and {f} helped to find it.", [
        ("[What did {a} lose?|What was lost?|What was gone?]", "It was {o.a}."),
        ("[What color was the {o.n}?|Which color did the {o.n} have?]", "It was {o.word}."),
        ("[Where was the {o.n}?|Where did they find the {o.n}?|Where did they find it?]", "It was {spot}."),
        ("[Who helped {a}?|Who helped to look for it?]", "It was {f}."),
        ("Where did they look first?", "They looked {w1}.")]),
    "share_toy": (["sharing", "a {o.n} that two want"],
                  "{a} did not want to share the {o.n} with {f}, but then they played together.", [
        ("[What did {a} have?|What toy did {a} have?]", "It was {o.a}."),
        ("[Who wanted to play with the {o.n}?|Who asked for the {o.n}?|Who wanted a turn?]", "It was {f}."),
        ("[What did {a} learn?|What can we learn from it?]", "It is good to share.")]),
    "stuck_toy": (["a {o.n} and the wind", "the wind"],
                  "The wind took the {o.n}, and {h} helped {a} to get it back.", [
        ("[What flew away?|What did the wind take?]", "It was the {o.n}."),
        ("[Where did the {o.n} get stuck?|Where was the {o.n}?|Where did it land?]", "It was {where}."),
        ("[Who helped {a}?|Who helped to get the {o.n} back?|Who helped?]", "It was {h}."),
        ("[What did {a} have?|What did {a} own?]", "It was {o.a}.")]),
    "baby_animal": (["a little {n.kind}", "a lost {n.kind}", "a baby animal"],
                    "{a} found a little {n.kind} and helped it.", [
        ("[What did {a} find?|What animal did {a} find?|Which animal did {a} help?]", "It was a {n.kind}."),
        ("[Where was the {n.kind}?|Where did {a} find the {n.kind}?]", "It was {where}."),
        ("[What did {a} call the {n.kind}?|What was the {n.kind} named?]", "It was called {pet}.")]),
    "missing_ingredient": (["cooking", "making {a_food}"],
                           "{a} and {m} had no {ing}, and {nb} gave them some.", [
        ("[What did they want to make?|What did they make?|What did they cook?]", "It was {a_food}."),
        ("[What was missing?|What did they need?]", "They had no {ing}."),
        ("[Who gave them the {ing}?|Who had {ing}?|Who helped them?]", "It was {nb}.")]),
    "garden": (["a seed", "a garden", "a {plant}"], "{a} planted a seed and waited until there was a {plant}.", [
        ("[What did {a} grow?|What grew from the seed?|What did the seed become?]", "It was a {plant}."),
        ("[Who saw the {plant}?|Who came to see it?]", "It was {f}."),
        ("[Who told {a} to wait?|Who said that it needs time?]", "It was {m}."),
        ("What did {a} put in the ground?", "It was a seed.")]),
    "rainy_day": (["a rainy day", "rain"], "It rained, but {a} had fun.", [
        ("[How was the weather?|What was the weather like?]", "It rained."),
        ("[Why could {a} not go out?|Why was {a} sad?]", "It rained."),
        ("Was it sunny?", "No, it rained.")]),
    "be_brave": (["being brave", "{fear}"], "{a} was afraid of {fear}, but then {a.he} was brave.", [
        ("[What was {a} afraid of?|What scared {a}?|What was scary?]", "It was {fear}."),
        ("[Who helped {a}?|Who helped?|Who was with {a}?]", "It was {m}.")]),
    "get_lost": (["getting lost", "{where}"], "{a} got lost in {where}, and {h} showed the way.", [
        ("[What did {a} follow?|What did {a} run after?|What did {a} see?]", "It was {x}."),
        ("[Who helped {a}?|Who showed {a} the way?|Who did {a} meet?]", "It was {h}."),
        ("[Where did {a} get lost?|Where was {a}?|Where did they go?]", "It was in {where}."),
        ("[Who went with {a}?|Who was with {a}?]", "It was {m}.")]),
    "new_friend": (["a new friend", "two good friends", "making friends"], "{a} was alone and made a friend, {f}.", [
        ("[Who did {a} meet?|Who is the new friend of {a}?|Who was {a}'s new friend?]", "It was {f}."),
        ("[Where did they meet?|Where did {a} meet {f}?|Where was {a}?]", "It was {p.at}."),
        ("[How did {a} feel at first?|How was {a} at first?]", "{a.he} was alone.")]),
    "broken_cup": (["a broken {thing}", "telling the truth"], "{a} broke the {col} {thing} and told {m} the truth.", [
        ("[What did {a} break?|What fell down?|What broke?]", "It was the {thing}."),
        ("[What color was the {thing}?|Which color did the {thing} have?]", "It was {col}."),
        ("[What was {a} playing with?|What toy did {a} have?]", "It was {a.his} {o}."),
        ("[Who did {a} tell?|Whom did {a} tell the truth?]", "It was {m}.")]),
    "the_race": (["a race", "a race to {goal}"], "{a} and {f} had a race to {goal}.", [
        ("[Who raced with {a}?|Who did {a} race with?|Who did {a} meet?]", "It was {f}."),
        ("[Where did they run?|Where did they race to?|Where did the race end?]", "They ran to {goal}."),
        ("[Who counted?|Who started the race?|Who said go?]", "It was {h}."),
        ("[Who won?|Who won the race?|Who was the winner?]", "It was {winner}.")]),
    "birthday": (["a birthday", "a present"], "{a} made a present for {f}: {x}.", [
        ("[Whose birthday was it?|Who had a birthday?]", "It was {f}."),
        ("[What did {a} make?|What did {a} give {f}?|What was the present?]", "It was {x}.")]),
    "cannot_sleep": (["a noise at night", "a night"], "{a} heard {noise}, but it was only {cause}.", [
        ("[What did {a} hear?|Which sound did {a} hear?]", "It was {noise}."),
        ("[What was it?|What made the noise?|What was the noise?]", "It was {cause}."),
        ("[Who helped {a}?|Who came?|Who looked with {a}?]", "It was {m}.")]),
    "snowman": (["a snowman", "winter", "snow"], "{a} and {f} made a snowman, and {h} took its nose.", [
        ("[What did they make?|What did they build?]", "It was a snowman."),
        ("[What was the nose of the snowman?|What was the nose?]", "It was {nose}."),
        ("[Who took the nose?|Who was hungry?]", "It was {h}."),
        ("[Who helped {a}?|Who made the snowman with {a}?]", "It was {f}."),
        ("What did the snowman wear?", "It was {hat}.")]),
    "treasure": (["a treasure", "a map", "an adventure"], "{a} and {f} followed a map and found {gold}.", [
        ("[What did {a} find first?|What did {a} find at first?]", "It was an old map."),
        ("[What was in the {box}?|What was the treasure?|What did they find?]", "There were {gold}."),
        ("[Who went with {a}?|Who helped {a}?]", "It was {f}."),
        ("[Where did they go first?|Where did they go at first?]", "They went to {x}."),
        ("[Where was the treasure?|Where was the X?]", "It was at {z}.")]),
    "high_fruit": (["{fruit}", "hungry animals", "a tree full of {fruit}"], "{a} and {helper} got the {fruit} together.", [
        ("[What was in the tree?|What did {a} find?|What did {a} want to eat?]", "There were {fruit} in the tree."),
        ("[Who helped {a}?|Who helped?]", "It was {helper}."),
        ("Why did {a} need help?", "The {fruit} were too high.")]),
    "learn_skill": (["learning to {skill}", "practice"], "{a} practiced and learned to {skill}.", [
        ("[What did {a} learn?|What did {a} want to learn?|What could {a} not do?]", "It was to {skill}."),
        ("[Who could do it well?|Who could {skill}?|Who was good at it?]", "It was {f}.")]),
    "sandcastle": (["a sandcastle", "the beach", "a day at the sea"],
                   "A wave broke the sandcastle, and {a} and {f} built a new one.", [
        ("[What did they build?|What did {a} build?]", "It was a sandcastle."),
        ("[How many towers did it have?|How many towers did they make?]", "There were {n}."),
        ("[Who helped {a}?|Who built it with {a}?]", "It was {f}."),
        ("[What broke the castle?|Why was the castle gone?]", "It was a big wave.")]),
    "magic_thing": (["magic", "a magic {s.n}", "a wish"], "{a} found a magic {s.n} and made a wish.", [
        ("[What did {a} find?|What was magic?]", "It was {s.a}."),
        ("[Where was the {s.n}?|Where did {a} find it?|Where did {a} find the {s.n}?]", "It was {spot}."),
        ("[Where was {a}?|Where did {a} walk?]", "It was {p.at}.")]),
    "pull_together": (["a {what} in the mud", "working together"],
                      "The {what} got stuck, and they all pulled it out together.", [
        ("[What was in the {what}?|What did {a} have in the {what}?]", "It was full of {n}."),
        ("[What got stuck?|What was in the mud?]", "It was the {what}."),
        ("[Who was small?|Who was too small?|Who was the smallest?]", "It was {h}."),
        ("[Who helped first?|Who came first?]", "It was {f}.")]),
    "picnic": (["a picnic", "a picnic {p.at}"], "{a} and {f} had a picnic, and a {thief} took the {f1}.", [
        ("[Who took the {f1}?|Who was the thief?|Who ate the {f1}?]", "It was a {thief}."),
        ("[What was gone?|What was taken?]", "It was the {f1}."),
        ("[Where was the picnic?|Where were they?|Where did they go?]", "It was {p.at}."),
        ("[What did they have to eat?|What did they eat?|What was in the basket?]", "They had {f1}, {f2}, and {f3}."),
        ("[Who went with {a}?|Who was with {a}?]", "It was {f}.")]),
    "first_school_day": (["school", "the first day at school"], "{a} went to school and met {f}.", [
        ("[Who was the teacher?|What was the teacher's name?]", "It was {h}."),
        ("[Who did {a} meet?|Who was {a}'s new friend?|Who sat next to {a}?]", "It was {f}."),
        ("[What color was the bag?|Which color did the bag have?]", "It was {bag}."),
        ("Where did {a} go?", "{a.he} went to school.")]),
    "messy_room": (["a messy room", "a lost {o.n}"], "{a} cleaned {a.his} room and found the {o}.", [
        ("[What did {a} look for?|What was gone?|What did {a} lose?]", "It was the {o}."),
        ("[Where was the {o.n}?|Where did {a} find the {o.n}?]", "It was {where}."),
        ("[What color was the {o.n}?|Which color did the {o.n} have?]", "It was {o.word}."),
        ("[Who told {a} to clean the room?|Who came in?]", "It was {m}.")]),
    "sick_friend": (["a sick friend", "helping a friend"], "{f} was sick, and {a} brought {gift}.", [
        ("[Who was sick?|Who was in bed?|Who was ill?]", "It was {f}."),
        ("[What did {f} have?|Why did {f} not come?|Why was {f} in bed?]", "It was {ill}."),
        ("[What did {a} bring?|What did {a} take to {f}?|What did {a} give {f}?]", "It was {gift}.")]),
    "little_dragon": (["a dragon", "a little dragon", "a brave little dragon"], "{a} and {b} became friends.", [
        ("[Who was crying?|Who was sad?|Who was alone?]", "It was {crying}."),
        ("[What could {a} not do?|What did {a} learn?]", "It was to {do}."),
        ("[Who helped {a}?|Who did {a} meet?|Who was {a}'s friend?]", "It was {b}.")]),
    "lost_key": (["a lost {s.n}", "being honest"], "{a} found {s.a} and gave it back to {h}.", [
        ("[What did {a} find?|What was on the ground?|What did {a} see?]", "It was {s.a}."),
        ("[Where did {a} find it?|Where was it?|Where was the {s.n}?]", "It was {spot}."),
        ("[Who lost the {s.n}?|Who lost it?|Who was looking for the {s.n}?]", "It was {h}."),
        ("[Where was {a}?|Where did {a} walk?]", "It was {p.at}.")]),
    "thorn": (["a {b.kind}", "a big {b.kind}", "helping someone big"], "{a} pulled {thorn} out of the {foot} of {b}.", [
        ("[What was in the {foot}?|Why did it hurt?|What did {a} pull out?]", "It was {thorn}."),
        ("[Who was hurt?|Who was crying?|Who was in pain?]", "It was {b}."),
        ("[Who helped {b}?|Who was not afraid?|Who was brave?]", "It was {a}.")]),
    "too_much": (["too many {food}", "{food}"], "{a} ate too many {food} and did not feel well.", [
        ("[What did {a} eat?|What did {a} love?|What was in the bowl?]", "It was the {food}."),
        ("[Who came back?|Who saw the bowl?]", "It was {m}."),
        ("[Why did {a} not feel well?|Why was {a} sick?]", "There were too many {food}.")]),
    "tree_house": (["{what}", "building {what}"], "{a} and {f} built {what}, and {c} helped them.", [
        ("[What did they build?|What did they want to build?|What did {a} build?]", "It was {what}."),
        ("[What color did they paint it?|Which color did it have?|What color was it?]", "It was {col}."),
        ("[Who built it with {a}?|Who was {a}'s friend?]", "It was {f}."),
        ("[Who helped them?|Who did they ask for help?]", "It was {c}.")]),
    "clean_up": (["trash", "cleaning up {p.name}"], "{a} and {f} cleaned up {p.name}.", [
        ("[What did they clean?|Where was the trash?|What was full of trash?]", "It was {p.name}."),
        ("[Who helped {a}?|Who came by?]", "It was {f}.")]),
    "moon_dream": (["a dream", "{where}", "a trip to {where}"], "{a} went to {where} and met {c}.", [
        ("[Where did {a} go?|Where did they fly?|Where did the {o.n} take {a}?]", "It was {where}."),
        ("[Who did {a} meet?|Who was there?|Who did {a} meet there?]", "It was {c}."),
        ("[What did {a} get?|What did {c} give {a}?|What was the gift?]", "It was a {gift}."),
        ("[What did {a} have?|What began to grow or shine?]", "It was {o.a}.")]),
    "the_band": (["music", "a band", "a {i1}"], "{a}, {f}, and {c} played music together.", [
        ("[What did {a} play?|What did {a} have?]", "It was a {i1}."),
        ("[What did {f} play?|What did {f} have?]", "It was a {i2}."),
        ("[What did {c} play?|What did {c} have?]", "It was a {i3}."),
        ("[Who had the {i3}?|Who played the {i3}?]", "It was {c}.")]),
    "visit_grandma": (["a visit to {gran}", "a {how}", "{gran}"], "{a} visited {gran} and shared a sandwich with {c}.", [
        ("[Who did {a} visit?|Who did they visit?]", "It was {gran}."),
        ("[How did they go?|How did they get there?|What did they take?]", "They took the {how}."),
        ("[What was on the table?|What did {gran} make?|What was there to eat?]", "It was {food}."),
        ("[Who was crying?|Who did {a} meet?|Who was sad?]", "It was {c}.")]),
}

CHILD = [("[Is {a} a boy or a girl?|Who is {a}?]", "{a.he} is a {a.kind}."),
         ("[What is the name of the {a.kind}?|What is the {a.kind} called?|What was the {a.kind}'s name?]",
          "The name is {a}.")]
NAMED_ANIMAL = [("[Who is {a}?|What is {a}?|Which animal is {a}?]", "{a.he} is a {a.kind}."),
                ("[What is the name of the {a.kind}?|What is the {a.kind} called?|What was the {a.kind}'s name?]",
                 "The name is {a}.")]
ANY = [("[Who is the story about?|Who is it about?|Who is in the story?]", "It is about {a}.")]
SUMMARY = ("[What is the story about?|What happened in the story?|What happened?|Sum up the story.|Sum it up in one "
           "sentence.|Tell me the story in one sentence.]")
