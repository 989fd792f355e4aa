# SPDX-License-Identifier: Apache-2.0
"""What people read is plain English: help, manual page, messages, the page of the viewer, the Python package, README and docs.

Looks for habits that readers stumble over (RULES) in the texts of the tree: string literals of C, Python and JavaScript that hold at
least two words, texts between tags of HTML, and Markdown outside of code. Also that no sentence of C is torn into pieces: a literal
that continues in the next line ends with a line break of its own, so that a message can be found by searching for it.

ALLOWED has texts that stay as they are, UNFINISHED the folders that are not checked yet. Documentation inside of private modules of
Python is for developers and not checked, nor are decisions (docs/decisions), which are records of their time.
"""
import ast
import functools
import re

import lint

# (pattern, what to write instead). A pattern is searched without regard to case, except where it says (?-i:...).
RULES = (
    (r"\b(begin|begins|beginning|begun|began)\b", "start"),
    (r"\b(tell|tells|telling|told)\b", "say, show, report"),
    (r"\bbehind\b", "after"),
    (r"\b(lies|lay|lain)\b", "is in"),
    (r"\bstands?\b(?! (out|for)\b|-)", "is"),
    (r"(?<!there )\b(is|are|was|were) no\b(?! longer| more than)", "is not a"),
    (r"\bunless (it is |they are |this is )?(said|says)\b|\bunless this says\b", "by default"),
    (r"\bso (often|many|much|long)\b(?! as\b)", "every N, at most N"),
    (r"\bso it does\b|\bso they do\b", "implied"),
    (r"\bplaces?\b", "call site"),
    (r"\b(is|are|was|were) away\b", "unreachable"),
    (r"\bcounts? more than\b", "overrides"),
    (r"\bbelongs? (in|into)\b", "put it in"),
    (r"\b(whoever|nobody|whatever|how manieth)\b", "name the actor"),
    (r"\bplays? no part\b|\bof what is asked for\b", "matches"),
    (r"(?-i:(?:^|[.:;] )(Of|Who) (?![^.]*\?))", "start with the subject"),
    (r"(?-i:(?:^|[.:;] )What (?![^.]*\?))", "start with the subject"),
)
PATTERNS = [(re.compile(pattern, re.I), better) for pattern, better in RULES]

# Texts of others, and words with another meaning: these are left out before the rules are applied.
ALLOWED = re.compile("|".join((
    r"\bin place\b|\bput in place\b",   # of wrappers and of operators that change their input
    r"\bbegin\(\)",                     # the name of a function
    r"\bBEGIN IMMEDIATE\b|^(SELECT|INSERT|DELETE)\b.*",  # SQL
    r"\bpool, place (and|or) owner\b|\bplace TEXT\b",   # words of a file of budgets
    r"\$\{[^}]*\}",                     # code in a template of JavaScript
    r"^further places$",                 # a value in stores
    r"^list place$",                     # a class of the style sheet
    r"^try:\\n.*",                      # code in Python (src/collector/python/boot.c)
)))

# Folders whose texts are being rewritten.
UNFINISHED = ("src/sink/", "src/findings/", "src/analysis/", "src/twin/")

C_TEXT = re.compile(r"""/\*.*?\*/|//[^\n]*|'(?:\\.|[^'\\\n])+'|((?:"(?:\\.|[^"\\\n])*"\s*)+)""", re.S)
JS_TEXT = re.compile(r"""/\*.*?\*/|(?<![:\w])//[^\n]*|"((?:\\.|[^"\\\n])*)"|'((?:\\.|[^'\\\n])*)'|`((?:\\.|[^`\\])*)`""", re.S)


def line_of(text, offset):
    return text.count("\n", 0, offset) + 1


def c_texts(source):
    """(line, text, pieces) of each string literal.

    >>> c_texts('a("x y"\\n  " z"); /* "no" */ b(\\'"\\', "w")')
    [(1, 'x y z', ['x y', ' z']), (2, 'w', ['w'])]
    """
    found = []
    for match in C_TEXT.finditer(source):
        if match[1] is not None:
            pieces = re.findall(r'"((?:\\.|[^"\\\n])*)"', match[1])
            found.append((line_of(source, match.start()), "".join(pieces), pieces))
    return found


