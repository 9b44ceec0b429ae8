"""Task-specific attention (Jia): its Tables 1, 2 and 3, the controls it lacks, and how its gain grows with data.

One training for each task; a row's time is that of the three together, as in the paper.
"""

from teabert.experiments.base import Figure, Row, Table

THREE = ("sst", "quora", "sts")
COLUMNS = (*THREE, "course", "seconds", "ratio")
FINE = "train.mode=finetune"
_FIRST = tuple(f"tasks.{task}.head.read=first_token" for task in THREE)
_UNIFORM = tuple(f"tasks.{task}.head.read.start=uniform" for task in ("quora", "sts"))

PAPER = {
    "first-frozen": (0.389, 0.401, 0.298, 15006),
    "first-finetuned": (0.504, 0.595, 0.587, 37183),
    "mean-frozen": (0.460, 0.386, 0.643, 15608),
    "mean-finetuned": (0.515, 0.561, 0.854, 38161),
    "default-frozen": (0.253, 0.469, 0.251, 18086),
    "default-finetuned": (0.509, 0.843, 0.822, 41827),
    "uniform-frozen": (0.262, 0.429, 0.148, 17648),
    "uniform-finetuned": (0.539, 0.838, 0.386, 41036),
}
"""SST, Quora, STS on dev, and seconds on a T4."""
_READERS = {
    "first": ("task-attention-baseline", _FIRST, "first token"),
    "mean": ("task-attention-baseline", (), "mean"),
    "default": ("task-attention", (), "attention, default start"),
    "uniform": ("task-attention", _UNIFORM, "attention, U(0.9, 1)"),
}


def _row(name: str) -> Row:
    reader, mode = name.split("-")
    recipe, changes, title = _READERS[reader]
    mode_change = (FINE,) if mode == "finetuned" else ()
    *scores, seconds = PAPER[name]
    paper = dict(zip(THREE, scores, strict=True)) | {"seconds": seconds}
    if reader in ("default", "uniform"):
        paper["ratio"] = round(seconds / PAPER[f"mean-{mode}"][3], 3)
    series = "fine-tuned" if mode == "finetuned" else "frozen"
    changes = (*mode_change, *changes)
    return Row(name, recipe, changes, paper, apart=True, group=title, series=series, against=f"mean-{mode}")


_SPLIT = "Where the course's whole Quora file is not at hand, Quora trains on fewer rows than the paper's 141,498."

POOLING = Table(
    "task-attention-pooling",
    "Task-specific attention, Table 1: first token against mean",
    tuple(_row(f"{reader}-{mode}") for reader in ("first", "mean") for mode in ("frozen", "finetuned")),
    (*THREE, "course", "seconds"),
    Figure("dots", THREE),
    notes=("The paper's first token is BERT's pooler on it. Its seconds are a T4's.", _SPLIT),
)

RESULTS = Table(
    "task-attention",
    "Task-specific attention, Table 3: attention of each task's own on the encoder's output",
    tuple(_row(f"{reader}-{mode}") for reader in ("mean", "default", "uniform") for mode in ("frozen", "finetuned")),
    COLUMNS,
    Figure("dots", (*THREE, "ratio")),
    notes=(
        "ratio: training time over that of 'mean' in the same mode. A frozen encoder reads every text once here, in the"
        " paper once an epoch, so the heads are more of what is left.",
        "On test rows, whose labels nobody else has, the paper has 0.517, 0.551 and 0.826 with mean, 0.533, 0.842 and 0.791"
        " with attention, 0.524, 0.839 and 0.374 with U(0.9, 1).",
        "The paper's frozen SST scores of attention are those of one label for every row.",
        "The paper lists U(0.9, 1) for SST too, but its code starts only the pairs' attention so; so do these rows, whose"
        " SST is therefore that of the default start. task-attention-controls has 'uniform-sst'.",
        _SPLIT,
    ),
)

PARAMETERS = Table(
    "task-attention-parameters",
    "Task-specific attention, Table 2: parameters of each task's own",
    (
        Row("mean", "task-attention-baseline", paper={"sst": 3840, "quora": 590_000, "sts": 2_360_000}),
        Row("attention", "task-attention", paper={"sst": 4_720_000, "quora": 3_540_000, "sts": 11_200_000}),
    ),
    (*THREE, *(f"{task}-true" for task in THREE)),
    notes=(
        "The paper counts weights without biases, layer norms and feed-forward, four square matrices for a self-attention"
        " layer and five for a cross-attention layer; beside it what the models truly have.",
    ),
    counted=True,
)

