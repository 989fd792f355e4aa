# SPDX-License-Identifier: Apache-2.0
"""What is entered and left: a context manager that is a decorator, too."""
from __future__ import annotations

import functools
from typing import Any, Callable, TypeVar

_GENERATOR, _COROUTINE, _ASYNC_GENERATOR = 0x20, 0x80, 0x200  # co_flags of functions

_Function = TypeVar("_Function", bound=Callable[..., Any])


class Scope:
    """As a decorator, it is entered for each call of the function; a coroutine or generator runs when it is driven, not when it is
    made."""

    def __enter__(self) -> Any:
        raise NotImplementedError

    def __exit__(self, *_raised: object) -> Any:
        raise NotImplementedError

    def __call__(self, function: _Function) -> _Function:
        flags = getattr(getattr(function, "__code__", None), "co_flags", 0)
        if flags & _COROUTINE:
            @functools.wraps(function)
            async def wrapper(*arguments, **named):
                with self:
                    return await function(*arguments, **named)
        elif flags & _ASYNC_GENERATOR:
            @functools.wraps(function)
            async def wrapper(*arguments, **named):
                with self:
                    async for value in function(*arguments, **named):
                        yield value
        elif flags & _GENERATOR:
            @functools.wraps(function)
            def wrapper(*arguments, **named):
                with self:
                    return (yield from function(*arguments, **named))
        else:
            @functools.wraps(function)
            def wrapper(*arguments, **named):
                with self:
                    return function(*arguments, **named)
        return wrapper  # type: ignore[return-value]
