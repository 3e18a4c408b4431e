"""Recall by words, outside English."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from samples import WordEmbedder, records
from secateur import Pruner, prune_context
from secateur.embed import lexical
from secateur.embed.minilm import MiniLM


@given(st.text(max_size=20), st.lists(st.text(max_size=40), max_size=8))
def test_scores_are_those_of_the_formula(query: str, texts: list[str]) -> None:
    found = lexical.scores(query, texts)
    documents = [lexical.terms(text) for text in texts]
    mean = max(1.0, sum(sum(document.values()) for document in documents) / max(1, len(texts)))
    for document, score in zip(documents, found, strict=True):
        expected = 0.0
        for term in lexical.terms(query):
            holding = sum(term in other for other in documents)
            weight = math.log((len(texts) + 1) / (holding + 0.5))
            often = document.get(term, 0)
            expected += weight * often * 2.2 / (often + 1.2 * (0.25 + 0.75 * sum(document.values()) / mean))
        assert score == pytest.approx(expected)


def test_chinese_evidence_is_found(minilm: MiniLM) -> None:
    """Of a real dialogue in Chinese, of which MiniLM understands next to nothing."""
    (record,) = [each for each in records("memories.jsonl") if each["lang"] == "zh"]
    filler = [{"role": "user", "content": "x"}, {"role": "user", "content": "y"}]
    questions = [each for each in record["questions"] if each["evidence_message_indices"]]
    assert len(questions) >= 3
    found = {}
    for name, embedder in (("words", None), ("vectors", Silent(minilm))):
        pruner = Pruner(5, embedder=embedder)
        found[name] = 0
        for each in questions:
            choices = pruner.explain(each["question"], [*record["messages"], *filler]).choices
            found[name] += len(
                {choice.index for choice in choices if choice.kept} & {*each["evidence_message_indices"]}
            )
    assert found["words"] > found["vectors"]


class Silent:
    """The same vectors, from an embedder that does not say what it reads."""

    def __init__(self, model: MiniLM) -> None:
        self.embed = model.embed


def test_only_where_the_embedder_reads_english_only() -> None:
    class English(WordEmbedder):
        english_only = True

    history = [{"role": "user", "content": text} for text in ("fleet", "маршрут длинный", "rain", "a", "b")]
    assert prune_context("Какой маршрут?", history, 1, embedder=English())[0] is history[1]
    assert len(prune_context("Какой маршрут?", history, 1, embedder=English(), min_score=0.99)) == 3
    assert prune_context("route fleet", history, 1, embedder=English())[0] is history[0]