_AS_LARGE = {
    "sst": "{method: mlp, layers: 2, times: 6}",
    "quora": "{method: mlp, layers: 1, times: 2}",
    "sts": "{method: mlp, layers: 3, times: 5}",
}
"""A full self-attention layer has 12 square matrices, a full cross layer 13, a bare one 4; a pair has two for each time."""
_FOLDED = "{method: task_attention, layers: 1, start: mean}"
CONTROLS = Table(
    "task-attention-controls",
    "Task-specific attention, controls, fine-tuned: is it the attention?",
    tuple(
        Row(
            name,
            f"task-attention{'-baseline' if plain else ''}",
            changes if "frozen" in name else (FINE, *changes),
            apart=True,
        )
        for name, plain, changes in (
            ("mean", True, ()),
            ("difference", True, tuple(f"tasks.{task}.head.answer=difference" for task in ("quora", "sts"))),
            (
                "together",
                True,
                tuple(
                    f"tasks.{task}.{fact}" for task in ("quora", "sts") for fact in ("pair=together", "head.answer=linear")
                ),
            ),
            ("softmax-twice", True, ("tasks.sst.loss=cross_entropy_twice",)),
            ("first-bare", True, tuple(f"tasks.{task}.head.read={{method: first_token, pooler: false}}" for task in THREE)),
            ("mlp", True, tuple(f"tasks.{task}.head.read={read}" for task, read in _AS_LARGE.items())),
            ("attention", False, ()),
            ("attention-dropout", False, tuple(f"tasks.{task}.head.dropout=0.3" for task in THREE)),
            ("attention-difference", False, tuple(f"tasks.{task}.head.answer=difference" for task in ("quora", "sts"))),
            ("start-mean", False, tuple(f"tasks.{task}.head.read={_FOLDED}" for task in THREE)),
            ("one-layer", False, tuple(f"tasks.{task}.head.read.layers=1" for task in THREE)),
            ("no-feed-forward", False, tuple(f"tasks.{task}.head.read.feed_forward=false" for task in THREE)),
            ("exchange", False, ("tasks.sts.head.read.exchange=true",)),
            ("uniform-sst", False, ("tasks.sst.head.read.start=uniform",)),
            ("attention-frozen-lr-1e-4", False, ("train.lr=1e-4",)),
        )
    ),
    (*THREE, "course", "parameters", "seconds", "ratio"),
    Figure("dots", THREE),
    notes=(
        "together: the pair in one sequence; difference: a linear layer on u, v, |u - v|; start-mean: attention that starts"
        " as exactly the mean; one-layer: one attention layer for every task; attention-frozen-lr-1e-4: frozen, at a tenth"
        " of the paper's learning rate, at which its SST run collapsed.",
        "attention-dropout: dropout 0.3 before the answer, which the baselines have and the paper's attention rows do not.",
        "exchange: between full cross layers a token adds what the other text's token at its place heard, as the paper's"
        " code does; only STS has such layers.",
        "mlp: for each attention layer a pair of linear layers on the mean, together as many numbers as the attention has.",
        _SPLIT,
    ),
    against="mean",
)

_ANEW = "train.encoder_dropout=true"
_PART = (*(f"tasks.{task}.take=0.25" for task in THREE), "train.epochs=4")
TIMES = Table(
    "task-attention-times",
    "Task-specific attention, what it costs in time: a quarter of the rows, four epochs",
    tuple(
        Row(
            f"{reader}-{mode}",
            _READERS[reader][0],
            (*(() if mode == "frozen" else (FINE,)), *_READERS[reader][1], *_PART, *((_ANEW,) if mode == "frozen" else ())),
            paper={"ratio": round(PAPER[f"{reader}-{mode}"][3] / PAPER[f"mean-{mode}"][3], 3)},
            apart=True,
            group=_READERS[reader][2],
            series="fine-tuned" if mode == "finetuned" else "frozen",
            against=f"mean-{mode}",
        )
        for reader in ("mean", "default", "uniform")
        for mode in ("frozen", "finetuned")
    ),
    ("seconds", "ratio"),
    Figure("dots", ("ratio",)),
    notes=(
        "A step costs the same however many there are, so a part is enough. Run it with one worker.",
        "frozen: the encoder reads every text anew in every epoch, with its dropout on, as in the paper; the rows of"
        " task-attention read every text once.",
    ),
)

SIZES = (1000, 3000, 10000, 30000)
_CURVES = {
    "mean": ("task-attention-baseline", ()),
    "difference": ("task-attention-baseline", ("tasks.quora.head.answer=difference",)),
    "attention": ("task-attention", ()),
    "together": ("task-attention-baseline", ("tasks.quora.pair=together", "tasks.quora.head.answer=linear")),
}
_OF_PAPER = {"mean": 0.561, "attention": 0.843}
QUORA_SIZES = Table(
    "quora-sizes",
    "How the gain of task-specific attention grows with data: Quora, fine-tuned",
    tuple(
        Row(
            f"{curve}-{size or 'all'}",
            recipe,
            (FINE, "tasks.sst=false", "tasks.sts=false", *changes, *([f"tasks.quora.take={size}"] if size else [])),
            {} if size or curve not in ("mean", "attention") else {"quora": _OF_PAPER[curve], "rows": 141_498},
            series=curve,
            x=size,
        )
        for curve, (recipe, changes) in _CURVES.items()
        for size in (*SIZES, None)
    ),
    ("quora", "rows", "seconds"),
    Figure("lines", ("quora",), "training rows", x_log=True),
    notes=("The paper's numbers are of 141,498 rows.",),
)
