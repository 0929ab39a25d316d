"""What the tests of plans share with others."""

import base64
import json

from kimi_proxy.core.json import JsonObject


def jwt(claims: JsonObject) -> str:
    def part(value: JsonObject) -> str:
        return base64.urlsafe_b64encode(json.dumps(value).encode()).rstrip(b"=").decode()

    return f"{part({'alg': 'none', 'typ': 'JWT'})}.{part(claims)}.c2lnbmVk"


LOGIN = jwt({"https://api.openai.com/auth": {"chatgpt_account_id": "acc_1"}})
