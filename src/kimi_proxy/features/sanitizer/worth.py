"""Whether a conversation's first cut is worth it: our tool joins with it, and what its provider had cached is lost."""

from kimi_proxy.core.chat import Request
from kimi_proxy.features.sanitizer import offer

BYTES_PER_TOKEN = 4  # about

# Tokens that may be sent again for one that is left out. Putting a token into Anthropic's cache costs 1.25 times the
# price of input, reading it there 0.1 times: after about twenty turns in which it is not read, one that is left out has
# paid for three (`kimi-proxy replay` tells what that comes to).
RESENT_PER_SAVED = 3


def resent_tokens(request: Request) -> int:
    """What the provider has cached, if it has: everything up to its last answer, which begins with the tools."""
    answered = [message.start for message in request.messages if message.role == "assistant"]
    return answered[-1] // BYTES_PER_TOKEN if answered else 0


def is_first_cut_worth(request: Request, saved_tokens: int, offers_tool: bool) -> bool:
    """Where no tool joins, nothing is lost."""
    if not offers_tool or not offer.may_join(request):
        return True
    return resent_tokens(request) <= RESENT_PER_SAVED * saved_tokens
