"""An encoder's name -> its shape, for whatever needs no weights: counting parameters, measuring methods."""

from pathlib import Path

from teabert.encoder import EncoderShape
from teabert.hub import encoder_folder
from teabert.pretrained import folder_shape

BERT_BASE = EncoderShape("bert", 30522, 768, 12, 12, 3072, 512, 2, 1e-12)
"""The papers' encoder, bert-base-uncased, and the size at which they count parameters."""
KNOWN = dict.fromkeys(("bert-base-uncased", "google-bert/bert-base-uncased"), BERT_BASE)
"""Shapes that nothing need be fetched for."""


def encoder_shape(name: str, progress: bool = True) -> EncoderShape:
    """Of a known name, a local folder or a hub id; only where nothing else tells, the encoder is fetched."""
    if name in KNOWN and not Path(name).is_dir():
        return KNOWN[name]
    return folder_shape(encoder_folder(name, progress))
