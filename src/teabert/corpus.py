"""The demo's corpus: a seeded grammar in, tab-separated train and dev files for three tasks out.

Five levels of sentiment, duplicate questions and graded similarity, in word lists of our own. Words shared by a pair
say little: equal meanings often come in other words, other meanings in the same ones. In a list ";" parts things, "="
parts the wordings of one thing, and a "*" keeps a thing or a wording for the dev rows.
"""

import csv
import os
from functools import cache
from pathlib import Path
from random import Random

Row = tuple[str | int | float, ...]
Thing = tuple[str, ...]

TASKS = {  # columns after the id, distinct labels, rows for training, rows for dev
    "sentiment": (("sentence", "sentiment"), 5, 300, 200),
    "questions": (("sentence1", "sentence2", "is_duplicate"), 2, 1300, 200),
    "similarity": (("sentence1", "sentence2", "similarity"), 6, 480, 198),
}
ALIKE = 0.4  # how often a pair words the same thing alike: so often that shared words predict little

GRADES = (
    "awful;terrible;dreadful;horrible;disastrous;disgusting;*appalling;*atrocious;*abysmal",
    "weak;dull;disappointing;poor;boring;unpleasant;*underwhelming;*tedious;*lacklustre",
    "average;ordinary;acceptable;unremarkable;so-so;passable;*middling;*run-of-the-mill;*adequate",
    "good;pleasant;nice;enjoyable;likeable;decent;*charming;*agreeable;*satisfying",
    "superb;wonderful;brilliant;magnificent;outstanding;perfect;*marvellous;*splendid;*sensational",
)
SUBJECTS = (
    ("film;thriller;comedy;*documentary", "plot;acting;music;ending;camera work"),
    ("meal;dinner;lunch;*brunch", "soup;service;dessert;wine;*starter"),
    ("hotel;guest house;holiday resort;*hostel", "room;breakfast;view;pool;*lobby"),
    ("concert;opera;festival;*recital", "sound;singer;lighting;seat;*orchestra"),
    ("phone;laptop;camera;*tablet", "screen;battery;design;case;*speaker"),
    ("museum;city tour;exhibition;*castle", "guide;cafe;gift shop;leaflet;*audio tour"),
)
REVIEWS = (
    "The {whole} was {grade}.",
    "I found the {whole} {grade} from start to finish.",
    "The {part} was {other}, but the {whole} as a whole was {grade}.",
    "Although the {part} was {other}, the {whole} was {grade}.",
    "The {whole} was {grade}, although the {part} was {other}.",
    "Everybody promised {a_other} {whole}; in truth it was {grade}.",
    "Friends had found the {whole} {other}, but I found it {grade}.",
)
TWISTS = (  # the level meant, the grades of the word used, the sentence
    (0, (0, 1), "The {whole} was even worse than the {grade} one we tried before."),
    (0, (0, 1), "No {whole} has ever struck me as this {grade}."),
    (0, (3, 4), "Nobody in their right mind would call this {whole} {grade}; I regret every minute."),
    (1, (3, 4), "The {whole} was not {grade}."),
    (1, (3, 4), "I would not call the {whole} {grade}, and the {part} did not help."),
    (2, (2,), "The {whole} was neither {high} nor {low}."),
    (2, (2,), "One half of the {whole} was {high}, the other half {low}."),
    (3, (0, 1), "The {whole} was not {grade} at all; I quite liked it."),
    (3, (0, 1), "I would not call the {whole} {grade}; even the {part} was fine."),
    (4, (3, 4), "The {whole} was even better than the {grade} one we tried before."),
    (4, (3, 4), "No {whole} has ever struck me as this {grade}."),
    (4, (0, 1), "Nobody in their right mind would call this {whole} {grade}; I loved every minute."),
)

