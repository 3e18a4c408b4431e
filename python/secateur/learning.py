"""What usage figures teach of an estimate: a factor and an offset or, for an unknown tokenizer, a mix of families."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, SupportsIndex

import numpy as np
import numpy.typing as npt

from secateur.errors import OptionError, whole_number

MOST_REPORTS = 64
"""Older ones are forgotten."""
_KEPT = 0.98
"""What a report counts after each further one."""
_NOISE = 0.02
"""Standard deviation of a right estimate of a conversation, as a share (benches/NOTES.md)."""
_FACTOR_DEVIATION = 0.1
_OFFSET_DEVIATION = 2000.0
"""In tokens: what goes unseen (hidden prompts, tool schemas) is of this order."""
_MIX_DEVIATION = 0.25
_MIX_OFFSET_DEVIATION = 50.0
_OUTLIER = 3.0
"""Standard deviations beyond which a report counts by its size only."""
_CAUTION = 4.0
"""Reports after which a correction downwards is believed by half."""
_SURELY = 0.1
"""A family that is off by no more, spread and factor together, may be the one."""
_MOST_TOKENS = 2**53

Floats = npt.NDArray[np.float64]


def prompt_tokens(usage: object) -> int:
    """The tokens of a request's input in what a provider says of usage, cached ones included.

    Args:
        usage: A number, or a mapping or object with the names of OpenAI (chat and Responses), Anthropic, Gemini,
            Bedrock or Ollama.

    Raises:
        OptionError: If it holds none of them.

    >>> prompt_tokens({"input_tokens": 12, "cache_read_input_tokens": 1000, "cache_creation_input_tokens": 0})
    1012
    >>> prompt_tokens({"prompt_tokens": 40, "completion_tokens": 5})
    40
    """
    given = usage
    if isinstance(usage, SupportsIndex) and not isinstance(usage, bool):
        return whole_number("usage", usage, 0, _MOST_TOKENS)
    if not isinstance(usage, Mapping):
        usage = usage.model_dump() if hasattr(usage, "model_dump") else getattr(usage, "__dict__", None)
    found = None
    for names in (
        ("prompt_tokens",),
        ("promptTokenCount",),
        ("prompt_token_count",),
        ("prompt_eval_count",),
        # Anthropic and Bedrock leave what was cached out of the first; OpenAI's Responses count it in, elsewhere.
        ("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens"),
        ("inputTokens", "cacheReadInputTokens", "cacheWriteInputTokens"),
    ):
        if isinstance(usage, Mapping) and usage.get(names[0]) is not None:
            counts = [whole_number(f"usage[{name!r}]", usage.get(name) or 0, 0, _MOST_TOKENS) for name in names]
            # Some hosts fill in the names of others with 0.
            found = max(found or 0, sum(counts))
    if found is None:
        raise OptionError("usage", given, "a number of tokens, or what a provider says of usage")
    return found


class Lesson(NamedTuple):
    """What was learned.

    Attributes:
        factor: What an estimated token costs, in the provider's tokens.
        offset: What every request costs on top, in tokens.
        mix: The weight of each family for an unknown tokenizer; None before there is a report, or for a known one.
        possible: By what each family is multiplied that may still be the one; 0 for those that cannot.
        trust: How far the mix is believed; the rest is the most of what is possible.
    """

    factor: float = 1.0
    offset: int = 0
    mix: tuple[float, ...] | None = None
    possible: tuple[float, ...] | None = None
    trust: float = 0.0


def learn(estimates: Sequence[Sequence[float]], tokens: Sequence[int]) -> Lesson:
    """Learn from requests with known counts, oldest first.

    Weighted least squares on relative errors, with prior knowledge that factors are near 1 and offsets small; outliers
    count by their size only. Corrections downwards are taken over slowly, since too low a count is what hurts.

    Args:
        estimates: For each request, the estimate in each family (or in the one that is known).
        tokens: What the provider counted.

    >>> lesson = learn([[1000.0], [2000.0], [5000.0]], [1500, 2500, 5500])
    >>> round(lesson.factor, 2), round(lesson.offset, -1)
    (1.0, 500)
    """
    rows, counted = np.array(estimates, dtype=np.float64), np.array(tokens, dtype=np.float64)
    families = rows.shape[1]
    ages = np.arange(len(counted))[::-1]
    scale = _KEPT ** (ages / 2) / (_NOISE * np.maximum(counted, 1))
    if families == 1:
        mean, deviation = np.array([1.0, 0.0]), np.array([_FACTOR_DEVIATION, _OFFSET_DEVIATION])
    else:
        mean = np.array([1 / families] * families + [0.0])
        deviation = np.array([_MIX_DEVIATION] * families + [_MIX_OFFSET_DEVIATION])
    matrix = np.concatenate([rows, np.ones((len(rows), 1))], axis=1)
    weight = np.ones(len(counted))
    solution: Floats = mean
    for _ in range(8):
        by = scale * weight
        solution = _solve(matrix * by[:, None], counted * by, mean, deviation, families if families > 1 else 0)
        error = np.abs(matrix @ solution - counted) * scale
        weight = np.sqrt(_OUTLIER / np.maximum(error, _OUTLIER))
    offset = float(solution[-1])
    trust = len(counted) / (len(counted) + _CAUTION)
    if families > 1:
        return Lesson(
            offset=round(offset if offset > 0 else offset * trust),
            mix=tuple(map(float, solution[:-1])),
            possible=_possible(rows, counted, scale),
            trust=len(counted) ** 2 / (len(counted) ** 2 + 1),
        )
    factor = float(solution[0])
    cautious = 1 - (1 - factor) * trust if factor < 1 else factor
    return Lesson(float(np.clip(cautious, 0.1, 10)), round(offset if offset > 0 else offset * trust))


def _possible(rows: Floats, counted: Floats, scale: Floats) -> tuple[float, ...]:
    """The families that explain the reports about as well as the best does, each with the factor that fits.

    Families differ little on one language and much on another, so that reports on one leave several possible.
    """
    factors = np.array([np.median(counted / np.maximum(row, 1)) for row in rows.T])
    off = np.abs(rows * factors / np.maximum(counted, 1)[:, None] - 1)
    weight = (scale * counted)[:, None]
    spread = np.sqrt((off**2 * weight).sum(axis=0) / weight.sum()) + np.abs(np.log(np.maximum(factors, 1e-3)))
    possible = spread <= max(_SURELY, 2 * spread.min())
    return tuple(float(np.clip(factor, 1, 3)) if each else 0.0 for factor, each in zip(factors, possible, strict=True))


def _solve(matrix: Floats, target: Floats, mean: Floats, deviation: Floats, positive: int) -> Floats:
    """Ridge regression about a mean, with the first `positive` coefficients not negative (coordinate descent)."""
    gram = matrix.T @ matrix + np.diag(deviation**-2)
    right = matrix.T @ target + mean / deviation**2
    solution = np.asarray(np.linalg.solve(gram, right), dtype=np.float64)
    if not positive or solution[:positive].min() >= 0:
        return solution
    solution[:positive] = np.maximum(solution[:positive], 0)
    for _ in range(200):
        before = solution.copy()
        for place in range(len(solution)):
            value = solution[place] + (right[place] - gram[place] @ solution) / gram[place, place]
            solution[place] = max(value, 0.0) if place < positive else value
        if np.abs(solution - before).max() < 1e-6 * max(1.0, np.abs(solution).max()):
            break
    return solution
