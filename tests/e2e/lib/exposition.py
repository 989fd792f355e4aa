# SPDX-License-Identifier: Apache-2.0
"""The text exposition format 0.0.4 of Prometheus, read by its own description: a strict reader that shares nothing with the writer.

    samples, types = parse(text)      samples[("msmemscope_used_bytes", frozenset({("pool", "HAL"), ...}))] == 4096.0
"""
import re

NAME = r"[a-zA-Z_:][a-zA-Z0-9_:]*"
LABEL = r'[a-zA-Z_][a-zA-Z0-9_]*="(?:[^"\\\n]|\\[\\"n])*"'
SAMPLE = re.compile(rf"({NAME})(?:\{{({LABEL}(?:,{LABEL})*,?)?\}})?[ \t]+(\S+)(?:[ \t]+(-?\d+))?")
UNESCAPED = {"\\\\": "\\", '\\"': '"', "\\n": "\n"}


def _labels(text):
    pairs = re.findall(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\\n]|\\[\\"n])*)"', text or "")
    names = [name for name, _ in pairs]
    assert len(set(names)) == len(names), f"a label twice: {text}"
    return frozenset((name, re.sub(r"\\.", lambda found: UNESCAPED[found[0]], value)) for name, value in pairs)


def parse(text):
    assert text == "" or text.endswith("\n"), "the last line must end with a line feed"
    samples, types, helps, order = {}, {}, {}, []
    for line in text.split("\n")[:-1]:
        if line.startswith("# TYPE "):
            _, _, name, kind = line.split(" ")
            assert re.fullmatch(NAME, name) and kind in ("counter", "gauge", "histogram", "summary", "untyped")
            assert name not in types and name not in order, f"{name} is described twice, or behind its samples"
            types[name] = kind
        elif line.startswith("# HELP "):
            name = line.split(" ")[2]
            assert name not in helps
            helps[name] = line
        elif line and not line.startswith("#"):
            found = SAMPLE.fullmatch(line)
            assert found, f"no sample: {line!r}"
            name, labels, value, _ = found.groups()
            assert not order or name == order[-1] or name not in order, f"samples of {name} are not together"
            order.append(name)
            key = (name, _labels(labels))
            assert key not in samples, f"twice: {line}"
            samples[key] = float(value)
            assert name in types and name in helps
            assert types[name] != "counter" or name.endswith("_total")
    return samples, types
