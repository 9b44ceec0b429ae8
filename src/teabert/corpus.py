"""The demo's corpus: a seeded grammar in, tab-separated train and dev files for three tasks out.

Five levels of sentiment, duplicate questions, and graded similarity; every word list is our own. Shared words
say little about a pair: equal meanings tend to come in other words, other meanings in the same ones. In every
list ";" parts things, "=" parts wordings of one thing, and a "*" keeps a thing or a wording for the dev rows.
"""

import csv
import os
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from pathlib import Path
from random import Random

Row = tuple[str | int | float, ...]
Thing = tuple[str, ...]

SIZES = {"sentiment": (300, 200), "questions": (1000, 200), "similarity": (480, 192)}
HEADERS = {
    "sentiment": ("id", "sentence", "sentiment"),
    "questions": ("id", "sentence1", "sentence2", "is_duplicate"),
    "similarity": ("id", "sentence1", "sentence2", "similarity"),
}

# Sentiment -----------------------------------------------------------------------------------------------------

GRADES = (
    "awful; terrible; dreadful; horrible; disastrous; disgusting; *appalling; *atrocious; *abysmal",
    "weak; dull; disappointing; poor; boring; unpleasant; *underwhelming; *tedious; *lacklustre",
    "average; ordinary; acceptable; unremarkable; so-so; passable; *middling; *run-of-the-mill; *adequate",
    "good; pleasant; nice; enjoyable; likeable; decent; *charming; *agreeable; *satisfying",
    "superb; wonderful; brilliant; magnificent; outstanding; perfect; *marvellous; *splendid; *sensational",
)
SUBJECTS = (
    ("film; thriller; comedy; *documentary", "plot; acting; music; ending; camera work"),
    ("meal; dinner; lunch; *brunch", "soup; service; dessert; wine; *starter"),
    ("hotel; guest house; holiday resort; *hostel", "room; breakfast; view; pool; *lobby"),
    ("novel; book; short story; *biography", "first chapter; hero; style; ending; *dialogue"),
    ("concert; opera; festival; *recital", "sound; singer; lighting; seat; *orchestra"),
    ("phone; laptop; camera; *tablet", "screen; battery; keyboard; case; *speaker"),
    ("museum; city tour; exhibition; *castle", "guide; cafe; gift shop; leaflet; *audio tour"),
    ("course; lecture; workshop; *seminar", "teacher; handout; classroom; exercise; *slide show"),
)
PLAIN = (
    "The {whole} was {grade}.",
    "I found the {whole} {grade} from start to finish.",
    "What we got for our money was {a_grade} {whole}.",
    "My sister says the {whole} is {grade}, and I agree with her.",
    "Both the {part} and the {whole} itself were {grade}.",
)
CONTRAST = (
    "The {part} was {other}, but the {whole} as a whole was {grade}.",
    "Although the {part} seemed {other}, the {whole} turned out to be {grade}.",
    "Everybody promised {a_other} {whole}; in truth it was {grade}.",
    "We expected {a_other} {whole}, yet it proved {grade}.",
    "The {whole} was {grade}, even though the {part} was {other}.",
    "Friends had called the {whole} {other}, but I thought it was {grade}.",
)
TWISTS: tuple[tuple[tuple[str, tuple[int, ...]], ...], ...] = (  # per level: sentence, and the grades {grade} may have
    (
        ("The {whole} was even worse than the {grade} one we tried before.", (0, 1)),
        ("The {whole} could not have been more {grade}.", (0, 1)),
        ("Nobody in their right mind would call this {whole} {grade}; it is the worst I know.", (3, 4)),
    ),
    (
        ("The {whole} was not {grade}.", (3, 4)),
        ("I would not call the {whole} {grade}, and the {part} did not help.", (3, 4)),
        ("The {whole} was hardly {grade}; I was a little let down.", (3, 4)),
    ),
    (
        ("The {whole} was neither {high} nor {low}.", (2,)),
        ("Half of the {whole} was {high} and the other half {low}.", (2,)),
        ("There was nothing {low} about the {whole}, and nothing {high} either.", (2,)),
    ),
    (
        ("The {whole} was not {grade} at all; I quite liked it.", (0, 1)),
        ("I would not call the {whole} {grade}; even the {part} was fine.", (0, 1)),
        ("The {whole} was far from {grade}, and I may well come back.", (0, 1)),
    ),
    (
        ("The {whole} was even better than the {grade} one we tried before.", (3, 4)),
        ("The {whole} could not have been more {grade}.", (3, 4)),
        ("Nobody in their right mind would call this {whole} {grade}; it is the best I know.", (0, 1)),
    ),
)

