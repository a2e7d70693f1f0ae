"""What operators type to say what GPUs cost, checked field by field, and the `PricesSet` that it means."""

from collections.abc import Collection, Iterator, Sequence
from datetime import UTC, date, datetime
from typing import Annotated, Any, Final

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, WithJsonSchema

from events.accounts import AccountsSet
from events.amounts import MICRO, spelled_credits
from events.ask import Refused
from events.base import Count
from events.job import Priority
from events.prices import ClassFactor, GpuPrice, PriceList, PricesSet
from services.gate.changes import lines
from services.gate.decimals import MILLI, credits_typed, decimal_schema, milli_typed, typed_decimal
from services.gate.durations import duration, whole_seconds
from services.gate.names import shown
from services.gate.problems import near, refusal, refusal_of, wrong
from services.gate.shape import shaped
from services.gate.spec import GPU_TYPE

LISTS_MAX: Final = 500
TYPES_MAX: Final = 200  # of GPUs, in one list
RATE_MAX: Final = 5_000  # credits for a GPU-hour, of the dearest class: so the dearest job there may be has an amount
STEP_MAX_S: Final = 86_400
ANY: Final = "*"
EXAMPLE: Final = 'for example  lists: [{gpu_hour: {h100: 2.5, "*": 1}}]'
Wrong = tuple[str, str]  # a sentence that begins with the place, and a hint that may be empty


def checked_prices(raw: object, at: datetime) -> PricesSet | Refused:
    """The price lists that `raw`, a mapping as typed, describes; or all that is wrong with them, each with its place.

    Two documents that mean the same give the same event: types and classes are kept in one order, and a class whose
    factor is one is not kept.
    """
    document = shaped(raw, "prices", "lists", EXAMPLE)
    if isinstance(document, Refused):
        return document
    try:
        typed = PricesTyped.model_validate(document)
    except ValidationError as error:
        return refusal_of(error, PricesTyped)
    if found := [*_order_problems(typed.lists), *_dear_problems(typed.lists)]:
        return refusal(found)
    return PricesSet(at=at, lists=tuple(one.meant() for one in typed.lists))


def prices_document(prices: PricesSet | None) -> dict[str, Any]:
    """How such a document is typed, with the fields that say something. Read back, it is the same."""
    return {"lists": [_fields_of(one) for one in (prices.lists if prices else ())]}


def prices_changes(before: PricesSet | None, after: PricesSet) -> list[str]:
    """What differs, a line a list, in the order of their times."""
    old, new = ({_named(one): _facts(one) for one in (prices.lists if prices else ())} for prices in (before, after))
    return lines(old, new, sorted(old.keys() | new.keys(), key=lambda name: (name != FIRST, name)))


def prices_oddities(prices: PricesSet, accounts: AccountsSet | None) -> list[str]:
    """What is legal in these prices and probably not meant, with the accounts that hold."""
    told: list[str] = []
    for one in prices.lists:
        if not one.prices:
            told.append(f"{_named(one)} has no price: from then on no job that an account pays for may start")
        elif all(price.micro_per_gpu_hour == 0 for price in one.prices):
            told.append(f"{_named(one)} has only prices of 0: jobs cost nothing")
    used = [
        account.name for account in (accounts.accounts if accounts else ()) if account.queues and not account.closed
    ]
    if used and not priced(prices, prices.at):
        told.append(f"no price is in force now: jobs that account {used[0]} pays for wait until there is one")
    return told


def unpriced(prices: PricesSet, gpu_types: Collection[str], at: datetime) -> list[str]:
    """Of these GPU types, which the cluster has: what is told of those that have no price at a time, or from a later list on."""
    told: list[str] = []
    for one in _from_now_on(prices, at):
        named = {price.gpu_type for price in one.prices}
        missing = sorted(set(gpu_types) - named) if "" not in named else []
        if missing:
            told.append(
                f"{_named(one)} has no price for {', '.join(missing)}: jobs that may get one and are paid for wait"
            )
    return told


def priced(prices: PricesSet | None, at: datetime) -> bool:
    """Whether a list with any price is in force at a time."""
    lists = _from_now_on(prices, at) if prices is not None else ()
    return bool(lists and lists[0].prices and (lists[0].effective_from is None or lists[0].effective_from <= at))


