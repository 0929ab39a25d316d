"""What a request comes to: its tokens, its share of the context window, its price."""

from dataclasses import dataclass, field, replace

from kimi_proxy.core.chat.seen import Seen
from kimi_proxy.core.chat.usage import Usage
from kimi_proxy.core.providers import Model
from kimi_proxy.features.accounting.account import Account, Recalled
from kimi_proxy.features.context import Context
from kimi_proxy.features.pricing import prices_of

# Shares of the window at which whoever watches is told, highest first.
LEVELS = ((95.0, "critical"), (90.0, "warning"), (80.0, "caution"))


@dataclass(frozen=True, slots=True)
class Metric:
    """One request. Its tokens are estimated until the provider has counted them."""

    id: str
    session: str
    at: float  # seconds of wall time
    provider: str
    model: str
    api: str
    tokens_estimated: int  # of the request as it left
    tokens_saved: int  # estimated too: what it had more as it came; less than 0 if we added to it
    reasons: tuple[str, ...]  # why nothing was saved
    max_context: int | None  # of the model; None if the settings do not know it
    status: int = 0  # the provider's; 0 until there is one
    outcome: str = "running"  # then ok, client_gone, or the code of an error
    finish: str = ""  # why the answer ended, in the provider's word
    input_tokens: int | None = None  # from here on as the provider counts; cached ones are among them
    cached_tokens: int | None = None
    output_tokens: int | None = None
    cost_usd: float | None = None  # None if the settings know no price
    first_token_ms: int | None = None
    duration_ms: int | None = None
    context: Context | None = None  # what it is made of; None if nobody looked
    account: Account | None = None  # what it saved after all; None until its answer is over, and if there was none

    @property
    def tokens(self) -> int:
        """What fills the window. A provider that was asked again for the same answer has counted every turn."""
        turns = 1 + (self.account.extra_turns if self.account else 0)
        return self.tokens_estimated if self.input_tokens is None else self.input_tokens // turns

    @property
    def percent(self) -> float | None:
        return percent(self.tokens, self.max_context)

    @property
    def counted_by(self) -> str:
        return "estimate" if self.input_tokens is None else "provider"


@dataclass(frozen=True, slots=True)
class Ending:
    """How an answer ended."""

    status: int
    outcome: str
    seen: Seen
    first_byte_s: float | None
    elapsed_s: float
    recalled: Recalled = field(default_factory=Recalled)

    @property
    def counted(self) -> Usage | None:
        """The provider's count, if it is one."""
        usage = self.seen.usage
        return usage if usage is not None and usage.input_tokens else None


def ended(metric: Metric, ending: Ending, model: Model | None) -> Metric:
    """`metric` with all that is known once the answer is over."""
    counted = ending.counted
    return replace(
        metric,
        status=ending.status,
        outcome=ending.outcome,
        finish=ending.seen.finish[:40],
        input_tokens=counted.input_tokens if counted else None,
        cached_tokens=counted.cached_tokens if counted else None,
        output_tokens=counted.output_tokens if counted else None,
        cost_usd=cost_usd(counted, model),
        first_token_ms=None if ending.first_byte_s is None else _ms(ending.first_byte_s),
        duration_ms=_ms(ending.elapsed_s),
    )


def percent(tokens: int, max_context: int | None) -> float | None:
    return None if max_context is None else round(tokens * 100 / max_context, 2)


def level(share: float | None) -> str:
    """How near the end of the window is: ok, caution, warning, critical, or unknown."""
    if share is None:
        return "unknown"
    return next((name for bound, name in LEVELS if share >= bound), "ok")


def is_worse(level: str, than: str) -> bool:
    """Whether a session has come nearer to the end of its window."""
    names = [name for _, name in LEVELS]
    return level in names and (than not in names or names.index(level) < names.index(than))


def cost_usd(usage: Usage | None, model: Model | None) -> float | None:
    """By the price table of the settings; without one, or without the provider's count, nobody knows."""
    prices = prices_of(model)
    return None if usage is None or prices is None else prices.cost_usd(usage)


def _ms(seconds: float) -> int:
    return round(seconds * 1000)
