# SPDX-License-Identifier: Apache-2.0
"""Files and functions of src stay small enough to be read: at most 1,000 lines a file, 80 lines a function, and a cyclomatic
complexity of 25."""
import re

import lint

FILE_LINES = 1000
FUNCTION_LINES = 80
COMPLEXITY = 25

# What adds a way through a function.
BRANCHES = {"if", "for", "while", "case", "&&", "||", "?"}
# One token, or what is not looked at: comments, preprocessor lines with their continuations, texts and characters.
TOKEN = re.compile(r"""
    (?P<skipped> /\*.*?\*/ | //[^\n]* | ^[ \t]*\#(?:\\\n|/\*.*?\*/|[^\n])* | "(?:\\.|[^"\\])*" | '(?:\\.|[^'\\])*' )
  | (?P<token> \w+ | && | \|\| | [^\s\w] )""", re.X | re.S | re.M)


def tokens(text):
    """(line, token) of C source.

    >>> list(tokens('a /* if\\n */ && "x{" + \\'{\\'; // b\\n#define C \\\\\\n  {\\nd'))
    [(1, 'a'), (2, '&&'), (2, '+'), (2, ';'), (5, 'd')]
    """
    line, at = 1, 0
    for found in TOKEN.finditer(text):
        line += text.count("\n", at, found.start())
        at = found.start()
        if found["token"]:
            yield line, found["token"]


def name_of(head):
    """Name of the function whose definition begins with these tokens; None when they begin something else.

    >>> name_of("static int f ( void ( * g ) ( int ) )".split()), name_of("struct s".split()), name_of("int a [ ] =".split())
    ('f', None, None)
    """
    if not head or head[-1] != ")" or "=" in head:
        return None
    depth = 0
    for place in range(len(head) - 1, 0, -1):
        depth += (head[place] == ")") - (head[place] == "(")
        if depth == 0:
            return head[place - 1]
    return None


def functions(text):
    """(name, first line, last line, complexity) of each function that is defined. Bodies that macros make are not seen.

    >>> list(functions("struct s { int a; };\\nint a[] = { 1 };\\nint f(int x)\\n{\\n\\tif (x && x > 1)\\n\\t\\treturn x ? 1 : 2;\\n"
    ...                "\\tswitch (x) { case 1: while (x) {} default: ; }\\n}\\nvoid g(void) {}\\n"))
    [('f', 3, 8, 6), ('g', 9, 9, 1)]
    """
    head, first, depth, complexity, name = [], 0, 0, 1, None
    for line, token in tokens(text):
        if depth == 0 and token == "{":
            name, complexity = name_of(head), 1
        if token == "{":
            depth += 1
        elif token == "}":
            depth -= 1
            if depth == 0 and name:
                yield name, first, line, complexity
            if depth == 0:
                head, name = [], None
        elif depth > 0:
            complexity += token in BRANCHES
        elif token == ";":
            head = []
        else:
            first = line if not head else first
            head.append(token)


def problems(name, text):
    """Failures in one file.

    >>> problems("src/a.c", "int f(void)\\n{\\n\\treturn 0;\\n}\\n")
    []
    >>> problems("src/a.c", "int f(void)\\n{\\n" + "\\tg();\\n" * 78 + "}\\n")
    ['src/a.c:1: f() has 81 lines, at most 80']
    >>> problems("src/a.c", "int f(void)\\n{\\n\\treturn " + " && ".join("a" * 26) + ";\\n}\\n")
    ['src/a.c:1: f() has complexity 26, at most 25']
    >>> problems("src/a.def", "\\n" * 1001)
    ['src/a.def: 1001 lines, at most 1000']

    Both sides of an #if are read, so each has to hold whole blocks.

    >>> problems("src/a.c", "int f(int a)\\n#if X\\n{\\n#else\\n{ a++;\\n#endif\\n}\\n")
    ['src/a.c: braces do not balance; functions cannot be told apart']
    """
    lines = text.count("\n")
    failures = [f"{name}: {lines} lines, at most {FILE_LINES}"] if lines > FILE_LINES else []
    if name.endswith(lint.C_SUFFIXES):
        braces = [token for _, token in tokens(text) if token in "{}"]
        if braces.count("{") != braces.count("}"):
            failures.append(f"{name}: braces do not balance; functions cannot be told apart")
        for function, first, last, complexity in functions(text):
            if last - first + 1 > FUNCTION_LINES:
                failures.append(f"{name}:{first}: {function}() has {last - first + 1} lines, at most {FUNCTION_LINES}")
            if complexity > COMPLEXITY:
                failures.append(f"{name}:{first}: {function}() has complexity {complexity}, at most {COMPLEXITY}")
    return failures


def check(_dists):
    names = lint.source_files()
    return len(names), [line for name in names for line in problems(name, lint.read(name))]


if __name__ == "__main__":
    lint.main(check)
