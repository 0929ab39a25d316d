"""The pruner on standard input and output, as `kimi-proxy pruner --stdio` runs it."""

import sys

from kimi_proxy.__main__ import main

sys.argv[1:] = ["pruner", "--stdio"]
main()
