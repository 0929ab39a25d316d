"""Agents made of the real libraries, whose conversation grows with every turn until its window is full."""

from tests.clients import sdks

from kimi_proxy.core.chat import Wire

MODEL = "small"
RULES = "House rule: never touch the file vault.py, and answer in one sentence."
WORDS = 60  # of what a tool says


def result_of(call_id: str) -> str:
    return f"contents for {call_id}: " + f"line-{call_id} " * WORDS


class ChatAgent:
    """Chat completions. A turn is one question to the model, and what its tools say; it gives the answer's headers."""

    def __init__(self, address: str) -> None:
        self.sdk = sdks.openai.AsyncOpenAI(base_url=f"{address}/v1", api_key="x", timeout=60, max_retries=0)
        self.said: list[dict[str, object]] = [{"role": "system", "content": RULES}]

    async def turn(self, ask: str = "") -> dict[str, str]:
        if ask:
            self.said.append({"role": "user", "content": ask})
        tool = {"type": "function", "function": {"name": "read_file", "parameters": {"type": "object"}}}
        raw = await self.sdk.chat.completions.with_raw_response.create(model=MODEL, messages=self.said, tools=[tool])
        message = raw.parse().choices[0].message
        self.said.append(message.model_dump(exclude_none=True))
        for call in message.tool_calls or ():
            self.said.append({"role": "tool", "tool_call_id": call.id, "content": result_of(call.id)})
        return dict(raw.headers)


class MessagesAgent:
    """Anthropic's messages."""

    def __init__(self, address: str) -> None:
        self.sdk = sdks.anthropic.AsyncAnthropic(base_url=address, api_key="x", timeout=60, max_retries=0)
        self.said: list[dict[str, object]] = []

    async def turn(self, ask: str = "") -> dict[str, str]:
        if ask:
            self.said.append({"role": "user", "content": ask})
        tool = {"name": "read_file", "input_schema": {"type": "object"}}
        raw = await self.sdk.messages.with_raw_response.create(
            model=MODEL, max_tokens=100, system=RULES, messages=self.said, tools=[tool]
        )
        content = (await raw.parse()).content
        self.said.append({"role": "assistant", "content": [block.model_dump(exclude_none=True) for block in content]})
        calls = [block.id for block in content if block.type == "tool_use"]
        if calls:
            told = [{"type": "tool_result", "tool_use_id": id, "content": result_of(id)} for id in calls]
            self.said.append({"role": "user", "content": told})
        return dict(raw.headers)


class ResponsesAgent:
    """OpenAI's responses."""

    def __init__(self, address: str) -> None:
        self.sdk = sdks.openai.AsyncOpenAI(base_url=f"{address}/v1", api_key="x", timeout=60, max_retries=0)
        self.said: list[dict[str, object]] = []

    async def turn(self, ask: str = "") -> dict[str, str]:
        if ask:
            self.said.append({"role": "user", "content": ask})
        tool = {"type": "function", "name": "read_file", "parameters": {"type": "object"}, "strict": False}
        raw = await self.sdk.responses.with_raw_response.create(
            model=MODEL, instructions=RULES, input=self.said, tools=[tool], store=False
        )
        for item in raw.parse().output:
            self.said.append(item.model_dump(exclude_none=True))
            if item.type == "function_call":
                told = result_of(item.call_id)
                self.said.append({"type": "function_call_output", "call_id": item.call_id, "output": told})
        return dict(raw.headers)


Agent = ChatAgent | MessagesAgent | ResponsesAgent
AGENTS: dict[Wire, type[Agent]] = {
    Wire.CHAT: ChatAgent,
    Wire.MESSAGES: MessagesAgent,
    Wire.RESPONSES: ResponsesAgent,
}