# Questions -----------------------------------------------------------------------------------------------------

AIMS = {
    "how": "How do I {do}?=What is the best way to {do}?=Which steps does it take to {do}?=Can someone explain how to {do}?",
    "cost": "How much does it cost to {do}?=What do people usually pay to {do}?=Is it expensive to {do}?"
    "=How much money do I need to {do}?",
    "time": "How long does it take to {do}?=How many hours are needed to {do}?=How much time do I need to {do}?"
    "=Is it quick to {do}?",
    "when": "When is the best time to {do}?=What is the right moment to {do}?=At what point should I {do}?",
    "law": "Is it legal to {do}?=Am I allowed by law to {do}?=Does the law let me {do}?=Could I get fined if I {do}?",
    "risk": "Is it safe to {do}?=How dangerous is it to {do}?=What can go wrong if I {do}?=What are the risks if I {do}?",
    "why": "Why do people {do}?=What is the reason to {do}?=What makes people {do}?=Why should I {do}?",
    "where": "Where can I {do}?=Which place is best to {do}?=Where do people go to {do}?=What is a good place to {do}?",
}
ACTIONS = (  # verbs, their opposites, objects, aims
    ("buy=purchase=acquire=*get hold of", "sell=find a buyer for=*part with", "a used car=a second-hand vehicle;"
     "an antique picture=an old painting;a small flat=a little apartment;*a racing bike=a road bicycle",
     "how cost where when law"),
    ("lower=reduce=bring down=*cut", "raise=increase=push up=*boost", "blood pressure=the pressure of the blood;"
     "room humidity=the dampness of a room;a fever=body temperature;*stress at work=job pressure", "how time why risk"),
    ("start=set up=launch=*found", "close=shut down=wind up=*dissolve", "a small business=a little company;"
     "a reading group=a book club;a website=an internet page;*a bakery=a bread shop", "how cost time law why"),
    ("learn=study=pick up=*get to know", "teach=give lessons in=*instruct others in", "Spanish=the Spanish language;"
     "guitar=guitar playing;programming=writing computer code;*chess=the game of chess", "how time where why cost"),
    ("remove=take off=scrape off=*strip away", "apply=put on=*add", "wallpaper=paper on the walls;"
     "nail polish=nail varnish;a window sticker=a label on a window;*floor wax=wax on the floor", "how time cost risk"),
    ("install=set up=*put in", "uninstall=delete=*throw out", "a virus scanner=antivirus software;a web browser="
     "a program for the internet;a phone app=a mobile application;*a video game=a computer game", "how time why risk"),
    ("hire=recruit=take on=*employ", "fire=dismiss=lay off=*sack", "a nanny=a childminder;a shop clerk="
     "a sales assistant;a lawyer=an attorney;*a cleaner=a cleaning lady", "how when law why cost"),
    ("open=create=sign up for=*set up", "close=cancel=delete=*get rid of", "a bank account=an account at a bank;"
     "an email address=a mailbox;a social media profile=a page on a social network", "how time why cost"),
    ("freeze=deep-freeze", "thaw=defrost=*unfreeze", "raw chicken=uncooked poultry;"
     "a loaf of bread=bread;minced meat=ground beef;*a pizza=pizza dough", "how time risk why"),
    ("gain=put on=build up", "lose=shed=get rid of=*drop", "weight=body weight;muscle=muscle mass;"
     "ten pounds=about five kilos;*belly fat=fat on the stomach", "how time risk why"),
    ("grow=plant=cultivate=*raise", "kill=destroy=get rid of=*wipe out", "bamboo=bamboo plants;ivy=climbing ivy;"
     "moss on a lawn=moss in the grass;*mint=mint plants", "how time when why"),
    ("heat=warm up=*warm", "cool=cool down=*chill", "a greenhouse=a glass house;a swimming pool=a pool;"
     "an attic=a loft;*a garage=a car shed", "how cost time why"),
    ("inflate=pump up=blow up", "deflate=let the air out of=*let down", "an air mattress=an airbed;"
     "a rubber boat=a dinghy;a bike tyre=the tyre of a bicycle", "how time why where"),
    ("import=bring in=*ship in", "export=send abroad=*ship out", "wine=bottles of wine;"
     "old furniture=antiques;living plants=live plants;*spices=herbs", "how cost law why time"),
    ("join=become a member of=*enter", "leave=quit=resign from=*walk out of", "a labour union=a trade union;"
     "the army=the military;a fitness club=a gym;*a choir=a singing group", "how cost when why law"),
    ("shorten=trim=*take up", "lengthen=extend=*let out", "trousers=pants;curtains=drapes;"
     "a dress=a gown;*sleeves=the sleeves of a shirt", "how cost time where"),
    ("attract=draw in=*lure", "repel=keep away=drive off=*scare away", "bees=honey bees;birds=wild birds;"
     "deer=wild deer;mosquitoes=biting insects;*hedgehogs=a hedgehog", "how when why risk"),
    ("accept=say yes to=take=*agree to", "refuse=decline=turn down=*reject", "a job offer=an offer of work;"
     "a gift from a client=a present from a customer;an invitation to a wedding=a wedding invitation", "how when why law"),
    ("speed up=accelerate=*hasten", "slow down=hold back=*delay", "an old computer=an aging PC;"
     "hair growth=the growth of hair;a video=a film clip;*a turntable=a record player", "how why risk cost"),
    ("wake=wake up=*rouse", "calm=soothe=*quieten", "a baby=an infant;a toddler=a small child;"
     "a puppy=a young dog", "how when risk time"),
    ("assemble=put together=build=*construct", "take apart=dismantle=*disassemble", "a wardrobe=a clothes closet;"
     "a bunk bed=a bed for two children;a computer=a PC;*a trampoline=a garden trampoline", "how time cost why"),
    ("praise=compliment=speak well of=*applaud", "criticise=find fault with=*blame", "a colleague=a co-worker;"
     "a student=a pupil;the boss=the manager;*a neighbour=the people next door", "how when why risk"),
)  # fmt: skip
ROUTES = (  # things to go between, then questions about the way from {a} to {b}
    ("Paris;Rome;Vienna;Madrid;Berlin;Oslo;*Prague;*Dublin", (
        "How long does the train take from {a} to {b}?=How many hours is it to {b} by rail from {a}?",
        "How much is a flight from {a} to {b}?=What does a plane ticket to {b} cost if I start in {a}?",
        "Is there a night bus from {a} to {b}?=Can I get to {b} from {a} by coach overnight?",
        "Is it hard to move from {a} to {b}?=How difficult is settling in {b} after leaving {a}?")),
    ("my phone;my laptop;my camera;my tablet;my watch;*my printer", (
        "How do I copy pictures from {a} to {b}?=What is the way to get photos onto {b} from {a}?",
        "Can I send music from {a} to {b}?=Is it possible for {b} to receive songs from {a}?")),
    ("cats;dogs;horses;elephants;cows;*pigs;*geese", (
        "Are {a} afraid of {b}?=Do {b} frighten {a}?",
        "Why do {a} chase {b}?=For what reason are {b} hunted by {a}?",
        "Can {a} infect {b}?=Do {b} catch diseases from {a}?")),
)  # fmt: skip

