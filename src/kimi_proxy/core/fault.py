"""What may be told of an exception whose message may quote somebody's text."""

import traceback
from pathlib import Path


def place(fault: BaseException) -> str:
    """Its kind and where it arose: `KeyError at score.py:42`."""
    frames = traceback.extract_tb(fault.__traceback__)
    where = f" at {Path(frames[-1].filename).name}:{frames[-1].lineno}" if frames else ""
    return f"{type(fault).__name__}{where}"
