"""Which frame and which tokenizer family a model has, however it is named."""

from __future__ import annotations

from dataclasses import FrozenInstanceError, fields, replace
from typing import Any

import pytest

from secateur import OptionError
from secateur.billing import request_tokens
from secateur.frames import DEFAULT, FRAMES, PROFILES, Frame, frame_for, profile_for

USER = {"role": "user", "content": "three"}


@pytest.mark.parametrize(
    ("profile", "models"),
    [
        ("o200k", "gpt-4o gpt-4o-mini-2024-07-18 GPT-4.1-nano gpt-4.5-preview o1 o3-mini o4-mini azure/gpt-5 "
         "openai/gpt-5.4-nano-20260317 gpt-6 chatgpt-4o-latest gpt-oss:120b openai.gpt-oss-20b "
         "ft:gpt-4o-mini-2024-07-18:acme::abc accounts/fireworks/models/gpt-oss-120b"),
        ("cl100k", "gpt-4 gpt-4-turbo gpt-4-0613 gpt-3.5-turbo-0125 gpt-35-turbo text-embedding-3-small "
         "text-embedding-ada-002 openai/gpt-4-32k"),
        ("claude", "claude-opus-4-7 claude-opus-4.8 claude-opus-5 claude-sonnet-5 claude-fable claude-mythos-preview "
         "us.anthropic.claude-opus-4-7-v1:0 claude-fable-20260401-v1:0 anthropic/claude-sonnet-5"),
        ("claude-3", "claude-3-opus-20240229 claude-3-5-haiku-20241022 claude-3.7-sonnet claude-sonnet-4@20250514 "
         "us.anthropic.claude-sonnet-4-5-20250929-v1:0 anthropic/claude-4.5-haiku-20251001 claude-opus-4-6"),
        ("claude-2", "claude-2.1 claude-instant-1.2 anthropic.claude-v2:1"),
        ("llama3", "llama3-8b-8192 meta-llama/Llama-3.3-70B-Instruct meta.llama4-scout-17b-instruct-v1:0 "
         "deepseek-r1-distill-llama-70b llama3.2:1b llama-v3p1-70b"),
        ("mistral", "mistral-large-latest mistral-small-2503 open-mistral-nemo codestral-2501 devstral-small "
         "magistral-medium pixtral-12b-2409 ministral-8b-latest mistral.devstral-2-123b"),
        ("qwen3", "qwen2-7b qwen2.5-72b-instruct Qwen/Qwen3-30B-A3B qwq-32b qwen3:8b DeepSeek-R1-Distill-Qwen-32B"),
        ("qwen3.6", "qwen3.6:latest qwen3.5-plus accounts/fireworks/models/qwen3p6-35b"),
        ("deepseek3", "deepseek-chat deepseek-reasoner deepseek-ai/DeepSeek-R1-0528 deepseek-v2.5 deepseek-v3.1 "
         "deepseek-v4-flash accounts/fireworks/models/deepseek-v3p1"),
        ("gemma3", "gemini-2.5-pro models/gemini-2.5-flash-preview-05-20 gemma3:1b gemma-2-9b-it "
         "vertex_ai/gemini-3-pro"),
        ("kimi", "moonshotai/kimi-k2 kimi-k2.5"),
        ("glm", "glm-4.7-flash z-ai/glm-5-turbo"),
        ("any", "mystery command-r-plus mistral-7b-instruct mixtral-8x7b llama-2-70b codellama grok-4 gpt-2 "
         "deepseek-coder amazon.nova-pro-v1:0 / mistral-large-2407"),
    ],
)  # fmt: skip
def test_profiles(profile: str, models: str) -> None:
    assert profile in PROFILES
    assert {model: profile_for(model) for model in models.split()} == dict.fromkeys(models.split(), profile)