# Similarity ----------------------------------------------------------------------------------------------------

AGENTS = (
    "the chef=the cook;the doctor=the physician;the old man=the elderly gentleman;the child=the little kid;"
    "the teacher=the schoolmistress;the lawyer=the attorney;the policeman=the officer;the singer=the vocalist;"
    "the thief=the burglar;the sailor=the seaman;the farmer=the man from the farm;*the painter=the artist;"
    "*the tourist=the traveller;*the boss=the manager"
)
EVENTS = (  # what was done (past tense and participle alike), and to what
    ("repaired=fixed=*mended", "a bicycle=a bike;a washing machine=a laundry machine;a boat=a small ship;*a clock=a watch"),
    ("bought=purchased=*acquired", "a newspaper=a daily paper;a red car=a red automobile;a puppy=a young dog"),
    ("cleaned=washed=*scrubbed", "a carpet=a rug;a kitchen floor=the floor of a kitchen;a coat=a jacket;*a mirror=a looking glass"),
    ("cooked=prepared=*made", "a stew=a thick soup;a turkey=a big bird;a noodle dish=a plate of pasta;*an omelette=an egg dish"),
    ("found=discovered=*spotted", "a gold ring=a golden ring;a wallet=a purse;a coin=a piece of money;*a corpse=a dead body"),
    ("built=constructed=*erected", "a stone wall=a wall of rocks;a shed=a wooden hut;a bridge=a river crossing"),
    ("moved=carried=*hauled", "a sofa=a couch;a fridge=a refrigerator;a piano=a grand piano;*a suitcase=a travel bag"),
    ("rescued=saved=*freed", "a kitten=a baby cat;an injured bird=a wounded bird;a swimmer=a drowning man"),
    ("filmed=recorded=*videotaped", "a parade=a street procession;a wedding=a marriage ceremony;a fight=a brawl"),
    ("examined=inspected=*looked over", "an engine=a motor;a letter=a written note;a map=a chart;*a gun=a pistol"),
    ("destroyed=wrecked=*ruined", "a sandcastle=a castle of sand;a fence=a garden fence;a statue=a sculpture"),
    ("sold=traded away=*auctioned off", "a house=a home;a diamond=a jewel;a horse=a stallion;*a violin=a fiddle"),
)
TIMES = (
    "on Sunday morning=early on Sunday;last night=yesterday evening;in the summer=during the warm months;"
    "at noon=in the middle of the day;before sunrise=before dawn;after the storm=when the bad weather was over;"
    "in December=in the last month of the year;*at midnight=at twelve at night"
)
PLACES = (
    "near the station=close to the railway stop;behind the church=at the back of the chapel;by the river=next to the stream;"
    "at the harbour=in the port;in the garden=in the yard;outside the school=in front of the school building;"
    "in the forest=in the woods;*at the market=at the bazaar"
)
LABELS = {"sentiment": 5, "questions": 2, "similarity": 6}
ALIKE_DUPLICATE, ALIKE_OTHER = 0.25, 0.65
ALIKE_EVENTS = (1.0, 0.9, 0.6, 0.5, 0.3, 0.2)


