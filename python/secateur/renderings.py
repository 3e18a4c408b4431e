"""How providers write tools, schemas and calls into the prompt: what stands in the request is not what is counted.

Each rendering was found by comparing counts with what was billed; none is published. Nothing is changed, and a schema
of any shape can be written: what cannot be understood is `any`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from secateur.errors import OptionError

_MOST_REFERENCES = 1000
"""References that are followed in one schema: each may stand for two more."""


class Tool(NamedTuple):
    """A tool that a request offers."""

    name: str
    description: str | None
    schema: Mapping[str, Any]
    """JSON schema of its arguments."""
    raw: Any = None
    """The tool as it was given, where it is no function: a tool of the provider's own."""


def read_tools(tools: Iterable[Any] | Mapping[str, Any] | None) -> list[Tool]:
    """Read a list of tools in the shape of any provider, or a Bedrock `toolConfig` with such a list.

    Raises:
        OptionError: If it is no list of mappings.

    >>> read_tools([{"type": "function", "function": {"name": "add", "parameters": {"type": "object"}}}])
    [Tool(name='add', description=None, schema={'type': 'object'}, raw=None)]
    >>> read_tools([{"functionDeclarations": [{"name": "add", "description": "Adds"}]}])
    [Tool(name='add', description='Adds', schema={}, raw=None)]
    """
    if isinstance(tools, Mapping) and "tools" in tools:
        tools = tools["tools"]
    if tools is None:
        return []
    if isinstance(tools, (str, bytes, Mapping)) or not isinstance(tools, Iterable):
        raise OptionError("tools", tools, "a list of mappings, as the provider takes it")
    found: list[Tool] = []
    for tool in tools:
        if not isinstance(tool, Mapping):
            hint = "; pass its model_dump()" if hasattr(tool, "model_dump") else ""
            raise OptionError("tools", type(tool).__name__, f"a list of mappings{hint}")
        declarations = tool.get("functionDeclarations") or tool.get("function_declarations")
        if isinstance(declarations, (list, tuple)):
            found += map(_read_tool, declarations)
        elif not _is_cache_point(tool):
            found.append(_read_tool(tool))
    return found


def _is_cache_point(tool: Mapping[str, Any]) -> bool:
    return len(tool) == 1 and "cachePoint" in tool


_SCHEMA_KEYS = (
    "parameters",
    "input_schema",
    "inputSchema",
    "parametersJsonSchema",
    "parameters_json_schema",
)


def _read_tool(tool: Any) -> Tool:
    inner = tool
    for key in ("function", "toolSpec", "custom"):
        if isinstance(tool, Mapping) and isinstance(tool.get(key), Mapping):
            inner = tool[key]
    if not isinstance(inner, Mapping) or not isinstance(inner.get("name"), str):
        return Tool("", None, {}, tool)
    schema: Any = next((inner[key] for key in _SCHEMA_KEYS if inner.get(key)), {})
    if isinstance(schema, Mapping) and isinstance(schema.get("json"), Mapping):
        schema = schema["json"]
    description = inner.get("description")
    return Tool(
        inner["name"],
        description if isinstance(description, str) else None,
        schema if isinstance(schema, Mapping) else {},
    )


def as_json(value: Any, *, compact: bool = False) -> str:
    """A value as JSON, whatever is in it; a string as it is."""
    if isinstance(value, str):
        return value
    separators = (",", ":") if compact else (", ", ": ")
    return json.dumps(value, ensure_ascii=False, separators=separators, default=str)


def described(tool: Tool) -> dict[str, Any]:
    """A tool as Anthropic writes it."""
    description = {} if tool.description is None else {"description": tool.description}
    return {**description, "name": tool.name, "parameters": tool.schema}


def wrapped(tool: Tool) -> dict[str, Any]:
    """A tool as the chat templates of open models write it."""
    function = {"name": tool.name, "description": tool.description, "parameters": tool.schema}
    return {"type": "function", "function": function}


def schema_strings(schema: Any) -> Iterator[str]:
    """The strings of a schema that Gemini counts, each by itself.

    >>> list(schema_strings({"type": "object", "properties": {"a": {"type": "string", "default": "b"}}}))
    ['object', 'a', 'string']
    """
    if isinstance(schema, (list, tuple)):
        for each in schema:
            if isinstance(each, str):
                yield each
            else:
                yield from schema_strings(each)
    elif isinstance(schema, Mapping):
        for key, value in schema.items():
            if key in ("type", "description", "title", "format") and isinstance(value, str):
                yield value
            elif key == "properties" and isinstance(value, Mapping):
                for name, each in value.items():
                    yield str(name)
                    yield from schema_strings(each)
            elif key in ("required", "enum", "items", "anyOf", "$defs"):
                yield from schema_strings(value)


def property_count(schema: Any) -> int:
    """How many properties a schema has, those of objects within it too."""
    if not isinstance(schema, Mapping):
        return 0
    return sum(1 + property_count(each) for each in _properties(schema).values()) + property_count(schema.get("items"))


def leaves(value: Any) -> Iterator[str]:
    """The keys and strings of arguments or of a response, as Gemini counts them; numbers are free.

    >>> list(leaves({"city": "Paris", "days": 3})), list(leaves('["a"]'))
    (['city', 'Paris', 'days'], ['a'])
    """
    if isinstance(value, str):
        value = parsed(value)
    if isinstance(value, Mapping):
        for key, each in value.items():
            yield str(key)
            yield from leaves(each)
    elif isinstance(value, (list, tuple)):
        for each in value:
            yield from leaves(each)
    elif isinstance(value, str):
        yield value


