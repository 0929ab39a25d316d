import pytest
from pydantic import BaseModel, ConfigDict

from kimi_proxy.core.errors import InvalidParams
from kimi_proxy.features.tool import Integer, checked


class Count(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    n: Integer


@pytest.mark.parametrize(("given", "read"), [(3, 3), (3.0, 3), (-0.0, 0), (10**40, 10**40)])
def test_an_integer_is_what_json_schema_calls_one(given: float, read: int) -> None:
    found = checked(Count, {"n": given}).n
    assert (found, type(found)) == (read, int)


@pytest.mark.parametrize("given", [True, 3.5, "3", None, float("nan"), float("inf")])
def test_nothing_else_is_an_integer(given: str | float | None) -> None:
    with pytest.raises(InvalidParams) as refused:
        checked(Count, {"n": given})
    assert refused.value.field == "n"


def test_the_first_wrong_field_is_named_even_when_it_should_not_be_there() -> None:
    with pytest.raises(InvalidParams) as refused:
        checked(Count, {"n": 1, "m": 2})
    assert refused.value.data() == {"code": "invalid_params", "field": "m"}
