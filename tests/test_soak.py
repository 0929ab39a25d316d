"""An hour of mixed traffic, in a deep run: caches fill and memory levels off, nothing else grows, nothing fails."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

SOAK = Path(__file__).parents[1] / "scripts" / "benchmarks" / "soak.py"


@pytest.mark.timeout(4000)
@pytest.mark.skipif("KIMI_PROXY_DEEP" not in os.environ, reason="takes an hour: ./test.sh --deep")
def test_memory_levels_off_in_an_hour_of_mixed_traffic():
    done = subprocess.run([sys.executable, str(SOAK), "60"], capture_output=True, text=True, timeout=3900, check=False)

    assert done.returncode == 0, done.stdout + done.stderr