class Grammar:
    """Makes the rows of one file; only a dev grammar knows the words marked with a star."""

    def __init__(self, random: Random, dev: bool) -> None:
        self.random = random
        self.dev = dev

    def things(self, text: str, count: int = 1) -> list[Thing]:
        """Different things drawn from a list, each as all its wordings."""
        return self.random.sample(_things(text, self.dev), count)

    def word(self, text: str) -> str:
        """One wording of one thing."""
        return self.random.choice(self.things(text)[0])

    def twice(self, thing: Thing, alike: float) -> tuple[str, str]:
        """Two wordings of a thing, the same one with probability `alike`."""
        first = self.random.choice(thing)
        others = [wording for wording in thing if wording != first]
        return first, first if not others or self.random.random() < alike else self.random.choice(others)

    def sentiment(self, level: int) -> Row:
        """A review of the level; in a contrast, the clause that the sentence settles on decides."""
        sort = self.random.choices(("plain", "contrast", "twist"), (2, 4, 4))[0]
        grade = level
        if sort == "twist":
            sentence, grades = self.random.choice(TWISTS[level])
            grade = self.random.choice(grades)
        else:
            sentence = self.random.choice(PLAIN if sort == "plain" else CONTRAST)
        whole, part = self.random.choice(SUBJECTS)
        other = self.word(GRADES[self.random.choice([other for other in range(5) if abs(other - grade) > 1])])
        words = {"whole": self.word(whole), "part": self.word(part), "grade": self.word(GRADES[grade]), "other": other}
        words |= {"low": self.word(GRADES[self.random.choice((0, 1))]), "high": self.word(GRADES[self.random.choice((3, 4))])}
        words |= {f"a_{key}": _with_article(words[key]) for key in ("grade", "other")}
        return sentence.format(**words), level

    def questions(self, duplicate: int) -> Row:
        """Two questions: the same in other words, or alike but for one thing."""
        return self._route(duplicate) if self.random.random() < 0.1 else self._action(duplicate)

    def _action(self, duplicate: int) -> Row:
        alike = ALIKE_DUPLICATE if duplicate else ALIKE_OTHER
        *verbs, objects, aims = self.random.choice(ACTIONS)
        do, undo = self.random.sample([self.things(verb)[0] for verb in verbs], 2)
        thing, other_thing = self.things(objects, 2)
        aim, other_aim = (_things(AIMS[name], self.dev)[0] for name in self.random.sample(aims.split(), 2))
        (verb, verb2), (thing1, thing2), (ask, ask2) = (self.twice(each, alike) for each in (do, thing, aim))
        foil = "" if duplicate else self.random.choices(("verb", "object", "aim"), (2, 4, 4))[0]
        if foil == "verb":
            verb2 = self.random.choice(undo)
        elif foil == "object":
            thing2 = self.random.choice(other_thing)
        elif foil == "aim":
            ask2 = self.random.choice(other_aim)
        return ask.format(do=f"{verb} {thing1}"), ask2.format(do=f"{verb2} {thing2}"), duplicate

    def _route(self, duplicate: int) -> Row:
        ends, questions = self.random.choice(ROUTES)
        (a,), (b,) = self.things(ends, 2)
        asked, other = self.things(";".join(questions), 2)
        ask, ask2 = self.twice(asked, 0 if duplicate else 0.5)
        back = not duplicate and self.random.random() < 0.5
        if not duplicate and not back:
            ask2 = self.random.choice(other)
        return ask.format(a=a, b=b), ask2.format(a=b if back else a, b=a if back else b), duplicate

    def similarity(self, level: int) -> Row:
        """Two events that share everything (5) to nothing but the circumstances (0)."""
        alike = ALIKE_EVENTS[level]
        agent, other_agent = self.things(AGENTS, 2)
        (verbs, objects), (other_verbs, other_objects) = self.random.sample(EVENTS, 2)
        thing, other_thing = self.things(objects, 2)
        time, other_time = self.things(TIMES, 2)
        place, other_place = self.things(PLACES, 2)
        verb = self.things(verbs)[0]
        first, second = zip(*(self.twice(each, alike) for each in (agent, verb, thing, time, place)), strict=True)
        changed = list(second)
        if level in (0, 2):
            changed[0] = self.random.choice(other_agent)
        if level in (0, 1):
            changed[1], changed[2] = self.word(other_verbs), self.word(other_objects)
        if level in (2, 3):
            changed[2] = self.random.choice(other_thing)
        score = float(level)
        if level == 4 or (level in (2, 3) and self.random.random() < 0.3):
            where = self.random.choice((3, 4))
            changed[where] = self.random.choice(other_time if where == 3 else other_place)
            score -= 0.5 if level < 4 else 0
        passive = self.random.random() < 0.4
        return self._event(passive, *first), self._event(passive == (self.random.random() < alike), *changed), score

    def _event(self, passive: bool, agent: str, verb: str, thing: str, time: str, place: str) -> str:
        clause = f"{thing} was {verb} by {agent} {place}" if passive else f"{agent} {verb} {thing} {place}"
        sentence = f"{time}, {clause}." if self.random.random() < 0.3 else f"{clause} {time}."
        return sentence[0].upper() + sentence[1:]


