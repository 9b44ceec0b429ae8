"""Examples in, token ids out: the encoder's own tokenizer, from tokenizer.json or from its vocabulary files."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
from tokenizers import Tokenizer

from teabert.batches import Rows
from teabert.errors import UserError
from teabert.tasks import Task
from teabert.tasks.reading import Example

TOKENIZER_FILE = "tokenizer.json"
Text = str | tuple[str, str]
OneText = tuple[np.ndarray, int, bool]
"""Its token ids, where its second text begins, and whether it was cut"""


@dataclass(frozen=True)
class Tokens:
    """The token ids of some texts."""

    ids: list[np.ndarray]
    second_text: list[int]
    """where the second text of each pair begins"""
    cut: int
    """how many were too long"""


class TextEncoder:
    """Text to token ids."""

    def __init__(self, tokenizer: Tokenizer, longest: int) -> None:
        tokenizer.no_padding()  # published files may ask for padding and for 128 tokens
        tokenizer.no_truncation()
        self.tokenizer = tokenizer
        self.longest = longest

    @classmethod
    def load(cls, folder: Path, longest: int, vocabulary: int | None = None) -> Self:
        """From tokenizer.json, or from vocab.txt (BERT), or from vocab.json and merges.txt (RoBERTa)."""
        tokenizer = load_tokenizer(folder)
        highest = max(tokenizer.get_vocab().values(), default=0)
        if vocabulary is not None and highest >= vocabulary:
            raise UserError(
                f"{folder}: its tokenizer gives ids up to {highest}, its encoder knows {vocabulary} words. They do not"
                " belong together: take both from the same model."
            )
        return cls(tokenizer, longest)

    def save(self, folder: Path) -> None:
        """Write tokenizer.json."""
        self.write(folder, self.tokenizer.to_str())

    @staticmethod
    def write(folder: Path, content: str) -> None:
        """Its file"""
        (folder / TOKENIZER_FILE).write_text(content, encoding="utf-8")

    def tokens(self, texts: Sequence[Text], max_tokens: int | None = None) -> Tokens:
        """Token ids of single texts, or of pairs joined into one sequence; longest text cut first."""
        found = self.each(texts, min(max_tokens or self.longest, self.longest))
        return Tokens([ids for ids, _, _ in found], [begin for _, begin, _ in found], sum(cut for _, _, cut in found))

    def each(self, texts: Sequence[Text], longest: int) -> list[OneText]:
        """The token ids of each text, or pair"""
        self.tokenizer.enable_truncation(longest)
        encodings = self.tokenizer.encode_batch(list(texts))
        return [(np.array(each.ids, dtype=np.int32), _second_text(each), bool(each.overflowing)) for each in encodings]

    def rows(self, task: Task, examples: Sequence[Example]) -> tuple[Rows, int]:
        """The tokenised rows of a task, and how many texts were cut."""
        together = len(task.texts) == 2 and task.pair == "together"
        if together:
            parts = [self.tokens([(example.texts[0], example.texts[1]) for example in examples], task.max_tokens)]
        else:
            parts = [
                self.tokens([example.texts[column] for example in examples], task.max_tokens)
                for column in range(len(task.texts))
            ]
        rows = Rows(
            task=task.name,
            sequences=tuple(part.ids for part in parts),
            second_text=parts[0].second_text if together else None,
            labels=np.array([example.label for example in examples], dtype=np.float32),
            names=tuple(example.name for example in examples),
        )
        return rows, sum(part.cut for part in parts)


def _second_text(encoding: Any) -> int:
    """The token where the second text begins; the end where there is none."""
    if 1 in encoding.type_ids:
        return int(encoding.type_ids.index(1))
    return next((place for place, text in enumerate(encoding.sequence_ids) if text == 1), len(encoding.ids))


def load_tokenizer(folder: Path) -> Tokenizer:
    """The tokenizer of a HuggingFace-style folder."""
    try:
        if (folder / TOKENIZER_FILE).exists():
            return Tokenizer.from_file(str(folder / TOKENIZER_FILE))
        if (folder / "vocab.txt").exists():
            return _word_pieces(folder)
        if (folder / "vocab.json").exists() and (folder / "merges.txt").exists():
            return _byte_pairs(folder)
    except Exception as error:  # tokenizers raises bare Exception
        raise UserError(f"{folder}: its tokenizer cannot be read: {error}") from None
    raise UserError(f"{folder} holds no tokenizer: neither tokenizer.json, vocab.txt, nor vocab.json with merges.txt.")


def _word_pieces(folder: Path) -> Tokenizer:
    from tokenizers.implementations import BertWordPieceTokenizer

    settings = _settings(folder)
    lower = bool(settings.get("do_lower_case", True))
    strip = settings.get("strip_accents")
    chinese = bool(settings.get("tokenize_chinese_chars", True))
    vocabulary = str(folder / "vocab.txt")
    pieces = BertWordPieceTokenizer(vocabulary, lowercase=lower, strip_accents=strip, handle_chinese_chars=chinese)
    return _with(pieces._tokenizer, ("[UNK]", "[CLS]", "[SEP]"))


def _byte_pairs(folder: Path) -> Tokenizer:
    from tokenizers.implementations import ByteLevelBPETokenizer
    from tokenizers.processors import RobertaProcessing

    space = bool(_settings(folder).get("add_prefix_space", False))
    pairs = ByteLevelBPETokenizer(str(folder / "vocab.json"), str(folder / "merges.txt"), add_prefix_space=space)
    tokenizer = _with(pairs._tokenizer, ("<s>", "</s>"))
    ids = tokenizer.get_vocab()
    tokenizer.add_special_tokens([token for token in ("<s>", "<pad>", "</s>", "<unk>", "<mask>") if token in ids])
    tokenizer.post_processor = RobertaProcessing(("</s>", ids["</s>"]), ("<s>", ids["<s>"]), add_prefix_space=space)
    return tokenizer


def _with(tokenizer: Tokenizer, tokens: Sequence[str]) -> Tokenizer:
    """The tokenizer, if its vocabulary holds these tokens: ids made up for them would be unknown to the encoder"""
    if missing := [token for token in tokens if tokenizer.token_to_id(token) is None]:
        raise ValueError(f"its vocabulary lacks {', '.join(missing)}")
    return tokenizer


def _settings(folder: Path) -> dict[str, Any]:
    file = folder / "tokenizer_config.json"
    return json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