def parsed(text: str) -> Any:
    """What a text says as JSON, if that is a list or an object; else the text."""
    if text[:1] not in ("{", "["):
        return text
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def typescript(tools: Sequence[Tool]) -> tuple[str, int]:
    """Tools as OpenAI writes them, and by how many tokens that is more than is billed.

    >>> print(typescript([Tool("add", "Adds", {"properties": {"a": {"type": "integer"}}, "required": ["a"]})])[0])
    namespace functions {
    <BLANKLINE>
    // Adds
    type add = (_: {
    a: number,
    }) => any;
    <BLANKLINE>
    } // namespace functions
    """
    lines = ["namespace functions {", ""]
    excess = 0
    for tool in tools:
        lines += _comment(None, tool.description)
        properties = _properties(tool.schema)
        if not properties:
            lines += [f"type {tool.name} = () => any;", ""]
            continue
        title = tool.schema.get("title")
        lines.append(f"type {tool.name} = (_: " + (f"// {title}\n{{" if title else "{"))
        lines += [*_Types(tool.schema).members(tool.schema), "}) => any;", ""]
        excess += not any(
            isinstance(each, Mapping) and (each.get("title") or each.get("description")) for each in properties.values()
        )
    return "\n".join([*lines, "} // namespace functions"]), excess


def stripped(schema: Any) -> Any:
    """A schema for output without what OpenAI leaves out of it.

    >>> stripped({"properties": {"required": {"type": "string"}}, "required": ["required"]})
    {'properties': {'required': {'type': 'string'}}}
    """
    if isinstance(schema, (list, tuple)):
        return [stripped(each) for each in schema]
    if not isinstance(schema, Mapping):
        return schema
    return {
        key: {name: stripped(each) for name, each in value.items()}
        if key == "properties" and isinstance(value, Mapping)
        else stripped(value)
        for key, value in schema.items()
        if key not in ("additionalProperties", "required")
    }


def _properties(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    properties = schema.get("properties")
    return properties if isinstance(properties, Mapping) else {}


def _comment(title: Any, text: Any) -> list[str]:
    lines = [str(title)] if title else []
    if title and text:
        lines.append("")
    if text:
        lines += str(text).split("\n")
    return [f"// {line.strip()}" if line.strip() else "//" for line in lines]


class _Types:
    """Writes the types of one schema, with its references resolved."""

    def __init__(self, root: Mapping[str, Any]) -> None:
        self._root = root
        self._open: list[str] = []
        self._left = _MOST_REFERENCES

    def members(self, schema: Mapping[str, Any]) -> list[str]:
        """The lines between the braces of an object."""
        required = schema.get("required")
        required = required if isinstance(required, (list, tuple)) else ()
        lines = []
        for name, given in _properties(schema).items():
            target, reference = self._target(given)
            lines += _comment(target.get("title"), target.get("description"))
            default = f" // default: {as_default(target['default'])}" if "default" in target else ""
            mark = "" if name in required else "?"
            lines.append(f"{name}{mark}: {self._within(target, reference)},{default}")
        return lines

    def _type(self, given: Any) -> str:
        target, reference = self._target(given)
        return self._within(target, reference)

    def _within(self, schema: Mapping[str, Any], reference: str | None) -> str:
        if reference is None:
            return self._written(schema)
        self._open.append(reference)
        try:
            return self._written(schema)
        finally:
            self._open.pop()

    def _written(self, schema: Mapping[str, Any]) -> str:
        choices = schema.get("enum")
        if choices and isinstance(choices, (list, tuple)):
            return " | ".join(map(as_default, choices))
        for key in ("anyOf", "oneOf"):
            if isinstance(schema.get(key), (list, tuple)):
                return " | ".join(map(self._type, schema[key]))
        kind = schema.get("type")
        if isinstance(kind, (list, tuple)):
            return " | ".join(self._written({**schema, "type": each}) for each in kind)
        if kind == "array":
            return self._array(schema)
        if kind == "object" and _properties(schema):
            return "\n".join(["{", *self.members(schema), "}"])
        return "number" if kind == "integer" else str(kind or "any")

    def _array(self, schema: Mapping[str, Any]) -> str:
        items, reference = self._target(schema.get("items"))
        if not items:
            return "any[]"
        written = self._within(items, reference)
        if not _properties(items):
            return f"{written}[]"
        title = f"// {items['title']}\n" if items.get("title") else ""
        return f"Array<\n{title}{written}\n>"

    def _target(self, given: Any) -> tuple[Mapping[str, Any], str | None]:
        """A schema with what it refers to put in, and the reference; empty where that is nothing or holds itself."""
        if not isinstance(given, Mapping):
            return {}, None
        reference = given.get("$ref")
        if not isinstance(reference, str):
            return given, None
        if reference in self._open or not self._left:
            return {}, None
        self._left -= 1
        target: Any = self._root
        for key in reference.split("/")[1:]:
            target = target.get(key) if isinstance(target, Mapping) else None
        beside = {key: value for key, value in given.items() if key != "$ref"}
        return {**(target if isinstance(target, Mapping) else {}), **beside}, reference


def as_default(value: Any) -> str:
    """A value as it stands in a type: strings in quotes."""
    return json.dumps(value, ensure_ascii=False, default=str)