def js_texts(source):
    return [(line_of(source, match.start()), next(filter(None, match.groups())), [])
            for match in JS_TEXT.finditer(source) if any(match.groups())]


def html_texts(source):
    """Texts between tags, and titles.

    >>> html_texts('<p title="a b">c <b>d</b></p><script>e f</script>')
    [(1, 'c ', []), (1, 'd', []), (1, 'a b', [])]
    """
    bare = re.sub(r"<(script|style)\b.*?</\1>", lambda match: "\n" * match[0].count("\n"), source, flags=re.S)
    found = [(line_of(bare, match.start()), match[1], []) for match in re.finditer(r">([^<]*[^<\s][^<]*)<", bare)]
    return found + [(line_of(bare, match.start()), match[1], []) for match in re.finditer(r'title="([^"]*)"', bare)]


def python_texts(source, documentation=True):
    """Strings of a module, with or without its documentation; the constant parts of an f-string.

    >>> python_texts('"one two"\\nraise E(f"a {b} c")')
    [(1, 'one two', []), (2, 'a _ c', [])]
    >>> python_texts('"one two"\\nraise E("d e")', documentation=False)
    [(2, 'd e', [])]
    """
    found, inner = [], set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and not documentation:
            inner.add(id(node.value))
        if isinstance(node, ast.JoinedStr):
            inner.update(map(id, node.values))
            found.append((node.lineno, "".join(part.value if isinstance(part, ast.Constant) else "_" for part in node.values), []))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in inner:
            found.append((node.lineno, node.value, []))
    return found


def markdown_texts(source):
    """Paragraphs without code and without the addresses of links.

    >>> markdown_texts('a `b c` d\\n```\\ne f\\n```\\n[g](h/i.md)')
    [(1, 'a  d', []), (5, '[g]', [])]
    """
    bare = re.sub(r"^```.*?^```", lambda match: "\n" * match[0].count("\n"), source, flags=re.S | re.M)
    bare = re.sub(r"`[^`\n]*`|(?<=\])\([^)\s]*\)|<!--.*?-->", "", bare)
    return [(number, line, []) for number, line in enumerate(bare.split("\n"), 1) if line.strip()]


def findings(texts):
    """One line for each habit in these texts.

    >>> findings([(1, "That is no file.", []), (2, "place", []), (3, "the place of it", [])])
    ['1: "is no": write "is not a"', '3: "place": write "call site"']
    >>> findings([(4, "one two", ["one ", "two"])]), findings([(4, "one two", ["one\\\\n", "two"])])
    (['4: a sentence in pieces: "one two"'], [])
    """
    found = []
    for line, text, pieces in texts:
        if " " not in text.strip():
            continue
        text = ALLOWED.sub("", text)
        for pattern, better in PATTERNS:
            found += [f'{line}: "{match[0].strip()}": write "{better}"' for match in pattern.finditer(text)]
        if any(not re.search(r"(\\n|[.!?] ?)$", piece) for piece in pieces[:-1]):
            found.append(f'{line}: a sentence in pieces: "{text[:60]}"')
    return found


def reader_of(name):
    """What finds the texts of a file that people read; None of others."""
    if name.startswith(("src/", "tools/", "include/", "examples/")) and name.endswith((".c", ".h", ".def")):
        return c_texts
    if name.startswith("src/viewer/web/"):
        return html_texts if name.endswith(".html") else js_texts if name.endswith(".js") else None
    if name.startswith("python/") and name.endswith((".py", ".pyi")):
        private = name.split("/")[-1].startswith("_") and "__init__" not in name
        return functools.partial(python_texts, documentation=not private)
    if name.endswith(".md") and not name.startswith("docs/decisions/") and (name.startswith("docs/") or "/" not in name):
        return markdown_texts
    return None


def check(_dists):
    failures, count = [], 0
    for name in lint.tree_files():
        reader = reader_of(name)
        if reader is None or name.startswith(UNFINISHED):
            continue
        texts = reader(lint.read(name))
        count += len(texts)
        failures += [f"{name}:{line}" for line in findings(texts)]
    return count, failures


if __name__ == "__main__":
    lint.main(check)
