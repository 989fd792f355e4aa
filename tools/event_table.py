#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The tables of docs/trace-format.md that come from lists in src/trace: events.def with settings.def, pools.def, losses.def.

    tools/event_table.py            print them
    tools/event_table.py --write    put them into the page, between the lines that name them

tests/lint/check_docs.py fails when the page does not have what is printed here.
"""
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SOURCE = ROOT / "src" / "trace"
PAGE = ROOT / "docs" / "trace-format.md"


def calls(text, macro):
    """Arguments of each use of a macro that begins a line, as text; strings that follow each other are one.

    >>> calls('EVENT(1, a, 2,\\n  FIELD(x, "a, b")\\n  FIELD(y, "c" " d"), "all")\\n/* EVENT(no) */', "EVENT")
    [['1', 'a', '2', 'FIELD(x, "a, b") FIELD(y, "c d")', 'all']]
    """
    found = []
    for start in re.finditer(rf"^ *{macro}\(", text, re.M):
        arguments, depth, quoted, piece = [], 1, False, ""
        for character in text[start.end():]:
            if character == '"':
                quoted = not quoted
            elif not quoted:
                depth += (character == "(") - (character == ")")
                if depth == 0:
                    break
                if character == "," and depth == 1:
                    arguments.append(piece)
                    piece = ""
                    continue
            piece += character
        arguments.append(piece)
        found.append([_plain(argument) for argument in arguments])
    return found


def _plain(argument):
    """One argument without line breaks, a single string without its quotes."""
    argument = re.sub(r'"\s+"', "", re.sub(r"\s+", " ", argument.strip()))
    return argument[1:-1] if re.fullmatch(r'"[^"]*"', argument) else argument


def fields(text):
    """(name, word, shift, bits, meaning) of each FIELD in an argument of EVENT."""
    return [tuple(field) for field in calls(re.sub(r"(?<=\)) FIELD", "\nFIELD", text), "FIELD")]


def place(word, shift, bits):
    """Where a field lies in its record.

    >>> place("2", "40", "24"), place("1", "0", "64"), place("1", "0", "32")
    ('word 2, bits 40-63', 'word 1', 'word 1, bits 0-31')
    """
    if bits == "64":
        return f"word {word}"
    return f"word {word}, bits {shift}-{int(shift) + int(bits) - 1}"


def table(rows):
    """A Markdown table.

    >>> table([("a", "x|y")])
    '| a | x\\\\|y |'
    """
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in rows)


def settings_as_fields(text):
    r"""The FIELDs that SETTINGS_AS_FIELDS of settings.def stands for.

    >>> settings_as_fields('#define SETTINGS(SETTING) \\\n  SETTING(a, 1, 0, 8, HAS(b, C), KEY(d) KEY(e), "what")')
    'FIELD(a, 1, 0, 8, "what")'
    """
    rows = calls(text.replace("\\\n", "\n"), "SETTING")
    return " ".join(f'FIELD({", ".join(row[:4])}, "{row[-1]}")' for row in rows)


def events(text):
    text = text.replace("SETTINGS_AS_FIELDS", settings_as_fields((SOURCE / "settings.def").read_text(encoding="utf-8")))
    rows = [("number", "event", "length", "fields"), ("---", "---", "---", "---")]
    for number, name, words, shape, body, meaning in calls(text, "EVENT"):
        length = f"{int(words) * 8}" + ("+" if shape == "VARIABLE" else "")
        parts = [f"`{field}` ({place(word, shift, bits)}): {what}" for field, word, shift, bits, what in fields(body)]
        rows.append((number, f"`{name}`: {meaning}", length, "<br>".join(parts)))
    return table(rows)


def pools(text):
    return table([("number", "in files", "meaning"), ("---", "---", "---"),
                  *((number, f"`{spelled}`", meaning) for number, _, spelled, meaning in calls(text, "POOL"))])


def losses(text):
    return table([("number", "name", "events that were not recorded because"), ("---", "---", "---"),
                  *((number, f"`{name}`", sentence) for number, name, sentence in calls(text, "LOSS"))])


TABLES = {"events": events, "pools": pools, "losses": losses}


def tables():
    """Each table by its name, from the lists as they are now."""
    return {name: make((SOURCE / f"{name}.def").read_text(encoding="utf-8")) for name, make in TABLES.items()}


def filled(page, made):
    """The page with each table in its place.

    >>> filled("a\\n<!-- table: x -->\\nold\\n<!-- end -->\\nb", {"x": "new"})
    'a\\n<!-- table: x -->\\nnew\\n<!-- end -->\\nb'
    """
    for name, text in made.items():
        pattern = rf"(<!-- table: {name} -->\n)(?:(?!<!--).*?\n)?(<!-- end -->)"
        page, count = re.subn(pattern, lambda match: f"{match[1]}{text}\n{match[2]}", page, flags=re.S)
        if count != 1:
            raise SystemExit(f"{PAGE.name} has {count} places for the table {name}")
    return page


def main():
    if sys.argv[1:] == ["--write"]:
        PAGE.write_text(filled(PAGE.read_text(encoding="utf-8"), tables()), encoding="utf-8")
    else:
        print("\n\n".join(tables().values()))


if __name__ == "__main__":
    main()
