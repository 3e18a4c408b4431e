"""Plain messages of role and content: the shape of the articles, and of local models.

| what | where |
| --- | --- |
| text | `content`, a string |
| role | "user", "assistant" ("agent"), "system"; any other is taken as it comes |
"""

from __future__ import annotations

from secateur.formats.openai_chat import OpenAIChat


class Simple(OpenAIChat):
    """Role and content. Read like OpenAI's, whose messages without tools look the same."""

    name = "simple"
