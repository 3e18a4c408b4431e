"""Fixtures: the real model, the embedder that counts words, empty caches."""

import pytest
from hypothesis import HealthCheck, settings

from samples import WordEmbedder
from secateur import embed
from secateur.embed.minilm import MiniLM

collect_ignore = ["data"]  # scripts that made the samples, with packages of their own

settings.register_profile("secateur", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("secateur")


@pytest.fixture
def words() -> WordEmbedder:
    return WordEmbedder()


@pytest.fixture(scope="session")
def minilm() -> MiniLM:
    """The real model; a test that needs it fails where it has not been fetched."""
    return MiniLM()


@pytest.fixture(autouse=True)
def _fresh_caches() -> None:
    embed.clear_caches()
