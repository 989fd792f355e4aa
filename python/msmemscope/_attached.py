# SPDX-License-Identifier: Apache-2.0
"""What `msmemscope attach PID` makes a running Python program do (src/cli/python_attach.c): start(), with the options of the command.

The program's own standard error stays its own: what start() has to say goes to the file that the command reads, and what the engine says
to attach_PID.log in the results directory.
"""
from . import _values
from ._options import ALIASES, CONFIG, OPTIONS


def _arguments(words):
    """{argument of config(): text}. What is wrong is refused before the collector is loaded, so that another attach may follow."""
    arguments = {}
    for word in words:
        name, _, value = word[2:].partition("=")
        option = OPTIONS.get(ALIASES.get(name, name))
        if option is None or option.name not in CONFIG:
            raise ValueError(f"--{name} cannot be set for a program that is already running")
        try:
            _values.parse(option, value)
        except _values.Refused as refused:
            raise ValueError(f"--{name}: {refused}; allowed: {option.allowed}") from None
        arguments[name.replace("-", "_")] = value
    return arguments


def _start(arguments):
    from . import _control
    said, say = [], _control.say
    _control.say = lambda text, once=False: said.append(text)
    _control.attached = True
    try:
        _control.choose(arguments)
        _control.start()
    finally:
        _control.say = say
    if _control._native.collector is None or _control._recording() != _control.RECORDING_ON:
        return "; ".join(said) or "start() did not work"
    return "ok"


def start(words, answer):
    """Begins a window and writes "ok" into the file, or one line that says why there is none. Never raises."""
    try:
        text = _start(_arguments(words))
    except Exception as error:
        text = f"{error}"
    try:
        with open(answer, "w", encoding="utf-8") as file:
            file.write(text.replace("\n", " ") + "\n")
    except OSError:
        pass  # the command has not waited
