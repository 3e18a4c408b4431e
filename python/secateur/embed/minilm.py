"""The all-MiniLM-L6-v2 sentence embedder on the CPU. The only importer of onnxruntime and tokenizers."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from secateur.embed import model
from secateur.errors import ModelError, OptionError

_INPUTS = ("input_ids", "attention_mask", "token_type_ids")
_POSITIONS = 512
"""As many positions as the model has."""
_CHARACTERS_A_TOKEN = 16
"""More than nearly all text has; a text that has more is read again further."""
_LONGEST_WORD = 200
"""The tokenizer takes no word of more than 100 characters apart."""
_LOG_FATAL = 4


class MiniLM:
    """Sentence vectors as sentence-transformers makes them: mean pooling over the attention mask, L2 norm 1.

    Texts longer than `max_tokens` are cut there. Loads the model once; safe to share between threads. The empty
    text has a vector too (that of its two marker tokens); lone surrogates are read as U+FFFD.

    Args:
        path: A folder with `model.onnx` (or `onnx/model.onnx`) and `tokenizer.json`, or an `.onnx` file beside its
            tokenizer. None for the environment variable SECATEUR_MODEL, then for what `secateur model fetch` keeps.
        max_tokens: Word pieces of a text that are read, the two markers included, from 3 to 512; 256 is what the
            model was trained for.
        threads: How many threads run the model; None lets onnxruntime use every core.

    Raises:
        EmbedderUnavailable: If a package or the model is missing; says what to install.
        ModelError: If the files cannot be read as a model and its tokenizer, or it wants inputs of another kind.
        OptionError: If `max_tokens` is not from 3 to 512.

    Attributes:
        fingerprint: Names the files and the settings.
        dimension: Values per vector; 384 for MiniLM itself.

    >>> from secateur.embed.minilm import MiniLM
    >>> vectors = MiniLM().embed(["route efficiency", "the weather"])
    >>> vectors.shape, vectors.dtype.name
    ((2, 384), 'float32')
    """

    # Larger batches are slower: the activations leave the cache (measured best: 128 to 512 tokens).
    _BATCH_TOKENS = 512

    def __init__(
        self, path: str | os.PathLike[str] | None = None, *, max_tokens: int = 256, threads: int | None = None
    ) -> None:
        try:
            import onnxruntime
            from tokenizers import Tokenizer
        except ImportError as error:
            raise model.missing_package(error) from error
        if isinstance(max_tokens, bool) or not isinstance(max_tokens, int) or not 3 <= max_tokens <= _POSITIONS:
            raise OptionError("max_tokens", max_tokens, f"a whole number from 3 to {_POSITIONS}")
        files = model.locate(path)
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads or 0
        # A waiting thread that spins takes the core from the user's own work.
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        options.log_severity_level = _LOG_FATAL
        try:
            self._session = onnxruntime.InferenceSession(files.graph, options, providers=["CPUExecutionProvider"])
            self._tokenizer = Tokenizer.from_file(os.fspath(files.tokenizer))
        except Exception as error:  # onnxruntime and tokenizers raise classes of their own
            raise ModelError(f"{files.graph.parent} holds no model that can be loaded: {error}") from error
        self._inputs = [each.name for each in self._session.get_inputs()]
        if unknown := [name for name in self._inputs if name not in _INPUTS]:
            raise ModelError(f"{files.graph} wants {', '.join(unknown)}, expected only {', '.join(_INPUTS)}")
        # The official file asks for 128 tokens and for padding to them.
        self._tokenizer.no_padding()
        self._tokenizer.enable_truncation(max_tokens)
        self._max_tokens = max_tokens
        self._graph = files.graph
        self.fingerprint = f"{files.fingerprint}:{max_tokens}"
        self.dimension = self._run([[0]]).shape[1]

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Return vectors of shape (len(texts), dimension), in the order of the texts.

        Raises:
            ModelError: If the model cannot run on them.
        """
        token_ids = self._tokenized([_well_formed(text) for text in texts])
        vectors = np.empty((len(token_ids), self.dimension), np.float32)
        for batch in _batches(token_ids, self._BATCH_TOKENS):
            vectors[batch] = self._run([token_ids[index] for index in batch])
        return vectors

    def _tokenized(self, texts: list[str]) -> list[list[int]]:
        """Token ids of each text, cut at `max_tokens`; what lies far behind the cut is not tokenized.

        A text read up to a number of characters begins with the same tokens but for its last word, so that the ids
        are those of the whole text if they end well before.
        """
        characters = self._max_tokens * _CHARACTERS_A_TOKEN
        token_ids: list[list[int]] = [[]] * len(texts)
        left = list(range(len(texts)))
        while left:
            encodings = self._tokenizer.encode_batch([texts[index][:characters] for index in left])
            again: list[int] = []
            for index, encoding in zip(left, encodings, strict=True):
                full = len(encoding.ids) == self._max_tokens
                if len(texts[index]) <= characters or (full and encoding.offsets[-2][1] < characters - _LONGEST_WORD):
                    token_ids[index] = encoding.ids
                else:
                    again.append(index)
            left, characters = again, characters * 8
        return token_ids

    def _run(self, token_ids: list[list[int]]) -> NDArray[np.float32]:
        ids = np.zeros((len(token_ids), max(map(len, token_ids))), np.int64)
        mask = np.zeros_like(ids)
        for row, each in enumerate(token_ids):
            ids[row, : len(each)] = each
            mask[row, : len(each)] = 1
        known = dict(zip(_INPUTS, (ids, mask, np.zeros_like(ids)), strict=True))
        try:
            output: NDArray[np.float32] = self._session.run(None, {name: known[name] for name in self._inputs})[0]
        except Exception as error:  # onnxruntime raises classes of its own
            raise ModelError(f"{self._graph} cannot run on {ids.shape[1]} tokens: {error}") from error
        if output.ndim == 3:
            weights = mask[:, :, None].astype(np.float32)
            output = (output * weights).sum(axis=1) / weights.sum(axis=1)
        if output.ndim != 2:
            raise ModelError(f"{self._graph} gives shape {output.shape}, expected a vector a text or a token")
        output /= np.linalg.norm(output, axis=1, keepdims=True)
        return output


def _batches(token_ids: Sequence[Sequence[int]], most_tokens: int) -> Iterator[list[int]]:
    """Indices in batches of similar length, whose padded size stays within a number of tokens."""
    batch: list[int] = []
    for index in sorted(range(len(token_ids)), key=lambda index: len(token_ids[index])):
        if batch and (len(batch) + 1) * len(token_ids[index]) > most_tokens:
            yield batch
            batch = []
        batch.append(index)
    if batch:
        yield batch


def _well_formed(text: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError:
        # Through UTF-16, so that two halves of a pair become the character that they stand for.
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text