def write_corpus(folder: Path | str, seed: int = 11711) -> dict[str, Path]:
    """Write the six files `<task>-<split>.tsv` and return their paths under the names `<task>-<split>`."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    paths = {}
    for task, sizes in SIZES.items():
        seen: set[frozenset[str]] = set()
        for split, size in zip(("train", "dev"), sizes, strict=True):
            grammar = Grammar(Random(f"{seed} {task} {split}"), dev=split == "dev")
            rows = _rows(grammar, task, size, seen)
            path = paths[f"{task}-{split}"] = folder / f"{task}-{split}.tsv"
            _write(path, HEADERS[task], [(f"{split}-{number}", *row) for number, row in enumerate(rows, 1)])
    return paths


def _rows(grammar: Grammar, task: str, size: int, seen: set[frozenset[str]]) -> list[Row]:
    """As many rows of every label, none of them seen before, in random order."""
    make: Callable[[int], Row] = getattr(grammar, task)
    rows: list[Row] = []
    while len(rows) < size:
        row = make(len(rows) % LABELS[task])
        texts = frozenset(str(text) for text in row[:-1])
        if texts not in seen and len(texts) == len(row) - 1:
            seen.add(texts)
            rows.append(row)
    grammar.random.shuffle(rows)
    return rows


def _write(path: Path, header: Row, rows: Sequence[Row]) -> None:
    """The whole file or nothing: written beside its place, then moved there."""
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    with draft.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, delimiter="\t", lineterminator="\n")
        writer.writerows((header, *rows))
    os.replace(draft, path)


@cache
def _things(text: str, dev: bool) -> list[Thing]:
    """The list a text stands for; without the starred things and wordings unless it is for dev."""
    kept = [[word for word in thing.split("=") if dev or "*" not in word] for thing in text.split(";")]
    starred = [thing.strip().startswith("*") for thing in text.split(";")]
    return [tuple(word.strip(" *") for word in words) for words, star in zip(kept, starred, strict=True) if dev or not star]


def _with_article(word: str) -> str:
    return f"{'an' if word[0] in 'aeiou' else 'a'} {word}"
