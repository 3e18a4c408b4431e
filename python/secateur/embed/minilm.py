"""The all-MiniLM-L6-v2 sentence embedder on the CPU, and models of its kind. The only importer of onnxruntime."""

from __future__ import annotations

import asyncio
import os
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Literal, NamedTuple, TypeVar, get_args

import numpy as np
from numpy.typing import NDArray

from secateur._core import byte_products_saturate
from secateur.embed import cores, model, template
from secateur.embed.reader import Reader
from secateur.errors import ModelError, OptionError, whole_number

_INPUTS = ("input_ids", "attention_mask", "token_type_ids")
_POSITIONS = 512
"""As many positions as the models have."""
_BATCH_TOKENS = 384
"""Larger batches are slower: the activations leave the cache (measured: 256 to 512 are equal)."""
_PIECE_TOKENS = 126
_MOST_PIECES = 16
_LOG_FATAL = 4

LongTexts = Literal["first", "pieces"]

_Output = TypeVar("_Output")


class TokenVectors(NamedTuple):
    """A vector for each token of each text, for MaxSim, and one for each text.

    Token `t` of text `i` stands in row `starts[i] + t`; its unit vector is `values[row] * scales[row]`. The markers
    before and behind a text are tokens too.
    """

    sentences: NDArray[np.float32]
    """Shape (texts, dimension), as `embed` gives them."""
    values: NDArray[np.int8]
    """Shape (tokens, dimension)."""
    scales: NDArray[np.float32]
    """Shape (tokens,)."""
    starts: NDArray[np.int64]
    """Shape (texts + 1,)."""


