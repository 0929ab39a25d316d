"""The tools that agents have beside their shell, by which they read, search, edit and write."""

import json
from pathlib import Path

from tests.clients.programs.job import Asked, Edit, OwnTools, Read, Search, Step, Write


def file_tools(
    read: str,
    search: str,
    edit: str,
    write: str,
    path: str = "file_path",
    words: tuple[str, str] = ("old_string", "new_string"),
) -> OwnTools:
    """Return the tools of an agent that differ from others' in their names and what they call a path.

    Without `search` it has none.
    """
    old, new = words

    def tool(step: Step, folder: Path) -> Asked | None:
        match step:
            case Read(name):
                return read, {path: str(folder / name)}
            case Search(pattern) if search:
                return search, {"pattern": pattern}
            case Edit(name, before, after):
                return edit, {path: str(folder / name), old: before, new: after}
            case Write(name, text):
                return write, {path: str(folder / name), "content": text}
            case _:
                return None

    return tool


def continue_tool(step: Step, folder: Path) -> Asked | None:
    match step:
        case Read(name):
            return "Read", {"filepath": str(folder / name)}
        case Edit(name, before, after):
            return "MultiEdit", {
                "file_path": str(folder / name),
                "edits": [{"old_string": before, "new_string": after}],
            }
        case Write(name, text):
            return "Write", {"filepath": str(folder / name), "content": text}
        case _:
            return None


def cline_tool(step: Step, folder: Path) -> Asked | None:
    match step:
        case Read(name):
            return "read_files", {"files": [{"path": str(folder / name)}]}
        case Search(pattern):
            return "search_codebase", {"queries": [pattern]}
        case Edit(name, before, after):
            return "editor", {"path": str(folder / name), "old_text": before, "new_text": after}
        case Write(name, text):
            return "editor", {"path": str(folder / name), "new_text": text}
        case _:
            return None


def gemini_tool(step: Step, folder: Path) -> Asked | None:
    files = file_tools("read_file", "grep_search", "replace", "write_file")
    match files(step, folder):
        case ("replace", dict(given)):
            return "replace", {**given, "instruction": "Add the tax."}
        case asked:
            return asked


def copilot_tool(step: Step, folder: Path) -> Asked | None:
    if isinstance(step, Write):
        return "create", {"path": str(folder / step.path), "file_text": step.text}
    return file_tools("view", "grep", "edit", "create", "path", ("old_str", "new_str"))(step, folder)


def pi_tool(step: Step, folder: Path) -> Asked | None:
    if isinstance(step, Edit):
        return "edit", {"path": str(folder / step.path), "edits": [{"oldText": step.old, "newText": step.new}]}
    return file_tools("read", "", "edit", "write", "path")(step, folder)


def patch(step: Step, folder: Path) -> Asked | None:
    """Codex reads with its shell, and writes patches."""
    match step:
        case Edit(name, before, after):
            change = f"Update File: {name}\n@@\n-{before}\n+{after}"
        case Write(name, text):
            change = f"Add File: {name}\n" + "\n".join(f"+{line}" for line in text.splitlines())
        case _:
            return None
    return "apply_patch", f"*** Begin Patch\n*** {change}\n*** End Patch"


def patch_script(step: Step, folder: Path) -> Asked | None:
    asked = patch(step, folder)
    return asked and ("exec", f"text(await tools.apply_patch({json.dumps(asked[1])}));")


CLAUDE_TOOLS = file_tools("Read", "", "Edit", "Write")
