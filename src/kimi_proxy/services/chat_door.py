"""The door of the chat APIs: everything that a chat request meets, built in one place."""

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kimi_proxy.core.config import Config
from kimi_proxy.features.compression.preset import presets
from kimi_proxy.features.models import Models
from kimi_proxy.features.pipeline import Step
from kimi_proxy.services.auto_compression import AutoCompression
from kimi_proxy.services.chat import Chat
from kimi_proxy.services.compressions import Compressions
from kimi_proxy.services.compressor import Compressor
from kimi_proxy.services.counting import Counting
from kimi_proxy.services.decisions import Decisions
from kimi_proxy.services.gateway import reachable
from kimi_proxy.services.hub import Hub
from kimi_proxy.services.journal import Journal
from kimi_proxy.services.latest import Latest
from kimi_proxy.services.log_watcher import LogWatcher
from kimi_proxy.services.metrics import Metrics
from kimi_proxy.services.project_memory import ProjectMemory
from kimi_proxy.services.recall import Recall
from kimi_proxy.services.recorder import Recorder
from kimi_proxy.services.reinjection import Reinjection
from kimi_proxy.services.routing import Routing
from kimi_proxy.services.sanitizer import Sanitizer
from kimi_proxy.services.scale import Scale
from kimi_proxy.services.sessions import Sessions
from kimi_proxy.services.settings import Service
from kimi_proxy.services.store.sqlite import SqliteStore
from kimi_proxy.services.summaries import Summaries
from kimi_proxy.services.turns import Turns
from kimi_proxy.services.witnesses import together
from kimi_proxy.services.workers import Workers

if TYPE_CHECKING:
    from kimi_proxy.proxy.upstream import Upstreams

REMEMBER_S = 60.0  # what was decided about outputs is looked up so often


@dataclass(frozen=True, slots=True)
class ChatDoor:
    chat: Chat
    steps: Sequence[Step]
    sanitizer: Sanitizer
    sessions: Sessions
    latest: Latest
    compressions: Compressions
    memory: ProjectMemory
    switches: Mapping[str, Service]  # what may be switched while it runs, by its name in the file


@asynccontextmanager
async def chat_door(
    config: Config, store: SqliteStore, workers: Workers, metrics: Metrics, hub: Hub
) -> AsyncIterator[ChatDoor]:
    async with AsyncExitStack() as alive:
        upstreams, turns = await _upstreams(config, alive), Turns(config.providers)
        counting = Counting()
        alive.callback(counting.close)
        decisions = Decisions(store, store.pinboard, min(REMEMBER_S, config.mcp_pruner.prune_id_ttl_s / 10))
        summaries = Summaries(upstreams, turns, metrics, config.compression.summary_timeout_s)
        usual, light = presets(config.compression, config.compaction)
        models = Models(config.providers, config.models)

        # What may change a request on its way, in this order.
        memory = ProjectMemory(config.home, config.memory, store.pinboard, store.ledger)
        sanitizer = Sanitizer(config.sanitizer, _address(config), decisions, workers, metrics)
        compressor = Compressor(
            *(config.models, counting, store, store.compressions, summaries),
            *(config.sanitizer.recover_tool, hub.publish),
            owed=decisions.owed,
        )
        automatic = AutoCompression(config.compression, usual, compressor, store.ledger)
        reinjection = Reinjection(config.reinjection, models, counting)
        routing = Routing(config.sanitizer.routing, models, counting, store.pinboard, Scale(store.ledger))
        steps = (memory, sanitizer, compressor, automatic, reinjection, routing)

        # Who looks on while it passes.
        journal = Journal(store.ledger, config.models, counting, metrics, hub.publish)
        alive.push_async_callback(journal.close)
        logs = LogWatcher(config.log_watcher, hub.publish)
        alive.push_async_callback(logs.close)
        recorder = Recorder(config.record, config.home, config.models)
        alive.push_async_callback(recorder.close)
        latest = Latest(counting, compressor.window_of)
        began = together(journal.began, logs.began, latest.began, recorder.began)

        recall = Recall(store, decisions, metrics, config.sanitizer.recover_rounds)
        sessions = Sessions(store.ledger, journal, (compressor.forget, latest.forget), logged=logs.beats)
        yield ChatDoor(
            chat=Chat(config, upstreams, metrics, began, steps=steps, recall=recall, turns=turns),
            steps=steps,
            sanitizer=sanitizer,
            sessions=sessions,
            latest=latest,
            compressions=Compressions(compressor, sessions, store.ledger, usual, light),
            memory=memory,
            switches={
                "sanitizer.enabled": sanitizer,
                "sanitizer.routing.heavy_duty_fallback": routing,
                "memory.inject": memory,
                "reinjection.enabled": reinjection,
                "compression.automatic": automatic,
            },
        )


def _address(config: Config) -> str:
    """Where people find the proxy."""
    return f"http://{reachable(config.proxy.host)}:{config.proxy.port}"


async def _upstreams(config: Config, alive: AsyncExitStack) -> "Upstreams | None":
    if not any(provider.enabled for provider in config.providers.values()):
        return None
    # Only who has a provider pays the third of a second that its client takes to load.
    from kimi_proxy.proxy.upstream import Upstreams

    upstreams = Upstreams(config.providers, config.provider_keys, config.token)
    alive.push_async_callback(upstreams.close)
    return upstreams