class MiniLM:
    """Sentence vectors as sentence-transformers makes them: the mean over the tokens, L2 norm 1.

    Texts are run in batches of one length, so that nothing is padded, and in "int8" every row of activations is
    quantised by a scale of its own: the same text gives the same vector in any batch, for any number of threads. Texts
    longer than `max_tokens` are cut there. The empty text has a vector too (that of its two marker tokens); lone
    surrogates are read as U+FFFD. MiniLM knows English: see `MultilingualE5` for other languages.

    Safe to share between threads and to use after `os.fork`: it keeps no threads of its own.

    Args:
        path: A folder with a graph and `tokenizer.json`, or an `.onnx` file beside its tokenizer. None for the
            environment variable SECATEUR_MODEL, then for what `secateur model fetch` keeps, then for the package
            `secateur-minilm`.
        precision: "int8" (Spearman correlation of cosines to fp32: 0.999), "fp32", or None for int8 where it is there.
        max_tokens: Word pieces of a text that are read, the two markers included, from 3 to 512; 256 is what the
            model was trained for.
        threads: How many batches run at once; None for as many as the machine and its control groups allow.
        long_texts: What a search sees of a text beyond `max_tokens`: with "first" nothing, as the reference does it;
            with "pieces" the text is cut into pieces of 126 tokens (16 at most, then its middle is left out), and the
            best of them counts. Lines of long tool results are found far better so (recall at 5 0.90 in place of 0.56),
            questions about long chat messages worse (BEAM, recall at 10 of 0.56 in place of 0.61).

    Raises:
        EmbedderUnavailable: If a package or the model is missing; says what to install.
        ModelError: If the files cannot be read as a model and its tokenizer, or it wants inputs of another kind.
        OptionError: If an argument is outside its limits.

    Attributes:
        fingerprint: Names the content of the files and all settings that change a vector.
        dimension: Values per vector; 384 for MiniLM itself.
        english_only: Whether prompts in other scripts are better met by their words; not so of models by path.

    >>> from secateur.embed.minilm import MiniLM
    >>> vectors = MiniLM().embed(["route efficiency", "the weather"])
    >>> vectors.shape, vectors.dtype.name
    ((2, 384), 'float32')
    """

    _name: str | None = None
    _text_prefix = ""

    def __init__(
        self,
        path: str | os.PathLike[str] | None = None,
        *,
        precision: model.Precision | None = None,
        max_tokens: int = 256,
        threads: int | None = None,
        long_texts: LongTexts = "first",
    ) -> None:
        try:
            import onnxruntime
        except ImportError as error:
            raise model.missing_package(error) from error
        if isinstance(max_tokens, bool) or not isinstance(max_tokens, int) or not 3 <= max_tokens <= _POSITIONS:
            raise OptionError("max_tokens", max_tokens, f"a whole number from 3 to {_POSITIONS}")
        if long_texts not in get_args(LongTexts):
            raise OptionError("long_texts", long_texts, " or ".join(map(repr, get_args(LongTexts))))
        self._threads = cores.available() if threads is None else whole_number("threads", threads, 1)
        files = model.locate(path or self._name, precision)
        options = onnxruntime.SessionOptions()
        # Batches run beside each other instead: that scales better, and no thread is left to spin or to be lost in a
        # fork.
        options.intra_op_num_threads = 1
        # Patterns are remembered per shape, and every length is another.
        options.enable_mem_pattern = False
        if byte_products_saturate():
            # Makes the weights unsigned, which is exact; where it is not needed it halves the speed.
            options.add_session_config_entry("session.x64quantprecision", "1")
        options.log_severity_level = _LOG_FATAL
        try:
            session = onnxruntime.InferenceSession(
                files.graph,
                options,
                providers=["CPUExecutionProvider"],
                # Four times as slow as the two nodes that it replaces.
                disabled_optimizers=["SkipLayerNormFusion"],
            )
        except Exception as error:  # onnxruntime raises classes of its own
            raise ModelError(f"{files.graph.parent} holds no model that can be loaded: {error}") from error
        self._session: onnxruntime.InferenceSession | None = session
        self._reader = Reader(files.tokenizer, max_tokens)
        self._inputs = [each.name for each in session.get_inputs()]
        if unknown := [name for name in self._inputs if name not in _INPUTS]:
            raise ModelError(f"{files.graph} wants {', '.join(unknown)}, expected only {', '.join(_INPUTS)}")
        # Of graphs that are not ours the first output, whatever its name: vectors of the tokens or of the text.
        self._output: str = session.get_outputs()[0].name
        if long_texts == "pieces":
            self.pieces = partial(self._reader.pieces, most_tokens=_PIECE_TOKENS, most_pieces=_MOST_PIECES)
        self.english_only = self._name is None and (path is None or model.known(path) is model.MINILM)
        self._graph = files.graph
        self.fingerprint = (
            f"{files.fingerprint()}:{max_tokens}:mean:{self._text_prefix}:{template.VERSION}:{long_texts}"
        )
        self.dimension = self._sentences(np.zeros((1, 1), np.int64)).shape[1]

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Return vectors of shape (len(texts), dimension), in the order of the texts.

        Raises:
            ModelError: If the model cannot run on them.
        """
        return self._embed(self._prefixed(texts, self._text_prefix))

    async def aembed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Return the same without holding up the event loop."""
        return await asyncio.to_thread(self.embed, texts)

    def embed_tokens(self, texts: Sequence[str]) -> TokenVectors:
        """Return the vectors of the tokens as well, from the same run.

        Raises:
            ModelError: If the model gives no vectors of tokens, or cannot run.
        """
        token_ids = self._reader.token_ids(self._prefixed(texts, self._text_prefix))
        starts = np.cumsum([0, *map(len, token_ids)], dtype=np.int64)
        sentences = np.empty((len(token_ids), self.dimension), np.float32)
        values = np.empty((int(starts[-1]), self.dimension), np.int8)
        scales = np.empty(int(starts[-1]), np.float32)
        for batch, (tokens, means) in self._runs(token_ids, self._tokens):
            sentences[batch] = means
            steps = np.abs(tokens).max(axis=2) / np.float32(127)
            rows = starts[batch][:, None] + np.arange(tokens.shape[1])
            scales[rows] = steps
            values[rows] = np.rint(tokens / steps[:, :, None])
        return TokenVectors(sentences, values, scales, starts)

    def close(self) -> None:
        """Let go of the model; it cannot embed any more."""
        self._session = None

    def _embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        token_ids = self._reader.token_ids(texts)
        vectors = np.empty((len(token_ids), self.dimension), np.float32)
        for batch, rows in self._runs(token_ids, self._sentences):
            vectors[batch] = rows
        return vectors

    def _prefixed(self, texts: Sequence[str], prefix: str) -> Sequence[str]:
        return [prefix + text for text in texts] if prefix else texts

    def _runs(
        self, token_ids: Sequence[Sequence[int]], run: Callable[[NDArray[np.int64]], _Output]
    ) -> Iterable[tuple[list[int], _Output]]:
        """Run the model on every batch: the texts in it, and what came of it."""
        batches = _batches(token_ids)
        arrays = [np.array([token_ids[index] for index in batch], np.int64) for batch in batches]
        if self._threads == 1 or len(batches) < 2:
            yield from zip(batches, map(run, arrays), strict=True)
            return
        # Of this call, so that none is left behind.
        with ThreadPoolExecutor(min(self._threads, len(batches))) as pool:
            yield from zip(batches, pool.map(run, arrays), strict=True)

    def _sentences(self, ids: NDArray[np.int64]) -> NDArray[np.float32]:
        """Unit vectors of texts of one length, shape (texts, dimension)."""
        output = self._run(ids)
        if output.ndim == 3:
            output = _mean(output)
        if output.ndim != 2:
            raise ModelError(f"{self._graph} gives shape {output.shape}, expected a vector a text or a token")
        return _unit(output)

    def _tokens(self, ids: NDArray[np.int64]) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """Unit vectors of the tokens, shape (texts, length, dimension), and of the texts."""
        output = self._run(ids)
        if output.ndim != 3:
            raise ModelError(f"{self._graph} gives shape {output.shape}, expected a vector a token")
        return _unit(output), _unit(_mean(output))

    def _run(self, ids: NDArray[np.int64]) -> NDArray[np.float32]:
        session = self._session
        if session is None:
            raise ModelError(f"{self._graph} is closed")
        known = dict(zip(_INPUTS, (ids, np.ones_like(ids), np.zeros_like(ids)), strict=True))
        try:
            outputs = session.run([self._output], {name: known[name] for name in self._inputs})
        except Exception as error:  # onnxruntime raises classes of its own
            raise ModelError(f"{self._graph} cannot run on {ids.shape[1]} tokens: {error}") from error
        vectors: NDArray[np.float32] = outputs[0]
        return vectors


