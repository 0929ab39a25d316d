"""Where a fault of ours becomes a text that goes out whole, with a code, a counter and a line in the log."""

import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeVar

from kimi_proxy.core.errors import StoreUnavailable, WarningCode, location
from kimi_proxy.core.json import JsonValue

Value = TypeVar("Value")

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class FailOpen:
    """Runs work that must not cost an answer: whatever it raises, the caller gets its fallback."""

    message: str  # in the log
    count: Callable[[str, WarningCode], None]  # by the step that failed, and why

    async def run(
        self, step: str, work: Awaitable[Value], fallback: Callable[[WarningCode], Value], **about: JsonValue
    ) -> Value:
        code: WarningCode
        try:
            return await work
        except TimeoutError:
            code, what = "timeout", "out of time"
        except StoreUnavailable as e:
            code = "recovery_unavailable"
            what = str(e)
        except ChildProcessError as e:
            code = "internal_error"
            what = str(e)
        except Exception as e:  # noqa: BLE001 - whatever broke, there is an answer to give
            code = "internal_error"
            what = location(e)
        self.count(step, code)
        log.warning(self.message, extra={"step": step, "code": code, "what": what[:300], **about})
        return fallback(code)
