"""Keep a long-running language model agent inside its context window.

>>> import secateur
>>> secateur.estimate_tokens("Bonjour !", "gpt-4o")
2
"""

from secateur._core import HalfLife, VectorIndex, top_k
from secateur.counters import exact
from secateur.errors import (
    BudgetError,
    ConversationError,
    CounterUnavailable,
    EmbedderError,
    EmbedderUnavailable,
    HistoryChanged,
    MessageError,
    ModelError,
    OptionError,
    SecateurError,
    VectorError,
    WeightsError,
)
from secateur.fit import Fate, Policy, Report, Setting, Window, fit
from secateur.frames import profile_for
from secateur.notices import Notes
from secateur.prune import Choice, Pruner, Pruning, prune_context
from secateur.session import Session
from secateur.tokens import TokenCounter, TokenEstimator, estimate_tokens
from secateur.truncate import truncate
from secateur.validity import Problem, check, repair

__all__ = [
    "BudgetError",
    "Choice",
    "ConversationError",
    "CounterUnavailable",
    "EmbedderError",
    "EmbedderUnavailable",
    "Fate",
    "HalfLife",
    "HistoryChanged",
    "MessageError",
    "ModelError",
    "Notes",
    "OptionError",
    "Policy",
    "Problem",
    "Pruner",
    "Pruning",
    "Report",
    "SecateurError",
    "Session",
    "Setting",
    "TokenCounter",
    "TokenEstimator",
    "VectorError",
    "VectorIndex",
    "WeightsError",
    "Window",
    "check",
    "estimate_tokens",
    "exact",
    "fit",
    "profile_for",
    "prune_context",
    "repair",
    "top_k",
    "truncate",
]
