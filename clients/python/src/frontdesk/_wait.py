"""Limits of time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import TypeVar

T = TypeVar("T")


async def within(limit_s: float | None, work: Awaitable[T]) -> T:
    """Raises asyncio.TimeoutError. Before Python 3.12 `asyncio.wait_for` drops a cancellation that comes together with the
    result, and what was to end goes on."""
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
