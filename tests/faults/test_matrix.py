"""The matrix of faults: each cell has its test, and the page shows them all; `--deep` has faults meet at random."""

import ast
import asyncio
import os
import random
from itertools import chain
from pathlib import Path

import pytest
from tests.faults.matrix import matrix, page
from tests.support.api.proxy_world import proxy
from tests.support.evil import evil
from tests.support.faults.chat_client import PHASES, gone_at
from tests.support.faults.chat_upstream import BREAKS, GOOD, HEALTHY, ask, headers_then_silence, junk, sick, silence

ROOT = Path(__file__).parents[2]
ROUNDS = 20 if os.environ.get("KIMI_PROXY_DEEP") else 1


def test_each_cell_has_its_test():
    for cell in chain.from_iterable(matrix().values()):
        defined = {getattr(node, "name", "") for node in ast.walk(ast.parse((ROOT / cell.path).read_text()))}
        assert cell.test in defined, cell


def test_the_page_shows_the_matrix():
    assert page() in (ROOT / "docs" / "guarantees.md").read_text(), "write what python -m tests.faults.matrix prints"


@pytest.mark.parametrize("seed", range(ROUNDS))
async def test_faults_that_meet_harm_nobody_else(seed: int, tmp_path: Path):
    rng = random.Random(seed)
    scripts = [silence, headers_then_silence, junk, *BREAKS.values()]
    async with evil(sick(rng.choice(scripts))) as provider:
        toml = provider.toml(idle_timeout_s=10, first_token_timeout_s=10)
        async with proxy(tmp_path, toml) as p, asyncio.TaskGroup() as group:
            for _ in range(8):
                group.create_task(gone_at(p, rng.choice(PHASES)))
            for _ in range(4):
                response = await p.http.post("/v1/chat/completions", json=ask(False, HEALTHY))
                assert (response.status_code, response.content) == (200, GOOD)
