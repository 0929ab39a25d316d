"""The stages that every request needs, whatever else is switched on."""

from collections.abc import Mapping
from dataclasses import replace

from kimi_proxy.core.chat import edit
from kimi_proxy.core.providers import Provider
from kimi_proxy.features.pipeline import Draft, Stage


def name_model(draft: Draft) -> Draft:
    """Call the model what its provider calls it."""
    request = edit.with_model(draft.request, draft.target.model)
    return draft if request is draft.request else replace(draft, request=request)


def ask_usage(providers: Mapping[str, Provider]) -> Stage:
    def ask_usage(draft: Draft) -> Draft:
        """Let the provider count, and keep the count from a client that did not ask for it."""
        if not providers[draft.target.provider].include_usage:
            return draft
        request = edit.asking_usage(draft.request)
        return draft if request is draft.request else replace(draft, request=request, hides_usage=True)

    return ask_usage
