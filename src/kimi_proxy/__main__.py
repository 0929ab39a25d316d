"""`python -m kimi_proxy` is the same as `kimi-proxy`."""

import sys

from kimi_proxy import quick


def main() -> None:
    """Run a command, by a server that runs where that is enough."""
    code = quick.answer(sys.argv[1:])
    if code is None:
        from kimi_proxy.cli import main as run

        run()
    else:
        sys.exit(code)


if __name__ == "__main__":
    main()
