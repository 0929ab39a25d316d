"""A compression that was decided, done to a request."""

from dataclasses import replace

from kimi_proxy.core.chat import Request, edit
from kimi_proxy.features.compression.decided import Compression
from kimi_proxy.features.compression.history import History
from kimi_proxy.features.pipeline import Draft
from kimi_proxy.features.sanitizer import offer


def compressed(draft: Draft, compression: Compression, offers_tool: bool) -> Draft:
    """The draft with the summary in place of what it stands for, as long as the client tells the same history."""
    came = History(draft.came or draft.request)
    if len(came.messages) <= compression.cut or came.fingerprint(compression.cut) != compression.fingerprint:
        return replace(draft, reasons=(*draft.reasons, "history_changed"))
    request = with_summary(draft.request, compression.cut, compression.kept, compression.message)
    done = replace(draft, request=request, cut=compression, uncut=draft)
    if offers_tool and not draft.own_tool and offer.may_join(request):
        return replace(done, own_tool=offer.own_name(request), request=offer.joined(request))
    return done


def with_summary(request: Request, cut: int, kept: tuple[int, ...], message: str) -> Request:
    history = History(request)
    removed = {history.at[place] for place in range(cut) if place not in kept}
    return edit.with_summary(request, removed, history.at[cut], request.dialect.new_message("user", message))


def can_compress(request: Request) -> bool:
    """Not what the provider keeps for the client: only the end of it passes here."""
    return not request.is_continued