def _from_now_on(prices: PricesSet, at: datetime) -> Sequence[PriceList]:
    """The list in force at a time, if any, and those that come."""
    past = [n for n, one in enumerate(prices.lists) if one.effective_from is None or one.effective_from <= at]
    return prices.lists[past[-1] if past else 0 :]


FIRST: Final = "list from the beginning"


def _named(one: PriceList) -> str:
    return f"list from {_time(one.effective_from)}" if one.effective_from is not None else FIRST


def _time(at: datetime) -> str:
    return at.astimezone(UTC).isoformat().replace("+00:00", "Z")


def _fields_of(one: PriceList) -> dict[str, Any]:
    told: dict[str, Any] = {} if one.effective_from is None else {"from": _time(one.effective_from)}
    # The price of all other types comes last, as it is read.
    prices = sorted(one.prices, key=lambda price: (not price.gpu_type, price.gpu_type))
    told["gpu_hour"] = {price.gpu_type or ANY: typed_decimal(price.micro_per_gpu_hour) for price in prices}
    if one.factors:
        told["classes"] = {factor.priority.value: typed_decimal(factor.milli * MILLI) for factor in one.factors}
    return told | ({"step": duration(one.step_s)} if one.step_s != 1 else {})


def _facts(one: PriceList) -> dict[str, str]:
    prices = {price.gpu_type or ANY: spelled_credits(price.micro_per_gpu_hour) for price in one.prices}
    # With a colon, which no type has: a type may be called "low".
    factors = {f"{factor.priority.value}:": spelled_credits(factor.milli * MILLI) for factor in one.factors}
    return prices | factors | {"step:": str(duration(one.step_s))}


def _order_problems(lists: Sequence["PriceListTyped"]) -> Iterator[Wrong]:
    """Only the first may hold from the beginning; each later one begins later."""
    before = lists[0].effective_from if lists else None
    for number, one in enumerate(lists[1:], 1):
        place = f"lists.{number}.from"
        if one.effective_from is None:
            yield f"{place}: is missing: only the first list holds from the beginning", "say from when on it holds"
        elif before is not None and one.effective_from <= before:
            told = (
                f"{place}: must be later than that of the list before, {_time(before)}, not {_time(one.effective_from)}"
            )
            yield told, "lists stand in the order of their times"
        before = one.effective_from or before


def _dear_problems(lists: Sequence["PriceListTyped"]) -> Iterator[Wrong]:
    """The dearest class must still have a rate that is within bounds."""
    for number, one in enumerate(lists):
        priority, milli = max(one.classes.items(), key=lambda pair: pair[1], default=("", MILLI))
        milli = max(milli, MILLI)
        for gpu_type, micro in one.gpu_hour.items():
            if micro * milli > RATE_MAX * MICRO * MILLI:
                of = f", {spelled_credits(micro * milli // MILLI)} for {priority}" if milli > MILLI else ""
                told = f"is {spelled_credits(micro)}{of}: {RATE_MAX} is the most for a GPU-hour"
                yield f"lists.{number}.gpu_hour.{gpu_type}: {told}", "let a credit be worth more"


def _from(value: object) -> datetime | None:
    """A time with its zone, as text or as YAML reads it."""
    hint = "for example 2027-01-01T00:00:00Z"
    if isinstance(value, str):
        try:
            value = datetime.fromisoformat(value.strip())
        except ValueError:
            raise wrong(f"must be a time, not {shown(value)}", hint) from None
    if value is None:
        raise wrong("must be a time, not null", f"leave it out in the first list; {hint}")
    if not isinstance(value, datetime):
        given = str(value) if isinstance(value, date) else value
        raise wrong(f"must be a time, not {shown(given)}", hint)
    if value.tzinfo is None:
        raise wrong(f"must say its zone: {value.isoformat()}", f"in UTC it ends with Z: {value.isoformat()}Z")
    try:
        return value.astimezone(UTC)
    except OverflowError:
        raise wrong(f"must be a time of the years 1 to 9999 in UTC, not {shown(str(value))}", hint) from None


