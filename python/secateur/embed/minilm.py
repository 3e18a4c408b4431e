"""The all-MiniLM-L6-v2 sentence embedder on the CPU. The only importer of onnxruntime and tokenizers."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from secateur.embed import model
from secateur.errors import EmbedderUnavailable, ModelError

_HOW_TO_INSTALL = "pip install 'secateur[minilm]'"


class MiniLM:
    """Sentence vectors as sentence-transformers makes them: mean pooling over the attention mask, L2 norm 1.

    Texts longer than `max_tokens` are cut there. Loads the model once; safe to share between threads. The empty
    text has a vector too (that of its two marker tokens); lone surrogates are read as U+FFFD.

    Args:
        path: A folder with `model.onnx` (or `onnx/model.onnx`) and `tokenizer.json`, or an `.onnx` file beside its
            tokenizer. None for the environment variable SECATEUR_MODEL, then for what `secateur model fetch` keeps.
        max_tokens: Word pieces of a text that are read, the two markers included; 256 is what the model was
            trained for, 512 the most it can take.
        threads: How many threads run the model; None lets onnxruntime use every core.

    Raises:
        EmbedderUnavailable: If a package or the model is missing; says what to install.
        ModelError: If the files cannot be read as a model and its tokenizer.

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
            raise EmbedderUnavailable(f"MiniLM needs {error.name}: {_HOW_TO_INSTALL}") from error
        files = model.locate(path)
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads or 0
        # A waiting thread that spins takes the core from the user's own work.
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        options.log_severity_level = 3
        try:
            self._session = onnxruntime.InferenceSession(files.graph, options, providers=["CPUExecutionProvider"])
            self._tokenizer = Tokenizer.from_file(os.fspath(files.tokenizer))
        except Exception as error:  # onnxruntime and tokenizers raise classes of their own
            raise ModelError(f"{files.graph.parent} holds no model that can be loaded: {error}") from error
        # The official file asks for 128 tokens and for padding to them.
        self._tokenizer.no_padding()
        self._tokenizer.enable_truncation(max_tokens)
        self._inputs = [each.name for each in self._session.get_inputs()]
        self.fingerprint = f"{files.fingerprint}:{max_tokens}"

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Return vectors of shape (len(texts), 384), in the order of the texts."""
        encodings = self._tokenizer.encode_batch([_well_formed(text) for text in texts])
        token_ids = [encoding.ids for encoding in encodings]
        vectors = np.empty((len(token_ids), 384), np.float32)
        for batch in _batches(token_ids, self._BATCH_TOKENS):
            vectors[batch] = self._run([token_ids[index] for index in batch])
        return vectors

    def _run(self, token_ids: list[list[int]]) -> NDArray[np.float32]:
        ids = np.zeros((len(token_ids), max(map(len, token_ids))), np.int64)
        mask = np.zeros_like(ids)
        for row, each in enumerate(token_ids):
            ids[row, : len(each)] = each
            mask[row, : len(each)] = 1
        known = {"input_ids": ids, "attention_mask": mask, "token_type_ids": np.zeros_like(ids)}
        output: NDArray[np.float32] = self._session.run(None, {name: known[name] for name in self._inputs})[0]
        if output.ndim == 3:
            weights = mask[:, :, None].astype(np.float32)
            output = (output * weights).sum(axis=1) / weights.sum(axis=1)
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