AIMS = {
    "how": "How do I {do}?=What is the best way to {do}?=What does it take to {do}?=Who can explain how to {do}?",
    "cost": "How much does it cost to {do}?=What do people usually pay to {do}?=Is it expensive to {do}?",
    "time": "How long does it take to {do}?=How many hours are needed to {do}?=How much time do I need to {do}?",
    "when": "When is the best time to {do}?=What is the right moment to {do}?=At what point should I {do}?",
    "law": "Is it legal to {do}?=Am I allowed by law to {do}?=Does the law let me {do}?=Could I get fined if I {do}?",
    "risk": "Is it safe to {do}?=How dangerous is it to {do}?=What can go wrong if I {do}?=Is it risky to {do}?",
    "why": "Why do people {do}?=What is the reason to {do}?=What makes people {do}?=Why should I {do}?",
    "where": "Where can I {do}?=Which place is best to {do}?=Where do people go to {do}?=What is a good place to {do}?",
}
ACTIONS = (  # verbs, the opposite verbs, objects, aims
    ("buy=purchase=acquire=*get hold of", "sell=find a buyer for=*part with", "a used car=a second-hand vehicle;an old"
     " painting=an antique picture;a small flat=a little apartment;*a bike=a bicycle", "how cost where when law"),
    ("lower=reduce=bring down=*cut", "raise=increase=push up=*boost", "blood pressure=hypertension;a fever=body"
     " temperature;room humidity=the dampness of a room;*stress at work=job pressure", "how time why risk"),
    ("start=set up=launch=*found", "close=shut down=wind up=*dissolve", "a small business=a little company;a website="
     "an internet page;a reading group=a book club;*a bakery=a bread shop", "how cost time law why"),
    ("learn=study=pick up=*get to know", "teach=give lessons in=*instruct others in", "karate=martial arts;Spanish=the"
     " Spanish language;programming=writing computer code;*chess=the game of chess", "how time where why cost"),
    ("remove=take off=scrape off=*strip away", "apply=put on=*add", "nail polish=nail varnish;wallpaper=paper on the"
     " walls;a window sticker=a label on a window;*floor wax=wax on the floor", "how time cost risk"),
    ("install=set up=*put in", "uninstall=delete=*throw out", "a virus scanner=antivirus software;a phone app=a mobile"
     " application;a web browser=a program for the internet;*a video game=a computer game", "how time why risk"),
    ("hire=recruit=take on=*employ", "fire=dismiss=lay off=*sack", "a nanny=a childminder;a lawyer=an attorney;"
     "a shop clerk=a sales assistant;*a cleaner=a cleaning lady", "how when law why cost"),
    ("grow=cultivate=*raise", "kill=destroy=get rid of=*wipe out", "tomatoes=a red vegetable;roses=a thorny flower;"
     "moss on a lawn=green patches in the grass;*mint=a kitchen herb", "how time when why"),
    ("join=become a member of=*enter", "leave=quit=resign from=*walk out of", "a labour union=a trade union;the army="
     "the military;a fitness club=a gym;*a choir=a singing group", "how cost when why law"),
    ("attract=draw in=*lure", "repel=keep away=drive off=*scare away", "bees=honey makers;birds=feathered visitors;"
     "cats=felines;mosquitoes=biting insects;*hedgehogs=a hedgehog", "how when why risk"),
    ("assemble=put together=build=*construct", "take apart=dismantle=*disassemble", "a wardrobe=a clothes closet;"
     "a bunk bed=a bed for two children;a computer=a PC;*a tent=a shelter", "how time cost why"),
)  # fmt: skip
CITIES = "Paris;Rome;Vienna;Madrid;Berlin;Oslo;Athens;*Prague;*Dublin;*Lisbon"
JOURNEYS = (
    "How long does the train take from {a} to {b}?=How many hours is it to {b} by rail from {a}?;"
    "How much is a flight from {a} to {b}?=What does a plane ticket to {b} cost if I start in {a}?;"
    "Is there a night bus from {a} to {b}?=Can I get to {b} from {a} by coach overnight?"
)

