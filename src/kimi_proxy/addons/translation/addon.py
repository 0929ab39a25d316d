"""Translation, for providers that speak another API than the client."""

from kimi_proxy.addons.translation.settings import TranslationSettings
from kimi_proxy.addons.translation.translator import Translator
from kimi_proxy.api.addon import Addon
from kimi_proxy.services.chat.forms import TRANSLATED

ADDON = Addon("translation", TranslationSettings, forms={TRANSLATED: Translator})
