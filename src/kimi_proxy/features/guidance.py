"""What agents are told about the tools in the file of their instructions. It costs tokens on every turn."""

TEXT = """\
## Reading with the `pruner` tools

`read`, `grep` and `bash` of the MCP server `pruner` take `context_focus_question` and then print only the lines that
matter for it. Prefer them for long files, logs and test runs.

1. Locate with `grep`, then `read` around the hit, or the whole file with a question.
2. Ask one full question that stands by itself and names what it is about: "How does Session.refresh decide that a token
   has expired?", not "token expiry".
3. `⟦PRUNÉ: prune_id=… lignes 40-90 …⟧` stands for lines that were left out, not lost. When you need them, call
   `recover_text` with that prune_id and those lines; don't read the file again.
4. Before an edit, see the exact lines. Never write a marker into a file.
5. When every line counts, ask no question: the output is whole.
"""