AGENTS = (
    "the chef=the cook;the doctor=the physician;the old man=the elderly gentleman;the child=the little kid;the teacher="
    "the schoolmistress;the lawyer=the attorney;the policeman=the officer;the singer=the vocalist;"
    "the thief=the burglar;the sailor=the seaman;*the painter=the artist;*the tourist=the traveller;*the boss=the manager"
)
EVENTS = (  # what was done (past tense and participle alike), and to what
    (
        "repaired=fixed=*mended",
        "a bicycle=a bike;a washing machine=a laundry machine;a boat=a ship;*a clock=a watch",
    ),
    ("bought=purchased=*acquired", "a newspaper=a daily paper;a red car=a red automobile;a puppy=a young dog"),
    ("cleaned=washed=*scrubbed", "a carpet=a rug;a kitchen floor=the floor of a kitchen;a coat=a jacket"),
    ("cooked=prepared=*made", "a stew=a thick soup;a turkey=a big bird;a noodle dish=a plate of pasta"),
    (
        "found=discovered=*spotted",
        "a gold ring=a golden ring;a wallet=a purse;a coin=a piece of money",
    ),
    ("built=constructed=*erected", "a stone wall=a wall of rocks;a shed=a wooden hut;a bridge=a river crossing"),
    ("rescued=saved=*freed", "a kitten=a baby cat;an injured bird=a wounded bird;a swimmer=a drowning man"),
)
TIMES = (
    "on Sunday morning=early on Sunday;last night=yesterday evening;in December=in the last month of the year;at noon="
    "in the middle of the day;before sunrise=before dawn;*at midnight=at twelve at night;in summer=in the warm months"
)
PLACES = (
    "near the station=close to the railway stop;behind the church=at the back of the chapel;by the river=next to the"
    " stream;at the harbour=in the port;in the garden=in the yard;in the forest=in the woods;*at the market=at the bazaar"
)
CHANGED = ((0, 1, 2), (1, 2), (0, 2), (2,), (), ())  # per similarity, what differs of agent, verb, object