class MultilingualE5(MiniLM):
    """The multilingual-e5-small embedder: a hundred languages, texts in one found by prompts in another.

    Half as fast as MiniLM. A query and what is searched are embedded differently, as the model was trained.
    `secateur model fetch multilingual-e5-small` gets it from the Hugging Face hub. Arguments and errors as of `MiniLM`.
    """

    _name = model.MULTILINGUAL.name
    _text_prefix = model.MULTILINGUAL.text_prefix

    def embed_queries(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Return the vectors of prompts, of shape (len(texts), dimension).

        Raises:
            ModelError: If the model cannot run on them.
        """
        return self._embed(self._prefixed(texts, model.MULTILINGUAL.query_prefix))


def _batches(token_ids: Sequence[Sequence[int]]) -> list[list[int]]:
    """Indices in batches of one length, the longest texts first."""
    of_length: dict[int, list[int]] = defaultdict(list)
    for index, ids in enumerate(token_ids):
        of_length[len(ids)].append(index)
    batches = []
    for length, indices in sorted(of_length.items(), reverse=True):
        size = max(1, _BATCH_TOKENS // length)
        batches += [indices[start : start + size] for start in range(0, len(indices), size)]
    return batches


def _mean(tokens: NDArray[np.float32]) -> NDArray[np.float32]:
    # Row after row: onnxruntime's own mean adds in an order that depends on the batch.
    total: NDArray[np.float32] = np.add.reduce(tokens, axis=1)
    return total / np.float32(tokens.shape[1])


def _unit(vectors: NDArray[np.float32]) -> NDArray[np.float32]:
    lengths: NDArray[np.float32] = np.linalg.norm(vectors, axis=-1, keepdims=True)
    return vectors / lengths
