"""What the runs of one process have in common is read once: the rows of a file, and the token ids of a text."""

from collections.abc import Sequence
from functools import cache, cached_property
from pathlib import Path

from teabert.tasks import Task
from teabert.tasks.hubrows import PREFIX
from teabert.tasks.reading import Table, locate, read_split
from teabert.text import OneText, Text, TextEncoder

_TABLES: dict[tuple[str, str, Path, int, int], Table] = {}


def remembered_split(task: Task, split: str, data: str | None) -> Table:
    """As read_split; a file is read again where it has changed, or the task reads it in another way."""
    place = task.file(split)
    if place is None or place.startswith(PREFIX):
        return read_split(task, split, data)
    file = locate(task, split, data)
    facts = file.stat()
    key = (task.model_dump_json(exclude={"head", "take", "pair", "loss"}), split, file, facts.st_mtime_ns, facts.st_size)
    if key not in _TABLES:
        _TABLES[key] = read_split(task, split, data)
    return _TABLES[key]


class RememberingText(TextEncoder):
    """A tokenizer that knows the texts that it has met."""

    @cached_property
    def known(self) -> dict[int, dict[Text, OneText]]:
        """Token ids of every text, by the length that it may have"""
        return {}

    @cached_property
    def content(self) -> str:
        """What tokenizer.json holds"""
        return self.tokenizer.to_str()

    def save(self, folder: Path) -> None:
        """Write tokenizer.json."""
        self.write(folder, self.content)

    def each(self, texts: Sequence[Text], longest: int) -> list[OneText]:
        """The token ids of each text"""
        known = self.known.setdefault(longest, {})
        new = [text for text in dict.fromkeys(texts) if text not in known]
        known.update(zip(new, super().each(new, longest), strict=True))
        return [known[text] for text in texts]


@cache
def remembering_text(folder: Path, longest: int, vocabulary: int) -> RememberingText:
    """The tokenizer of a folder"""
    return RememberingText.load(folder, longest, vocabulary)
