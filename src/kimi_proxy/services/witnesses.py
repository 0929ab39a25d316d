"""Everybody who is told of each chat request, as one."""

from kimi_proxy.features.pipeline import Draft
from kimi_proxy.services.chat import Began, Ended
from kimi_proxy.services.relay import Exchange


def together(*witnesses: Began) -> Began:
    def began(came: Draft, leaves: Draft) -> Ended:
        told = [witness(came, leaves) for witness in witnesses]

        def ended(exchange: Exchange) -> None:
            for ended in told:
                ended(exchange)

        return ended

    return began
