"""Equal questions that arrive while one of them is being answered share its answer."""

import asyncio
from collections.abc import Callable, Coroutine, Hashable
from typing import Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")


class InFlight(Generic[Key, Value]):
    def __init__(self) -> None:
        self._tasks: dict[Key, asyncio.Task[Value]] = {}
        self._callers: dict[asyncio.Task[Value], int] = {}

    async def share(self, key: Key, start: Callable[[], Coroutine[object, object, Value]]) -> Value:
        """The answer to `key`, by the work under way if there is one, else by `start`.

        A caller who gives up leaves the work to the others; the last one to give up ends it.
        """
        task = self._tasks.get(key) or self._begin(key, start)
        self._callers[task] += 1
        try:
            return await asyncio.shield(task)
        finally:
            self._callers[task] -= 1
            if self._callers[task] == 0:
                await self._end(key, task)

    def _begin(self, key: Key, start: Callable[[], Coroutine[object, object, Value]]) -> asyncio.Task[Value]:
        task = self._tasks[key] = asyncio.create_task(start())
        self._callers[task] = 0
        return task

    async def _end(self, key: Key, task: asyncio.Task[Value]) -> None:
        # Whoever asks from here on begins anew instead of joining work that is being cancelled.
        del self._tasks[key], self._callers[task]
        if not task.done():
            task.cancel()
            await asyncio.wait({task})
