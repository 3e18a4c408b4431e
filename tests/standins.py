"""Stand-ins for tokenizers, one with a vocabulary of bytes, and threads that start at once."""

import threading
from collections.abc import Callable, Iterable
from typing import Any

from tokenizers import AddedToken, Tokenizer, models, pre_tokenizers


class Bytes:
    """What the stand-ins have in common: a token for each byte, so only what can be written as UTF-8 is taken."""

    name = "bytes"

    def tokens(self, text: str) -> list[int]:
        return list(text.encode())


def kind(module: str, name: str, *bases: type, **attributes: Any) -> Any:
    """An object of a class of that name, in that module."""
    return type(name, bases or (Bytes,), {"__module__": module, **attributes})()


def fail(*_: Any, **__: Any) -> Any:
    raise AssertionError("not to be called")


def letters() -> Tokenizer:
    """A tokenizer with a token for each of the bytes, and one for a special text."""
    vocabulary = {each: i for i, each in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
    tokenizer = Tokenizer(models.BPE(vocabulary, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.add_special_tokens([AddedToken("<|end|>", special=True)])
    return tokenizer


def together(jobs: Iterable[Callable[[], object]]) -> None:
    """Run jobs in threads that start at once, and raise what one of them raises."""
    jobs = list(jobs)
    barrier = threading.Barrier(len(jobs))
    errors: list[BaseException] = []

    def run(job: Callable[[], object]) -> None:
        try:
            barrier.wait()
            job()
        except BaseException as error:  # noqa: BLE001  # raised again below
            errors.append(error)

    threads = [threading.Thread(target=run, args=(job,)) for job in jobs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
