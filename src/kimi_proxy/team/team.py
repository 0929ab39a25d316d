"""Team mode: identity, ownership, budgets and the audit log."""

from collections.abc import Callable

from kimi_proxy.api.addon import PersonalFiles
from kimi_proxy.core.config import Config
from kimi_proxy.features.models import Models
from kimi_proxy.services.chat.memory import Memories
from kimi_proxy.services.events import Publish, no_op
from kimi_proxy.services.store.protocols import Store
from kimi_proxy.team.audit import AuditLog
from kimi_proxy.team.budgets import Budgets
from kimi_proxy.team.erasures import Erasures
from kimi_proxy.team.logins import Logins
from kimi_proxy.team.people import People
from kimi_proxy.team.person_data import PersonData
from kimi_proxy.team.shared_keys import SharedKeyGate
from kimi_proxy.team.tables import team_tables


class Team:
    """The people that share a server. What they do to texts that are kept is in the audit log."""

    def __init__(
        self,
        config: Config,
        store: Store,
        files: PersonalFiles,
        publish: Publish = no_op,
        models: Models | None = None,
        count_budget: Callable[[str, str], None] = lambda budget, outcome: None,
    ) -> None:
        settings = config.team
        self.audit = AuditLog(team_tables(store), settings.audit_days)
        self.shared_keys = SharedKeyGate(self.audit.add)
        self.people = People(team_tables(store), config.token, settings.share == "team")
        self.logins = (
            Logins(
                settings.oidc,
                config.oidc_client_secret,
                team_tables(store),
                self.people,
                self.audit,
                trusted_proxies=config.access.trusted_proxies,
            )
            if settings.oidc.issuer
            else None
        )
        self.budgets = Budgets(settings, team_tables(store), models or Models.of(config), publish, count=count_budget)
        self.erasures = Erasures(team_tables(store))
        memories = Memories(store.project_memory, config.home, config.memory.max_bytes)
        self.person_data = PersonData(store, self.people, self.audit, files, memories, config.home)
        store.audit_by(self.audit.add)

    async def close(self) -> None:
        await self.budgets.close()
        await self.audit.close()
