"""What a table of the settings is, in the core and in an addon."""

from typing import ClassVar

from pydantic import BaseModel, ConfigDict


class SettingsSection(BaseModel):
    """A frozen group of settings; an unknown key is an error."""

    # An input may be an address with a password: no error repeats it.
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, hide_input_in_errors=True)


class AddonSettings(SettingsSection):
    """An addon's settings, and what loads the rest of it: a switch among them, or the first request that needs it."""

    TABLE: ClassVar[str] = ""  # in config.toml; "" for an addon without settings
    PATHS: ClassVar[tuple[str, ...]] = ()  # how the paths of its routes begin
    FORMS: ClassVar[tuple[str, ...]] = ()  # how the paths of the core begin that it reads in another form
    PROVIDERS: ClassVar[tuple[str, ...]] = ()  # the types of providers that it asks in another form
    LISTS: ClassVar[tuple[str, ...]] = ()  # of names in its table, which people may change while the server runs
    NOTES: ClassVar[tuple[str, ...]] = ()  # what its stage has noted of conversations, and has to repeat

    @property
    def is_on(self) -> bool:
        """Whether the addon is part of every start."""
        return False
