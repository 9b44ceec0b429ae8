"""How an answer is read off the encoder: READERS pool the tokens, ANSWERS turn the vectors into outputs; the two lists."""

from torch import Tensor, nn

from teabert.batches import Part
from teabert.heads.answering import Answer, Concatenated, Coral, Cosine, Difference, Dot, Linear, Stretch, stretched
from teabert.heads.attending import TaskAttention
from teabert.heads.reading import FirstToken, Mean, Perceptron, Reader, Reading

READERS: dict[str, type[Reader]] = {
    "first_token": FirstToken,
    "mean": Mean,
    "mlp": Perceptron,
    "task_attention": TaskAttention,
}
ANSWERS: dict[str, type[Answer]] = {
    "linear": Linear,
    "coral": Coral,
    "concatenated": Concatenated,
    "difference": Difference,
    "dot": Dot,
    "cosine": Cosine,
}


class Head(nn.Module):
    """A task's way from token states to outputs: reader, dropout, answer."""

    def __init__(self, reader: Reader, answer: Answer, dropout: float) -> None:
        super().__init__()
        self.reader = reader
        self.dropout = nn.Dropout(dropout)
        self.answer = answer

    def forward(self, reading: Reading, part: Part) -> Tensor:
        """(tokens, width) states -> (examples, outputs)"""
        return self.answers(*self.reader(reading, part))

    def answers(self, first: Tensor, second: Tensor | None) -> Tensor:
        """(examples, width) vectors -> (examples, outputs)"""
        return self.answer(self.dropout(first), None if second is None else self.dropout(second))


__all__ = ["ANSWERS", "READERS", "Head", "Reader", "Reading", "Stretch", "stretched"]
