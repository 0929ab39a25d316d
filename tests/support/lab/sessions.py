"""Sessions of Claude Code as it stores them."""

import json
from pathlib import Path


def python_file(functions: int) -> str:
    return "\n".join(
        f"def handler_{at}(request: Request) -> Response:\n    return answer_{at}(request.path, {at})\n"
        for at in range(functions)
    )


NUMBERED = "\n".join(f"{at:6d}→{line}" for at, line in enumerate(python_file(400).split("\n"), 1))


def claude_session(
    folder: Path,
    name: str,
    turns: int = 8,
    used: str = "",
    thinking: int = 0,
    grown: int = 14_000,
    tool: str = "Read",
) -> Path:
    """Write a session of Claude Code that reads a long file, pauses for ten minutes and goes on.

    The file has about 16,000 tokens, of which the provider counts what `grown` says. With `thinking`, so many tokens of
    it stay in the prompt after each answer, and the user speaks twice more.
    """
    folder.mkdir(parents=True, exist_ok=True)
    prompt, lines = 20_000, []
    for at in range(turns):
        minute = at if at < 5 else at + 10
        about = {"sessionId": name, "timestamp": f"2026-02-03T03:{minute:02d}:00Z", "isSidechain": False}
        content: object = "explain the file"
        if at:
            text = NUMBERED if at == 1 else f"result {at} " * 30
            content = [{"type": "tool_result", "tool_use_id": f"c{at - 1}", "content": text}]
        if thinking and at in (2, 5):
            content = [*content, {"type": "text", "text": "go on"}]
        lines.append({**about, "type": "user", "message": {"role": "user", "content": content}})
        read = prompt if at and at != 5 else 0
        prompt += (grown if at == 1 else 150) + (thinking if at else 0)
        output = 50 + thinking
        usage = {"cache_read_input_tokens": read, "cache_creation_input_tokens": prompt - read, "output_tokens": output}
        said = {"type": "text", "text": used if used and at == turns - 1 else f"answer {at}"}
        call = {"type": "tool_use", "id": f"c{at}", "name": tool, "input": {"file_path": f"a{at}.py"}}
        message = {"id": f"{name}{at}", "model": "claude-sonnet-4-5", "usage": usage, "content": [said, call]}
        lines.append({**about, "type": "assistant", "message": message})
    file = folder / f"{name}.jsonl"
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return file


def with_fields(file: Path, **fields: object) -> None:
    lines = [json.loads(line) | fields for line in file.read_text().splitlines()]
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
