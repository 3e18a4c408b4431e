"""Distil MiniLM into a table of one vector per token.

Every token is run through the fp32 graph between its two markers. What is common to all texts is taken out: the mean
and the strongest directions, over tokens as frequent as the order of the vocabulary (which is by frequency) makes them
by Zipf's law. The square of the logarithm of the rank is a token's weight. The same machine gives the same bytes;
another may round some of the 8-bit values the other way.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import safetensors.numpy
from numpy.typing import NDArray

from secateur.embed.static import ABOUT, VERSION, Table

_BATCH = 128
_COMMON = 10
"""Directions that are taken out (measured: recall grows up to about ten, then falls)."""
_DIMENSION = 256
_NOTHING = 1e-6
"""The weight of what the vocabulary lacks: it decides only where there is nothing else."""


def distil(graph: Path, tokenizer: Path) -> Table:
    """Make the table; takes twenty seconds on one core.

    Args:
        graph: The fp32 graph that `secateur.embed.build` writes.
        tokenizer: The `tokenizer.json` that belongs to it.
    """
    unknown, begin, end, first, size = _vocabulary(tokenizer)
    tokens = np.array([unknown, *range(first, size)])
    markers = np.ones_like(tokens)
    pooled = _pooled(graph, np.stack([markers * begin, tokens, markers * end], axis=1))
    rank = np.arange(1, len(tokens))
    weight = np.array([_NOTHING, *np.log1p(rank) ** 2])[:, None]
    frequency = np.array([0, *(1 / rank)])[:, None]
    pooled -= (frequency * weight * pooled).sum(axis=0) / (frequency * weight).sum()
    scaled = pooled * weight * np.sqrt(frequency)
    directions = np.linalg.eigh(scaled.T @ scaled)[1][:, ::-1][:, _COMMON : _COMMON + _DIMENSION]
    # The sign of an eigenvector is the library's whim.
    directions *= np.sign(np.take_along_axis(directions, np.abs(directions).argmax(axis=0)[None], axis=0))
    rows = pooled @ directions * weight
    scales = np.abs(rows).max(axis=1, keepdims=True) / 127
    return Table(np.rint(rows / scales).astype(np.int8), scales.astype(np.float32), first)


def save(table: Table, path: Path) -> None:
    """Write a table; the same one gives the same bytes."""
    about = json.dumps({"version": VERSION, "first": table.first})
    # Not by its own writing of files, which lets nobody but the owner read them.
    path.write_bytes(safetensors.numpy.save({"codes": table.codes, "scales": table.scales}, {ABOUT: about}))


def _vocabulary(tokenizer: Path) -> tuple[int, int, int, int, int]:
    """The numbers of the unknown token and of the two markers, of the first token that is text, and behind the last."""
    model: dict[str, Any] = json.loads(tokenizer.read_text(encoding="utf-8"))["model"]
    vocabulary: dict[str, int] = model["vocab"]
    marks = [number for word, number in vocabulary.items() if len(word) > 2 and word[0] == "[" and word[-1] == "]"]
    special = (vocabulary[model["unk_token"]], vocabulary["[CLS]"], vocabulary["[SEP]"])
    return *special, max(marks) + 1, len(vocabulary)


def _pooled(graph: Path, token_ids: NDArray[np.int64]) -> NDArray[np.float64]:
    """The mean over the positions of sequences of one length."""
    session = onnxruntime.InferenceSession(graph, providers=["CPUExecutionProvider"])
    runs = (token_ids[start : start + _BATCH] for start in range(0, len(token_ids), _BATCH))
    return np.concatenate([session.run(["token_vectors"], {"input_ids": ids})[0].mean(axis=1) for ids in runs]).astype(
        np.float64
    )
