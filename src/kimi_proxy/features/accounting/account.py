"""What a request saved, after everything that saving cost.

"Before" is the request as it came, sent to the same provider, with the cache hits that it would have had. From what it
has more than "after" we take the cache reads that were lost because we changed what the provider had cached, the turns
and tokens in which the model read something back, and the calls that asked for summaries. What is left is the net, and
it may be less than nothing.
"""

from dataclasses import dataclass, field, replace

from kimi_proxy.core.chat.usage import Usage
from kimi_proxy.features.pricing import Prices


@dataclass(frozen=True, slots=True)
class Sent:
    """What is known of a request when it leaves, in tokens of our own count."""

    before: int  # as it came
    after: int
    old_before: int = 0  # of these, what the model had read in an earlier request
    old_after: int = 0
    is_rewritten: bool = False  # we changed what the provider may have cached, for the first time
    recovered: int = 0  # texts in it that the client's own tools read back
    recoveries: int = 0  # how many of these are new
    summaries: int = 0
    summary: Usage = field(default_factory=Usage)  # what summaries cost that this request is the first to carry


@dataclass(frozen=True, slots=True)
class Recalled:
    """What the model read back within one answer."""

    calls: int = 0
    turns: int = 0  # times that the provider was asked again
    first: Usage | None = None  # of the first turn alone; the usage of the answer is that of all


@dataclass(frozen=True, slots=True)
class Account:
    tokens_before: int
    tokens_after: int  # of the request itself
    cache_lost_tokens: int = 0  # would have been read from the cache, and were paid for anew
    recoveries: int = 0
    extra_turns: int = 0  # beside the one that the client asked for, without summaries
    recovery_tokens: int = 0
    summaries: int = 0
    summary_tokens: int = 0
    net_saved_tokens: int = 0
    cost_before_usd: float | None = None  # None if the settings know no price, or the provider told no count
    net_saved_usd: float | None = None


@dataclass(frozen=True, slots=True)
class Bill:
    """What the answer cost: the provider's count of all turns, and prices of the model that was asked for and of the
    one that answered."""

    usage: Usage | None
    recalled: Recalled = field(default_factory=Recalled)
    prices_before: Prices | None = None
    prices: Prices | None = None
    caches: bool = True  # the provider is believed to have a cache


def account(sent: Sent, bill: Bill) -> Account:
    """Counted by the provider where it did; without its count ours has to do, and nobody knows of money."""
    counted = _Counted(sent, bill)
    asked = sent.summary.input_tokens + sent.summary.output_tokens
    spent = counted.recovered + counted.again
    told = Account(
        tokens_before=counted.before,
        tokens_after=counted.after,
        cache_lost_tokens=counted.lost,
        recoveries=sent.recoveries + bill.recalled.calls,
        extra_turns=bill.recalled.turns,
        recovery_tokens=spent,
        summaries=sent.summaries,
        summary_tokens=asked,
        net_saved_tokens=counted.before - counted.after - counted.lost - spent - asked,
    )
    if bill.usage is None or bill.prices_before is None or bill.prices is None:
        return told
    before = bill.prices_before.cost_usd(counted.usage_before)
    net = before - bill.prices.cost_usd(bill.usage) - bill.prices.cost_usd(sent.summary)
    return replace(told, cost_before_usd=before, net_saved_usd=round(net, 9))


def unanswered(sent: Sent, prices: Prices | None) -> Account:
    """Nobody pays for an answer that did not come, but for the summaries that the request carries."""
    asked = sent.summary.input_tokens + sent.summary.output_tokens
    told = Account(sent.after, sent.after, summaries=sent.summaries, summary_tokens=asked, net_saved_tokens=-asked)
    return told if prices is None else replace(told, net_saved_usd=-prices.cost_usd(sent.summary))


class _Counted:
    """The sides of an account, in the provider's tokens."""

    def __init__(self, sent: Sent, bill: Bill) -> None:
        self._bill = bill
        turns = bill.recalled.turns
        first = (bill.recalled.first if turns else None) or bill.usage or Usage(sent.after)
        scale = first.input_tokens / sent.after if sent.after else 1.0
        self._first = first
        self.after = first.input_tokens
        self.before = max(0, self.after + round((sent.before - sent.after) * scale))
        # Texts that were read back would not be there had nothing been cut; what others cut is none of our savings.
        self.recovered = round(min(sent.recovered, max(0, sent.before - sent.after)) * scale)
        self._old_before = max(0, round(sent.old_before * scale) - self.recovered)
        self._old_after = round(sent.old_after * scale)
        self._is_lost = sent.is_rewritten and bill.caches
        self._cached = min(first.cached_tokens, self.after)

    @property
    def lost(self) -> int:
        """Of what the provider could have had in its cache, what it read anew."""
        return max(0, min(self._old_after, self.after) - self._cached) if self._is_lost else 0

    @property
    def again(self) -> int:
        """What further turns read, and what the first one wrote to ask for them."""
        usage, first = self._bill.usage, self._first
        if not self._bill.recalled.turns or usage is None:
            return 0
        return max(0, usage.input_tokens - first.input_tokens) + first.output_tokens

    @property
    def usage_before(self) -> Usage:
        """Had nothing been done: one turn, with the hits that it would have had."""
        usage, first = self._bill.usage or Usage(), self._first
        would = self.before - self.recovered
        plain = max(0, self.after - self._cached - first.cache_write_tokens)
        written = max(0, would - self._hits - plain) if first.cache_write_tokens else 0
        output = usage.output_tokens - (first.output_tokens if self._bill.recalled.turns else 0)
        return Usage(would, max(0, output), self._hits, written)

    @property
    def _hits(self) -> int:
        """Where we broke the cache, all that is old. Where it hit, as much as it did and what was cut from what is old:
        that would have been read cheaply, so little is saved by cutting it. Where nothing hit, nothing would have."""
        would = self.before - self.recovered
        if self._is_lost:
            return min(would, max(self._cached, self._old_before))
        return min(would, self._cached + max(0, self._old_before - self._old_after)) if self._cached else 0
