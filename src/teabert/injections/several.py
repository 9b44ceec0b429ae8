"""Several injections in one encoder: each hook goes through them in the recipe's order."""

from collections.abc import Iterable, Mapping, Sequence
from functools import reduce
from operator import add
from typing import TYPE_CHECKING, cast

from torch import Tensor, nn

from teabert.injections.base import Injection, Site
from teabert.injections.pertask import with_rows

if TYPE_CHECKING:
    from teabert.encoder import Encoder


class Several(Injection):
    """What one method returns, the next one takes."""

    def __init__(self, methods: Mapping[str, Injection], tasks: Sequence[str]) -> None:
        nn.Module.__init__(self)
        self.tasks = tuple(tasks)
        self.methods = nn.ModuleDict(methods)
        self.foldable = all(method.foldable for method in self.each())
        self.exact_at_start = all(method.exact_at_start for method in self.each())

    @property
    def first(self) -> int:
        """The lowest of theirs"""
        return min(method.first for method in self.each())

    def each(self) -> Iterable[Injection]:
        """The methods, in order"""
        return cast(Iterable[Injection], self.methods.values())

    def changes(self, hook: str) -> bool:
        """Whether any of them does, or what is made of this class"""
        return getattr(type(self), hook) is not getattr(Several, hook) or any(each.changes(hook) for each in self.each())

    def embedded(self, x: Tensor, at: Site) -> Tensor:
        """x: (tokens, width)"""
        for method in self.each():
            x = method.embedded(x, at)
        return x

    def normalised(self, x: Tensor, at: Site) -> Tensor:
        """x: (tokens, width)"""
        for method in self.each():
            x = method.normalised(x, at)
        return x

    def shift(self, at: Site) -> Tensor | None:
        """The sum of what comes before any method makes something else of queries, keys and values"""
        found = []
        for method in self.each():
            found.append(method.shift(at))
            if method.changes("projected"):
                break
        shifts = [shift for shift in found if shift is not None]
        return reduce(add, shifts) if shifts else None

    def projected(self, q: Tensor, k: Tensor, v: Tensor, at: Site) -> tuple[Tensor, Tensor, Tensor]:
        """q, k, v: (tokens, width) each"""
        shifted = False
        for method in self.each():
            shift = method.shift(at) if shifted else None
            if shift is not None:
                q, k, v = (with_rows(x, part, at) for x, part in zip((q, k, v), shift.chunk(3, dim=-1), strict=True))
            q, k, v = method.projected(q, k, v, at)
            shifted = shifted or method.changes("projected")
        return q, k, v

    def prefixes(self, at: Site) -> tuple[Tensor, Tensor] | None:
        """The only method's that has any"""
        found = [prefix for method in self.each() if (prefix := method.prefixes(at)) is not None]
        assert len(found) <= 1, "two methods with prefixes"
        return found[0] if found else None

    def context(self, x: Tensor, at: Site) -> Tensor:
        """x: (tokens, attention_heads, head_width)"""
        for method in self.each():
            x = method.context(x, at)
        return x

    def attended(self, x: Tensor, at: Site) -> Tensor:
        """x: (tokens, width)"""
        for method in self.each():
            x = method.attended(x, at)
        return x

    def fed_forward(self, x: Tensor, at: Site) -> Tensor:
        """x: (tokens, width)"""
        for method in self.each():
            x = method.fed_forward(x, at)
        return x

    def fold_into(self, encoder: "Encoder", task: str) -> None:
        """One after the other"""
        for method in self.each():
            method.fold_into(encoder, task)
