"""What of a conversation is long-term memory: it is weighed apart, and never compressed away."""

from kimi_proxy.features.memory.patterns import KINDS, Segment, segments
from kimi_proxy.features.memory.weight import Found, Portion, portion, together

__all__ = ["KINDS", "Found", "Portion", "Segment", "portion", "segments", "together"]
