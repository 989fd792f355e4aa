# SPDX-License-Identifier: Apache-2.0
"""The part of JSON Schema that docs/summary.schema.json uses. A keyword that is not known here is a failure, so that nothing in
the schema goes unchecked.

    faults(schema, value)    what is wrong, a line each; [] if nothing is
"""
import re

_TYPES = {"object": dict, "array": list, "string": str, "boolean": bool, "null": type(None)}
_WORDS = {"$schema", "$defs", "$ref", "title", "description"}


def _is(value, name):
    if name in ("integer", "number"):
        return isinstance(value, int if name == "integer" else (int, float)) and not isinstance(value, bool)
    return isinstance(value, _TYPES[name])


def faults(schema, value, root=None, place="$"):
    """
    >>> faults({"type": "object", "required": ["a"], "properties": {"a": {"enum": [1, 2]}}}, {"a": 3})
    ['$.a: 3 is none of [1, 2]']
    >>> faults({"type": ["integer", "null"], "minimum": 0}, -1)
    ['$: -1 is less than 0']
    >>> faults({"additionalProperties": {"type": "string"}}, {"b": 1})
    ["$.b: 1 is no ['string']"]
    """
    root = schema if root is None else root
    found = []
    if "$ref" in schema:
        target = root
        for name in schema["$ref"].removeprefix("#/").split("/"):
            target = target[name]
        found += faults(target, value, root, place)
    for word, wanted in schema.items():
        if word in _WORDS or word == "properties":
            continue
        if word == "type":
            names = [wanted] if isinstance(wanted, str) else wanted
            if not any(_is(value, name) for name in names):
                found.append(f"{place}: {value!r:.60} is no {names}")
        elif word in ("const", "enum"):
            allowed = [wanted] if word == "const" else wanted
            if value not in allowed:
                found.append(f"{place}: {value!r:.60} is none of {allowed}")
        elif word == "pattern":
            if isinstance(value, str) and not re.search(wanted, value):
                found.append(f"{place}: {value!r:.60} does not match {wanted}")
        elif word in ("minimum", "maximum"):
            if isinstance(value, (int, float)) and (value < wanted if word == "minimum" else value > wanted):
                found.append(f"{place}: {value} is {'less' if word == 'minimum' else 'more'} than {wanted}")
        elif word == "maxItems":
            if isinstance(value, list) and len(value) > wanted:
                found.append(f"{place}: {len(value)} items")
        elif word == "required":
            if isinstance(value, dict):
                found += [f"{place}.{key}: missing" for key in wanted if key not in value]
        elif word == "items":
            if isinstance(value, list):
                for number, item in enumerate(value):
                    found += faults(wanted, item, root, f"{place}[{number}]")
        elif word == "additionalProperties":
            if isinstance(value, dict):
                for key in value.keys() - schema.get("properties", {}).keys():
                    found += faults(wanted, value[key], root, f"{place}.{key}")
        else:
            raise NotImplementedError(f"{place}: the keyword {word} of the schema is not checked")
    if isinstance(value, dict):
        for key, wanted in schema.get("properties", {}).items():
            if key in value:
                found += faults(wanted, value[key], root, f"{place}.{key}")
    return found
