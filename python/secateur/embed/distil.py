"""Distil MiniLM into a table of one vector per token, with numpy alone.

Every token is run through the model between its two markers, in float64, so that machines differ by less than the
rounding to 8 bits hides. What is common to all texts is taken out: the mean and the strongest directions, over tokens
as frequent as the order of the vocabulary (which is by frequency) makes them by Zipf's law. The square of the
logarithm of the rank is a token's weight.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import save_file

from secateur.embed.static import ABOUT, VERSION, Table

Floats = NDArray[np.float64]

_LAYERS = 6
_HEADS = 12
_LAYER_NORM_EPSILON = 1e-12
_BATCH = 128
_COMMON = 10
"""Directions that are taken out (measured: recall grows up to about ten, then falls)."""
_DIMENSION = 256
_NOTHING = 1e-6
"""The weight of what the vocabulary lacks: it decides only where there is nothing else."""
_ERF = (1.061405429, -1.453152027, 1.421413741, -0.284496736, 0.254829592)
"""Abramowitz and Stegun 7.1.26: the error function to 1.5e-7."""


def distil(weights: Mapping[str, NDArray[np.float32]], tokenizer: Path) -> Table:
    """Make the table; takes a minute on one core.

    Args:
        weights: The tensors of the official `model.safetensors`.
        tokenizer: The `tokenizer.json` that belongs to them.
    """
    unknown, begin, end, first, size = _vocabulary(tokenizer)
    tokens = np.array([unknown, *range(first, size)])
    markers = np.ones_like(tokens)
    pooled = _Bert(weights).pooled(np.stack([markers * begin, tokens, markers * end], axis=1))
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
    save_file({"codes": table.codes, "scales": table.scales}, path, {ABOUT: about})


def _vocabulary(tokenizer: Path) -> tuple[int, int, int, int, int]:
    """The numbers of the unknown token and of the two markers, of the first token that is text, and behind the last."""
    model: dict[str, Any] = json.loads(tokenizer.read_text(encoding="utf-8"))["model"]
    vocabulary: dict[str, int] = model["vocab"]
    marks = [number for word, number in vocabulary.items() if len(word) > 2 and word[0] == "[" and word[-1] == "]"]
    special = (vocabulary[model["unk_token"]], vocabulary["[CLS]"], vocabulary["[SEP]"])
    return *special, max(marks) + 1, len(vocabulary)


class _Bert:
    def __init__(self, weights: Mapping[str, NDArray[np.float32]]) -> None:
        self._weights = {
            name: tensor.astype(np.float64) for name, tensor in weights.items() if tensor.dtype == np.float32
        }

    def pooled(self, token_ids: NDArray[np.int64]) -> Floats:
        """The mean over the positions of sequences of one length."""
        prefix, length = "embeddings.", token_ids.shape[1]
        slots = self._weights[f"{prefix}position_embeddings.weight"][:length]
        slots = slots + self._weights[f"{prefix}token_type_embeddings.weight"][0]
        words = self._weights[f"{prefix}word_embeddings.weight"]
        means = []
        for start in range(0, len(token_ids), _BATCH):
            ids = token_ids[start : start + _BATCH]
            hidden = self._layer_norm(f"{prefix}LayerNorm", (words[ids] + slots).reshape(ids.size, -1))
            for layer in range(_LAYERS):
                hidden = self._layer(f"encoder.layer.{layer}.", hidden, length)
            means.append(hidden.reshape(len(ids), length, -1).mean(axis=1))
        return np.concatenate(means)

    def _layer(self, prefix: str, hidden: Floats, length: int) -> Floats:
        query, key, value = (
            self._linear(f"{prefix}attention.self.{name}", hidden)
            .reshape(-1, length, _HEADS, hidden.shape[1] // _HEADS)
            .transpose(0, 2, 1, 3)
            for name in ("query", "key", "value")
        )
        # Sequences of three: sums over a small axis are faster than products of tiny matrices.
        scores = (query[:, :, :, None] * key[:, :, None]).sum(axis=-1) / math.sqrt(query.shape[-1])
        shares = np.exp(scores - scores.max(axis=-1, keepdims=True))
        shares /= shares.sum(axis=-1, keepdims=True)
        context = (shares[..., None] * value[:, :, None]).sum(axis=3).transpose(0, 2, 1, 3).reshape(hidden.shape)
        attended = self._linear(f"{prefix}attention.output.dense", context)
        hidden = self._layer_norm(f"{prefix}attention.output.LayerNorm", attended + hidden)
        wide = _gelu(self._linear(f"{prefix}intermediate.dense", hidden))
        return self._layer_norm(f"{prefix}output.LayerNorm", self._linear(f"{prefix}output.dense", wide) + hidden)

    def _linear(self, name: str, hidden: Floats) -> Floats:
        product: Floats = hidden @ self._weights[f"{name}.weight"].T
        product += self._weights[f"{name}.bias"]
        return product

    def _layer_norm(self, name: str, hidden: Floats) -> Floats:
        hidden = hidden - hidden.mean(axis=1, keepdims=True)
        hidden /= np.sqrt((hidden * hidden).mean(axis=1, keepdims=True) + _LAYER_NORM_EPSILON)
        hidden *= self._weights[f"{name}.weight"]
        hidden += self._weights[f"{name}.bias"]
        return hidden


def _gelu(values: Floats) -> Floats:
    size = np.abs(values)
    step = 1 / (1 + 0.3275911 / math.sqrt(2) * size)
    tail = np.zeros_like(values)
    for coefficient in _ERF:
        tail += coefficient
        tail *= step
    tail *= np.exp(values * values / -2)
    tail *= size
    tail /= 2
    return np.maximum(values, 0) - tail
