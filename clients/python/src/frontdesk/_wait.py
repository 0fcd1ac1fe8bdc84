"""Limits of time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import TypeVar

T = TypeVar("T")


async def within(limit_s: float | None, work: Awaitable[T]) -> T:
    """Raises asyncio.TimeoutError. Used instead of `asyncio.wait_for`, which before Python 3.12 loses a cancellation that
    arrives together with the result."""
    task = asyncio.ensure_future(work)
    try:
        await asyncio.wait({task}, timeout=limit_s)
        if task.done():
            return task.result()
        raise asyncio.TimeoutError
    finally:
        if not task.done():
            task.cancel()
            await asyncio.wait({task})