def _types(value: object) -> object:
    if not isinstance(value, dict):
        raise wrong(
            f"must be a mapping of GPU types to credits, not {shown(value)}", 'for example  {h100: 2.5, "*": 1}'
        )
    if len(value) > TYPES_MAX:
        raise wrong(f"has {len(value)} types, {TYPES_MAX} is the most")
    odd = [name for name in value if name != ANY and (not isinstance(name, str) or not GPU_TYPE.fullmatch(name))]
    if odd:
        hint = f'put quotes around it: "{odd[0]}"' if isinstance(odd[0], int | float) else 'any other type is "*"'
        told = ", ".join(shown(name) for name in odd[:3])
        raise wrong(f"has {told}; a GPU type is 1 to 40 letters, digits, spaces and . _ -", hint)
    return value


def _classes(value: object) -> object:
    known = [priority.value for priority in Priority]
    if not isinstance(value, dict):
        raise wrong(
            f"must be a mapping of priority classes to factors, not {shown(value)}", "for example  {urgent: 1.5}"
        )
    odd = [name for name in value if name not in known]
    if odd:
        told = f"has {', '.join(shown(name) for name in odd[:3])}; the classes are {', '.join(known)}"
        raise wrong(told, near(str(odd[0]), known))
    return value


def _lists(value: object) -> object:
    if not isinstance(value, list | tuple):
        raise wrong(
            f"must be a list of price lists, not {shown(value)}", "each begins with a dash:  - gpu_hour: {h100: 2.5}"
        )
    if len(value) > LISTS_MAX:
        raise wrong(f"are {len(value)}, {LISTS_MAX} is the most", "leave out those that are over")
    return value


PRICE_SAYS: Final = "Credits for an hour of one GPU."
FACTOR_SAYS: Final = "What the price is multiplied by, in thousandths."
PriceField = Annotated[int, BeforeValidator(credits_typed), WithJsonSchema(decimal_schema(PRICE_SAYS))]
FactorField = Annotated[int, BeforeValidator(milli_typed), WithJsonSchema(decimal_schema(FACTOR_SAYS))]


class PriceListTyped(BaseModel):
    """Prices that hold from a time on, until the next list does."""

    model_config = ConfigDict(strict=True, extra="forbid", title="PriceList")

    effective_from: Annotated[datetime | None, BeforeValidator(_from)] = Field(
        None, alias="from", description="From when on it holds, with its zone; only the first may leave it out."
    )
    gpu_hour: Annotated[dict[str, PriceField], BeforeValidator(_types)] = Field(
        description='Credits for an hour of one GPU, by type; "*": of any other type.'
    )
    classes: Annotated[dict[str, FactorField], BeforeValidator(_classes)] = Field(
        {}, description="What the price is multiplied by for jobs of a priority class; left out: 1."
    )
    step: Annotated[Count, BeforeValidator(whole_seconds), Field(ge=0, le=STEP_MAX_S)] = Field(
        1, description="Time is charged in whole steps, begun ones whole; 0: to the microsecond."
    )

    def meant(self) -> PriceList:
        """As the log keeps it."""
        return PriceList(
            effective_from=self.effective_from,
            prices=tuple(
                sorted(
                    (GpuPrice("" if name == ANY else name, micro) for name, micro in self.gpu_hour.items()), key=_type
                )
            ),
            factors=tuple(
                ClassFactor(priority, self.classes[priority])
                for priority in Priority
                if self.classes.get(priority, MILLI) != MILLI
            ),
            step_s=self.step,
        )


def _type(price: GpuPrice) -> str:
    return price.gpu_type


class PricesTyped(BaseModel):
    """All price lists, as people describe them."""

    model_config = ConfigDict(strict=True, extra="forbid", title="Prices")

    lists: Annotated[tuple[PriceListTyped, ...], BeforeValidator(_lists)] = Field(
        strict=False, description="In the order of their times; [] for none."
    )


def prices_schema() -> dict[str, Any]:
    """The JSON Schema of the document as typed, for editors and for the API's documents."""
    return PricesTyped.model_json_schema()
