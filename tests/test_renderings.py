"""How tools and schemas are written; what they cost is in test_billing."""

from __future__ import annotations

from secateur.renderings import read_tools, schema_strings, stripped, typescript


def test_a_schema_that_refers_to_itself_ends() -> None:
    tree = {"type": "object", "properties": {"left": {"$ref": "#"}, "right": {"$ref": "#/nowhere"}}}
    assert "left?: " in typescript(read_tools([{"name": "grow", "parameters": tree}]))[0]
    bomb = {f"d{i}": {"properties": {k: {"$ref": f"#/$defs/d{i + 1}"} for k in "ab"}} for i in range(64)}
    schema = {"properties": {"a": {"$ref": "#/$defs/d0"}}, "$defs": bomb}
    assert len(typescript(read_tools([{"name": "grow", "parameters": schema}]))[0]) < 1_000_000


def test_strings_that_gemini_counts_and_what_openai_leaves_out() -> None:
    assert list(schema_strings({"properties": {"a": {"enum": ["b", 1], "format": "date"}}, "required": ["a"]})) == [
        "a", "b", "date", "a",
    ]  # fmt: skip
    assert stripped({"additionalProperties": False, "anyOf": [{"required": ["a"]}]}) == {"anyOf": [{}]}