@pytest.mark.parametrize(
    ("frame", "models"),
    [
        ("openai", "gpt-4o gpt-3.5-turbo openai/gpt-4.1 chatgpt-4o-latest ft:gpt-4o-mini-2024-07-18:acme::abc"),
        ("o", "o1 o4-mini azure/o3-mini"),
        ("gpt-5", "gpt-5 azure/gpt-5-nano gpt-5.4"),
        ("gpt-5-responses", "openai/gpt-5.4-nano openrouter/openai/gpt-5.2"),
        ("gpt-5.0-responses", "openai/gpt-5 openai/gpt-5-mini-2025-08-07"),
        ("gpt-oss", "gpt-oss:120b openai/gpt-oss-20b"),
        ("claude-3-haiku", "claude-3-5-haiku-20241022 anthropic.claude-3-haiku-20240307-v1%3A0"),
        ("claude-3-opus", "claude-3-opus-20240229"),
        ("claude-3.7", "vertex_ai/claude-3-7-sonnet@20250219"),
        ("claude-4", "claude-sonnet-4-20250514 claude-opus-4-1-20250805 anthropic/claude-sonnet-4"),
        ("claude-4.5", "us.anthropic.claude-haiku-4-5-20251001-v1:0 anthropic/claude-4.5-haiku-20251001 claude-2.1"),
        ("claude-4.6", "claude-opus-4-6 claude-opus-4-5 us.anthropic.claude-sonnet-4-6"),
        ("claude-4.7", "claude-opus-4-7"),
        ("claude-4.8", "claude-opus-4-8 claude-sonnet-5 claude-fable-5"),
        ("gemini", "gemini-1.5-flash gemini-2.0-flash google/gemini-2.5-flash vertex_ai/gemini-2.5-pro"),
        ("gemini-2.5", "gemini-2.5-pro models/gemini-2.5-flash-preview-05-20"),
        ("gemini-3", "gemini-3.1-pro-preview"),
        ("llama-3.1", "llama3-1-8b meta-llama/Llama-3.3-70B-Instruct-Turbo accounts/fireworks/models/llama-v3p1-70b"),
        ("llama-3", "llama3-8b-8192"),
        ("qwen-ollama", "ollama/qwen3 qwen3.6:latest"),
        ("grok-azure", "azure/grok-4-1-fast-non-reasoning"),
        ("grok-4-fast", "x-ai/grok-4.1-fast grok-4-fast-reasoning"),
        ("kimi-k2.5", "moonshotai/kimi-k2.5-0127"),
        (DEFAULT, "mystery command-r / granite"),
    ],
)  # fmt: skip
def test_frames(frame: str, models: str) -> None:
    names = {id(each): name for name, each in FRAMES.items()}
    assert {model: names[id(frame_for(model))] for model in models.split()} == dict.fromkeys(models.split(), frame)


def test_the_format_decides_where_it_matters() -> None:
    assert frame_for("gpt-4o", "openai_responses") is FRAMES["openai-responses"]
    assert frame_for("o3", "openai_responses") is FRAMES["o-responses"]
    assert frame_for("gemma-3-27b-it", "gemini") is FRAMES["gemini-2.5"]
    assert frame_for("gemma3:1b") is FRAMES["gemma-3"]


def test_frames_are_documented_and_can_be_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    documented = Frame.__doc__ or ""
    assert [field.name for field in fields(Frame) if f"\n        {field.name}: " not in documented] == []
    with pytest.raises(FrozenInstanceError):
        FRAMES[DEFAULT].message = 5  # type: ignore[misc]
    monkeypatch.setitem(FRAMES, DEFAULT, replace(FRAMES[DEFAULT], request=100))
    assert request_tokens([USER], model="mystery", counter=len) == 100 + 4 + 5
    own = replace(FRAMES[DEFAULT], request=7)
    assert request_tokens([USER], model="gpt-4o", counter=len, frame=own) == 7 + 4 + 5


@pytest.mark.parametrize("model", ["", "  ", None, 4, ["gpt-4o"]])
def test_a_model_is_a_name(model: Any) -> None:
    for function in (profile_for, frame_for):
        with pytest.raises(OptionError, match="model is"):
            function(model)
