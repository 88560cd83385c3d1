"""A stand-in for TensorFlow Text: tokens are words."""

import importlib
from typing import Any

import numpy as np
import numpy.typing as npt

tensor: Any = importlib.import_module("tensorflow.tensor")
BOS, EOS, FIRST = 1, 2, 3


class WhitespaceTokenizer:
    """Words between spaces."""

    def tokenize(self, text: Any) -> npt.NDArray[Any]:
        """The words, as bytes."""
        return np.array(as_bytes(text).split(), object)


class SentencepieceTokenizer:
    """Words as pieces; the model is a file with one word per line."""

    def __init__(
        self, model: bytes, add_bos: bool = False, add_eos: bool = False, reverse: bool = False
    ) -> None:
        self._words = model.split()
        self._ids = {word: FIRST + i for i, word in enumerate(self._words)}
        self._before = [BOS] if add_bos else []
        self._after = [EOS] if add_eos else []

    def vocab_size(self) -> int:
        """Words, and the special ones."""
        return FIRST + len(self._words)

    def tokenize(self, text: Any) -> Any:
        """Numbers; an unknown word is 0."""
        words = as_bytes(text).split()
        ids = [self._ids.get(word, 0) for word in words]
        return tensor.tensor(np.array([*self._before, *ids, *self._after], np.int32))

    def detokenize(self, ids: Any) -> Any:
        """The text."""
        words = (self._words[each - FIRST] for each in map(int, ids) if each >= FIRST)
        return tensor.tensor(np.array(b" ".join(words), object))


def as_bytes(text: Any) -> bytes:
    """Of a string or a tensor."""
    return text.encode() if isinstance(text, str) else bytes(tensor.plain(text))
