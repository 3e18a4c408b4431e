"""Choose which messages of a long history to send to a language model.

>>> import secateur
>>> secateur.estimate_tokens("Bonjour !")
3
"""

from secateur._core import VectorIndex, top_k
from secateur.errors import (
    ConversationError,
    EmbedderError,
    EmbedderUnavailable,
    MessageError,
    ModelError,
    OptionError,
    SecateurError,
    VectorError,
)
from secateur.prune import Choice, Pruner, Pruning, prune_context
from secateur.tokens import estimate_tokens

__all__ = [
    "Choice",
    "ConversationError",
    "EmbedderError",
    "EmbedderUnavailable",
    "MessageError",
    "ModelError",
    "OptionError",
    "Pruner",
    "Pruning",
    "SecateurError",
    "VectorError",
    "VectorIndex",
    "estimate_tokens",
    "prune_context",
    "top_k",
]
