"""Every exception class: what it also is, its attributes, its text, and that it survives pickling."""

import pickle

import pytest

from secateur import errors

EXAMPLES = [
    (errors.MessageError(3, "has no content"), ValueError, "message 3 has no content"),
    (errors.MessageError(None, "has no text"), ValueError, "current_prompt has no text"),
    (errors.OptionError("top_k", -1, "a whole number"), ValueError, "top_k is -1, it must be a whole number"),
    (
        errors.BudgetError(1200, 1000, "tools", {"system": 0, "tools": 900, "newest": 300}),
        ValueError,
        "needed 1,200 tokens, the budget is 1,000; largest part: tools (tools 900, newest 300)",
    ),
    (
        errors.HistoryChanged(4),
        RuntimeError,
        "message 4 was changed after it was appended; a session's history only grows",
    ),
    (errors.VectorError("vectors have shape (3,)"), ValueError, "vectors have shape (3,)"),
    (errors.WeightsError("weights end too early"), ValueError, "weights end too early"),
    (errors.EmbedderError("mine", "a list"), ValueError, "mine returned a list"),
    (errors.EmbedderUnavailable("run it"), ImportError, "run it"),
    (
        errors.CounterUnavailable("o200k", ("a", "b"), {"b": "is broken"}),
        ImportError,
        "no package counts the tokens of 'o200k': pip install a (or b); b: is broken",
    ),
    (errors.ModelError("no network"), RuntimeError, "no network"),
    (errors.ConversationError("a.json", 4, "is empty"), ValueError, "a.json, line 4: is empty"),
    (errors.ConversationError("a.json", None, "is empty"), ValueError, "a.json: is empty"),
]


def test_every_class_has_an_example() -> None:
    classes = {each for each in vars(errors).values() if isinstance(each, type) and issubclass(each, Exception)}
    assert len(classes) > 5
    assert classes == {type(error) for error, *_ in EXAMPLES} | {errors.SecateurError}
    assert errors.__doc__ is not None
    assert all(each.__name__ in errors.__doc__ for each in classes)


@pytest.mark.parametrize(("error", "builtin", "text"), EXAMPLES, ids=str)
def test_class_text_and_pickle(error: errors.SecateurError, builtin: type[Exception], text: str) -> None:
    assert isinstance(error, errors.SecateurError)
    assert isinstance(error, builtin)
    assert str(error) == text
    again = pickle.loads(pickle.dumps(error))
    assert (type(again), str(again), vars(again)) == (type(error), text, vars(error))
