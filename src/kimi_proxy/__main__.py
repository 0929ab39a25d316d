"""`python -m kimi_proxy` is the same as `kimi-proxy`."""

from kimi_proxy.cli import main

main()
