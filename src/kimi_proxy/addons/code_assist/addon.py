"""Gemini's API in an envelope, as Gemini CLI speaks it with a login of Google."""

from kimi_proxy.addons.code_assist.form import form_of
from kimi_proxy.addons.code_assist.providers import CodeAssistProviders
from kimi_proxy.addons.code_assist.settings import CodeAssistSettings
from kimi_proxy.api.addon import Addon
from kimi_proxy.core.config.providers import CODE_ASSIST

ADDON = Addon(
    "code_assist",
    CodeAssistSettings,
    forms={CODE_ASSIST: lambda providers: CodeAssistProviders()},
    client_form=form_of,
)
