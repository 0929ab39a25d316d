"""Five minutes of mixed traffic, in a deep run: nothing grows, nothing fails."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

SOAK = Path(__file__).parents[1] / "scripts" / "benchmarks" / "soak.py"


@pytest.mark.skipif("KIMI_PROXY_DEEP" not in os.environ, reason="takes five minutes: ./test.sh --deep")
def test_nothing_grows_in_five_minutes_of_mixed_traffic():
    done = subprocess.run([sys.executable, str(SOAK), "5"], capture_output=True, text=True, timeout=590, check=False)

    assert done.returncode == 0, done.stdout + done.stderr
