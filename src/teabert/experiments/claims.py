"""What both papers claim, as data: which rows decide it, by what test; CLAIMS is the one list.

A difference is a weighted sum of scores; it is decided by a paired bootstrap over dev rows and by whether seeds agree.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from teabert.experiments.tea_bert import DECAYS

TEA_BERT, ATTENTION, OURS = "TEA-BERT", "Task-specific attention", "control"
SLACK = 0.01
"""Within so much two scores count as alike."""


@dataclass(frozen=True)
class Difference:
    """Holds where the sum of weight * score lies above a bound."""

    terms: tuple[tuple[float, str, str], ...]
    """weight, row, column"""
    above: float = 0.0


@dataclass(frozen=True)
class Between:
    """Holds where a number, or its ratio to that of another row, lies between two ends."""

    row: str
    column: str
    low: float
    high: float
    under: str = ""
    """the row that it is divided by"""


Test = Difference | Between


@dataclass(frozen=True)
class Claim:
    """One claim; it holds where all its tests do."""

    name: str
    text: str
    paper: str
    table: str = ""
    tests: tuple[Test, ...] = ()
    of_encoder: bool = False
    """its answer may differ from encoder to encoder"""
    unmeasured: str = ""
    """why no row decides it"""


def more(rows: str | Sequence[str], than: str | Sequence[str], column: str = "mean", by: float = 0.0) -> Difference:
    """The first rows' mean score is above the others' by more than this."""
    over, under = ([each] if isinstance(each, str) else list(each) for each in (rows, than))
    terms = [(1 / len(over), row, column) for row in over] + [(-1 / len(under), row, column) for row in under]
    return Difference(tuple(terms), by)


def gains_more(better: str, base: str, column: str, than: tuple[str, str, str]) -> Difference:
    """One step gains more than another does: (better, base, column) each."""
    other_better, other_base, other = than
    terms = ((1.0, better, column), (-1.0, base, column), (-1.0, other_better, other), (1.0, other_base, other))
    return Difference(terms)


def _at_all(*methods: str) -> list[str]:
    return [f"{method}-wd-{decay}" for method in methods for decay in DECAYS]


VECTORS, ACTIVATED = ("input", "attention", "projected"), ("elu", "tanh", "selu")
_LITTLE, _MUCH = ([f"{method}-wd-{decay}" for method in (*VECTORS, *ACTIVATED)] for decay in ("0", "0.01"))
_BY_A_HAIR = (more(_at_all("input"), _at_all("attention")), more(_at_all("attention"), _at_all("input"), by=-0.02))

_OF_TEA_BERT = (
    Claim(
        "injection-helps",
        "Telling the encoder its task (input, attention, projected) beats not telling it, at equal weight decay.",
        TEA_BERT,
        "tea-bert",
        (more(_at_all(*VECTORS), _at_all("none")),),
    ),
    Claim(
        "three-tasks-cost-sst",
        "Learning the three tasks in one model, not told which, costs SST accuracy, at equal weight decay.",
        TEA_BERT,
        "tea-bert",
        (more(_at_all("sst-only"), _at_all("none"), "sst"),),
        of_encoder=True,
    ),
    Claim(
        "blocks-forget",
        "Tasks one after another in every epoch, as in the paper, end below tasks mixed in every batch.",
        OURS,
        "tea-bert-controls",
        (more("none-mixed", "none"),),
    ),
    Claim(
        "input-beats-unfair-baseline",
        "As the paper compares: input without weight decay beats the baseline at weight decay 0.01.",
        TEA_BERT,
        "tea-bert",
        (more("input-wd-0", "none-wd-0.01"),),
    ),
    Claim(
        "input-best",
        "The vector at the input is the best way, above attention by less than 0.02.",
        TEA_BERT,
        "tea-bert",
        _BY_A_HAIR,
    ),
    Claim(
        "attention-not-below-projected",
        "Plain attention vectors are at least as good as projected ones.",
        TEA_BERT,
        "tea-bert",
        (more(_at_all("attention"), _at_all("projected"), by=-SLACK),),
    ),
    Claim(
        "activation-hurts",
        "An activation on queries, keys and values lowers the mean score by more than 0.05.",
        TEA_BERT,
        "tea-bert",
        tuple(more(_at_all("projected"), _at_all(method), by=0.05) for method in ACTIVATED),
    ),
    Claim(
        "activation-hurts-whatever-the-start",
        "It is the activation that hurts, not the random start: also when it starts as exactly BERT.",
        OURS,
        "tea-bert-controls",
        tuple(more("projected-safe", f"{method}-residual", by=SLACK) for method in ACTIVATED),
    ),
    Claim(
        "decay-hurts",
        "Larger weight decay lowers the mean score.",
        TEA_BERT,
        "tea-bert",
        (more(_LITTLE, _MUCH),),
    ),
    Claim(
        "rate-1e-5",
        "1e-5 is the best learning rate.",
        TEA_BERT,
        "tea-bert-rates",
        tuple(more("input-lr-1e-5", f"input-lr-{rate}") for rate in ("1e-3", "1e-4", "3e-5", "1e-6")),
        of_encoder=True,
    ),
    Claim(
        "sharable-loses",
        "Task-sharable heads lose against task-specific ones, most on STS.",
        TEA_BERT,
        "tea-bert-heads",
        (
            more("specific", "sharable"),
            *(gains_more("specific", "sharable", "sts", ("specific", "sharable", task)) for task in ("sst", "quora")),
        ),
    ),
    Claim(
        "sharable-loses-by-its-form",
        "STS loses because a linear layer replaces the cosine, not because the head is shared.",
        TEA_BERT,
        "tea-bert-heads",
        (more("specific", "specific-concatenated", "sts"), more("sharable", "specific-concatenated", "sts", by=-SLACK)),
        of_encoder=True,
    ),
    Claim(
        "attention-adds-three-times-input",
        "Attention vectors add three times the parameters of the vector at the input.",
        TEA_BERT,
        "tea-bert-parameters",
        (Between("attention", "injection", 3, 3, "input"),),
    ),
    Claim(
        "projected-adds-width-squared",
        "Projected vectors add as many parameters as the encoder's width squared.",
        TEA_BERT,
        "tea-bert-parameters",
        (Between("projected", "injection", 768**2, 768**2),),
    ),
    Claim(
        "adds-next-to-nothing",
        "Telling the encoder its task (input, attention, projected) makes it hardly larger: by less than 0.1 %.",
        TEA_BERT,
        "tea-bert-parameters",
        tuple(Between(method, "percent", 0, 0.1) for method in VECTORS),
    ),
    Claim(
        "no-over-fitting",
        "The model is not complex enough for the data to over-fit: training rows score at most 0.05 above dev.",
        TEA_BERT,
        "tea-bert",
        (Between("input-wd-0", "gap", -1, 0.05),),
        of_encoder=True,
    ),
    Claim(
        "key-vectors-do-nothing",
        "Leaving out the key vectors, which a softmax cancels, changes no score by more than 0.01.",
        OURS,
        "tea-bert-controls",
        (more("attention-qv", "attention-safe", by=-SLACK), more("attention-safe", "attention-qv", by=-SLACK)),
    ),
)

_OF_ATTENTION = (
    Claim(
        "mean-beats-first-on-sts",
        "The mean of all tokens beats the first token on STS, fine-tuned.",
        ATTENTION,
        "task-attention-pooling",
        (more("mean-finetuned", "first-finetuned", "sts"),),
        of_encoder=True,
    ),
    Claim(
        "mean-beats-first-frozen",
        "On a frozen encoder the mean beats the first token on SST and STS.",
        ATTENTION,
        "task-attention-pooling",
        tuple(more("mean-frozen", "first-frozen", task) for task in ("sst", "sts")),
        of_encoder=True,
    ),
    Claim(
        "attention-helps-quora",
        "Task attention beats mean pooling on Quora, fine-tuned.",
        ATTENTION,
        "task-attention",
        (more("default-finetuned", "mean-finetuned", "quora"),),
    ),
    Claim(
        "attention-helps-quora-not-for-its-head",
        "It still does when mean pooling gets a head that can say no (u, v, |u - v|).",
        OURS,
        "task-attention-controls",
        (more("attention", "difference", "quora"),),
    ),
    Claim(
        "attention-helps-quora-not-for-its-size",
        "It is the attention: it also beats as many numbers in linear layers on the mean.",
        OURS,
        "task-attention-controls",
        (more("attention", "mlp", "quora"),),
    ),
    Claim(
        "attention-beats-together",
        "It beats encoding the pair in one sequence.",
        OURS,
        "task-attention-controls",
        (more("attention", "together", "quora"),),
    ),
    Claim(
        "helps-with-much-data",
        "The more data, the more task attention gains: more on all of Quora than on 1,000 rows of it.",
        ATTENTION,
        "quora-sizes",
        (gains_more("attention-all", "mean-all", "quora", ("attention-1000", "mean-1000", "quora")),),
    ),
    Claim(
        "helps-where-room-is-left",
        "It gains more where the baseline is far from the best known score (Quora) than where it is near (SST, STS).",
        ATTENTION,
        "task-attention",
        tuple(
            gains_more("default-finetuned", "mean-finetuned", "quora", ("default-finetuned", "mean-finetuned", task))
            for task in ("sst", "sts")
        ),
    ),
    Claim(
        "costs-7-to-16-percent",
        "It costs 7 to 16 % more training time, fine-tuned.",
        ATTENTION,
        "task-attention-times",
        tuple(Between(f"{reader}-finetuned", "seconds", 1.07, 1.16, "mean-finetuned") for reader in ("default", "uniform")),
    ),
    Claim(
        "costs-7-to-16-percent-frozen",
        "It costs 7 to 16 % more training time on a frozen encoder that reads every text anew in every epoch.",
        ATTENTION,
        "task-attention-times",
        tuple(Between(f"{reader}-frozen", "seconds", 1.07, 1.16, "mean-frozen") for reader in ("default", "uniform")),
    ),
    Claim(
        "start-not-needed",
        "Starting from U(0.9, 1) is not needed: the default start is at least as good.",
        ATTENTION,
        "task-attention",
        tuple(more("default-finetuned", "uniform-finetuned", task, by=-SLACK) for task in ("quora", "sts")),
    ),
    Claim(
        "start-hurts-sts",
        "The start from U(0.9, 1) leads STS to a worse optimum.",
        ATTENTION,
        "task-attention",
        (more("default-finetuned", "uniform-finetuned", "sts", by=SLACK),),
        of_encoder=True,
    ),
    Claim(
        "start-same-optimum",
        "On Quora both starts arrive at scores that are alike.",
        ATTENTION,
        "task-attention",
        (
            more("default-finetuned", "uniform-finetuned", "quora", by=-SLACK),
            more("uniform-finetuned", "default-finetuned", "quora", by=-SLACK),
        ),
    ),
    Claim(
        "start-saves-time",
        "The start from U(0.9, 1) saves training time.",
        ATTENTION,
        "task-attention-times",
        tuple(Between(f"uniform-{mode}", "seconds", 0.0, 1.0, f"default-{mode}") for mode in ("frozen", "finetuned")),
    ),
    Claim(
        "parameters-of-table-2",
        "The attention and heads of SST, Quora and STS have 4.72M, 3.54M and 11.2M parameters.",
        ATTENTION,
        "task-attention-parameters",
        tuple(
            Between("attention", f"{task}-true", 0.995 * said, 1.005 * said)
            for task, said in (("sst", 4.72e6), ("quora", 3.54e6), ("sts", 11.2e6))
        ),
    ),
    Claim(
        "not-replaceable",
        "Attention layers of the task's own cannot be replaced by more layers in the encoder.",
        ATTENTION,
        unmeasured="it needs an encoder pretrained with more layers of the same kind",
    ),
)

_OF_SHARING = (
    Claim(
        "sharing-costs-nothing",
        "One model for three tasks, not told which, is within 0.01 of a model for each.",
        OURS,
        "sharing",
        (more("shared", "separate", by=-SLACK),),
    ),
    Claim(
        "sharing-costs-nothing-on-ten",
        "One model for ten tasks, not told which, is within 0.01 of a model for each.",
        OURS,
        "sharing-more",
        (more("shared", "separate", by=-SLACK),),
    ),
    Claim(
        "injection-helps-on-ten",
        "With more diverse tasks, telling the encoder its task helps: attention vectors beat none on ten tasks.",
        TEA_BERT,
        "sharing-more",
        (more("shared-attention", "shared"),),
    ),
)

CLAIMS: dict[str, Claim] = {claim.name: claim for claim in (*_OF_TEA_BERT, *_OF_ATTENTION, *_OF_SHARING)}