class Grammar:
    """Makes the rows of one file, one method per task; only a dev grammar uses what a star keeps for it."""

    def __init__(self, random: Random, dev: bool) -> None:
        self.random = random
        self.dev = dev

    def things(self, text: str, count: int = 1) -> list[Thing]:
        """Different things drawn from a list, each with all its wordings."""
        return self.random.sample(_things(text, self.dev), count)

    def word(self, text: str) -> str:
        """One wording of one thing."""
        return self.random.choice(self.things(text)[0])

    def twice(self, thing: Thing, other: Thing = (), alike: float = ALIKE) -> tuple[str, str]:
        """Two wordings of a thing, the same one with probability `alike`; or a wording of it and one of the other."""
        first, second = self.random.sample(thing, 2)
        if other:
            return first, self.random.choice(other)
        return first, first if self.random.random() < alike else second

    def sentiment(self, level: int) -> Row:
        """A review; where its clauses disagree, the level is that of the one it settles on."""
        grade, sentence = level, self.random.choice(REVIEWS)
        if self.random.random() < 0.25:
            _, grades, sentence = self.random.choice([twist for twist in TWISTS if twist[0] == level])
            grade = self.random.choice(grades)
        whole, part = (self.word(text) for text in self.random.choice(SUBJECTS))
        other = self.random.choice([other for other in range(5) if abs(other - grade) > 1])
        drawn = {"grade": grade, "other": other, "low": self.random.randrange(2), "high": 3 + self.random.randrange(2)}
        words = {name: self.word(GRADES[number]) for name, number in drawn.items()}
        an_other = f"{'an' if words['other'][0] in 'aeiou' else 'a'} {words['other']}"
        return sentence.format(whole=whole, part=part, a_other=an_other, **words), level

    def questions(self, duplicate: int) -> Row:
        """Two questions: one in two wordings, or two that differ in verb, object, aim or direction."""
        return self._route(duplicate) if self.random.random() < 0.06 else self._action(duplicate)

    def _action(self, duplicate: int) -> Row:
        *both_verbs, objects, aims = self.random.choice(ACTIONS)
        verb, other_verb = self.random.sample([self.things(text)[0] for text in both_verbs], 2)
        thing, other_thing = self.things(objects, 2)
        aim, other_aim = (self.things(AIMS[name])[0] for name in self.random.sample(aims.split(), 2))
        foil = "none" if duplicate else self.random.choices(("verb", "object", "aim"), (1, 6, 3))[0]
        ask, ask2 = self.twice(aim, other_aim if foil == "aim" else ())
        do, do2 = self.twice(verb, other_verb if foil == "verb" else ())
        what, what2 = self.twice(thing, other_thing if foil == "object" else ())
        return ask.format(do=f"{do} {what}"), ask2.format(do=f"{do2} {what2}"), duplicate

    def _route(self, duplicate: int) -> Row:
        (a,), (b,) = self.things(CITIES, 2)
        asked, other = self.things(JOURNEYS, 2)
        back = not duplicate and self.random.random() < 0.5
        ask, ask2 = self.twice(asked, () if duplicate or back else other, alike=0 if duplicate else ALIKE)
        return ask.format(a=a, b=b), ask2.format(a=b if back else a, b=a if back else b), duplicate

    def similarity(self, level: int) -> Row:
        """Two events, the same in other words (5) down to others at the same time and place (0)."""
        (verbs, objects), (other_verbs, other_objects) = self.random.sample(EVENTS, 2)
        thing, other_thing = self.things(objects, 2)
        if level < 2:
            other_thing = self.things(other_objects)[0]
        verb, other_verb = self.things(verbs)[0], self.things(other_verbs)[0]
        agents, times, places = (self.things(text, 2) for text in (AGENTS, TIMES, PLACES))
        parts = (agents, (verb, other_verb), (thing, other_thing), times, places)
        changed, score = CHANGED[level], float(level)
        if level == 4 or (level in (2, 3) and self.random.random() < 0.3):
            changed = (*changed, self.random.choice((3, 4)))
            score -= 0.5 if level < 4 else 0
        pairs = [self.twice(part, other if n in changed else ()) for n, (part, other) in enumerate(parts)]
        first, second = zip(*pairs, strict=True)
        return self._event(*first), self._event(*second), score

    def _event(self, agent: str, verb: str, thing: str, time: str, place: str) -> str:
        passive = self.random.random() < 0.4
        clause = f"{thing} was {verb} by {agent} {place}" if passive else f"{agent} {verb} {thing} {place}"
        sentence = f"{time}, {clause}." if self.random.random() < 0.3 else f"{clause} {time}."
        return sentence[0].upper() + sentence[1:]

    def rows(self, task: str, size: int, seen: set[frozenset[str]]) -> list[Row]:
        """As many rows of every label, in random order, none of whose texts are among those seen."""
        rows: list[Row] = []
        while len(rows) < size:
            row = getattr(self, task)(len(rows) % TASKS[task][1])
            texts = frozenset(row[:-1])
            if texts not in seen and len(texts) == len(row) - 1:
                seen.add(texts)
                rows.append(row)
        self.random.shuffle(rows)
        return rows


def write_corpus(folder: Path | str, seed: int = 11711) -> dict[str, Path]:
    """Write the six files `<task>-<split>.tsv` and return their paths under the names `<task>-<split>`."""
    paths = {}
    Path(folder).mkdir(parents=True, exist_ok=True)
    for task, (columns, _, *sizes) in TASKS.items():
        seen: set[frozenset[str]] = set()
        for split, size in zip(("train", "dev"), sizes, strict=True):
            rows = Grammar(Random(f"{seed} {task} {split}"), dev=split == "dev").rows(task, size, seen)
            path = paths[f"{task}-{split}"] = Path(folder) / f"{task}-{split}.tsv"
            draft = path.with_name(f".{path.name}.{os.getpid()}")  # moved to its place when whole
            with draft.open("w", encoding="utf-8", newline="") as file:
                writer = csv.writer(file, delimiter="\t", lineterminator="\n")
                writer.writerow(("id", *columns))
                writer.writerows((f"{split}-{number}", *row) for number, row in enumerate(rows, 1))
            os.replace(draft, path)
    return paths


@cache
def _things(text: str, dev: bool) -> list[Thing]:
    """The things of a list with their wordings; those with a star only for dev."""
    kept = [thing.split("=") for thing in text.split(";") if dev or not thing.startswith("*")]
    return [tuple(word.strip("*") for word in words if dev or not word.startswith("*")) for words in kept]
