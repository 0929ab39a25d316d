"""Why a request left as it came: the words that are noted, told and documented, and that the dashboard translates."""

from typing import Literal, NewType

OfRequest = Literal["nothing_to_do", "no_larger_model"]
OfOutput = Literal[
    "below_threshold",
    "unread",
    "recovered",
    "asked_again",
    "not_worth_resending",
    "already_cut",
    "nothing_to_cut",
    "failures",
    "unreadable_json",
    "out_of_time",
    "store_unavailable",
    "expired",
    "switched_off",
    "failed",
]
OfInstructions = Literal["instructions_too_long", "no_place_for_instructions"]
OfRefusal = Literal["nothing_to_compress", "nothing_to_undo", "kept_by_provider"]
OfCompression = (
    OfRefusal | Literal["history_changed", "compression_taken_back", "compression_cooldown", "compression_limit"]
)
Reason = OfRequest | OfOutput | OfInstructions | OfCompression
Done = Literal["pruned", "masked"]

# No word of ours: a stage that failed, by its name, or what another version has written down.
Foreign = NewType("Foreign", str)

Why = Reason | Done | Foreign
