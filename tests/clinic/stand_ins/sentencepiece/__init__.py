"""A stand-in for SentencePiece: the script lays out a finished vocabulary, so none is trained."""


class SentencePieceTrainer:
    """Only its name."""


class SentencePieceProcessor:
    """Only its name."""
