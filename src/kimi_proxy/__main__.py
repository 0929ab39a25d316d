"""`python -m kimi_proxy` is the same as `kimi-proxy`."""

import sys


def main() -> None:
    """Run a command, by a server that runs where that is enough."""
    code = answer(sys.argv[1:])
    if code is None:
        from kimi_proxy.cli import main as run

        run()
    else:
        sys.exit(code)


def answer(arguments: list[str]) -> int | None:
    """Return the exit code if no command line is needed for the answer, else None."""
    if arguments == ["statusline"]:
        from kimi_proxy import running

        try:
            return running.statusline()
        except (OSError, ValueError, KeyError, TypeError):
            return None  # the command line knows other places to look for the server
    from kimi_proxy import quick

    return quick.answer(arguments)


if __name__ == "__main__":
    main()
