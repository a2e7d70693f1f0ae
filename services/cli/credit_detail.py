"""Events of credits in few words: what a line of a timeline, or of `muster events`, has room for."""

from collections.abc import Callable, Mapping
from typing import Any, Final

from services.cli.table import counted, credits_of, credits_told, duration, parse_time

US_PER_HOUR: Final = 3_600_000_000
Data = Mapping[str, Any]


def _amount(data: Data) -> str:
    return credits_told(credits_of(int(data.get("amount_micro") or 0)))


def _signed(data: Data) -> str:
    return f"{'+' if int(data.get('amount_micro') or 0) > 0 else ''}{_amount(data)}"


def _hours(data: Data) -> str:
    return f"{int(data.get('gpu_us') or 0) / US_PER_HOUR:.3f} GPU-hours"


def _plain(code: object) -> str:
    return str(code or "").replace("_", " ")


def _because(data: Data) -> str:
    return f": {data['reason']}" if data.get("reason") else ""


def _reserved(data: Data) -> str:
    covers = duration(int(data.get("covers_s") or 0))
    return f"{_amount(data)} of {data.get('account')} for {counted(int(data.get('gpus') or 0), 'GPU')} for {covers}"


def _renewed(data: Data) -> str:
    return f"{_amount(data)} of {data.get('account')} for {duration(int(data.get('covers_s') or 0))} more"


def _running_out(data: Data) -> str:
    at = parse_time(data.get("until"))
    until = f"{at:%Y-%m-%d %H:%M:%S} UTC" if at else "now"
    return f"{data.get('account')} can pay for {data.get('run_id')} until {until}"


def _committed(data: Data) -> str:
    return f"{_amount(data)} of {data.get('account')} for {_hours(data)}: {_plain(data.get('outcome'))}"


def _refunded(data: Data) -> str:
    waived = f", {_hours(data)} not charged" if data.get("gpu_us") else ""
    return f"{_amount(data)} to {data.get('account')}: {_plain(data.get('cause'))}{waived}"


def _uncovered(data: Data) -> str:
    return f"{_amount(data)} more than was reserved, borne by the {data.get('bearer')}"


def _used(data: Data) -> str:
    corrects = f", taken back: {_plain(data.get('cause'))}" if data.get("corrects") else ""
    return f"{_amount(data)} for {_hours(data)}{corrects}"


def _granted(data: Data) -> str:
    return f"{_signed(data)} for {data.get('account')}{_because(data)}"


def _adjusted(data: Data) -> str:
    of = f" of entry {data['of_entry']}" if data.get("of_entry") else ""
    return f"{_signed(data)} for {data.get('account')}, {_plain(data.get('cause'))}{of}{_because(data)}"


def _refused(data: Data) -> str:
    return f"{data.get('account')}: {data.get('message')} [{data.get('code')}]"


def _closed(data: Data) -> str:
    return str(data.get("account") or data.get("month") or "")


def _accounts(data: Data) -> str:
    return counted(len(data.get("accounts") or ()), "account")


def _prices(data: Data) -> str:
    return counted(len(data.get("lists") or ()), "price list")


TOLD: Final[Mapping[str, Callable[[Data], str]]] = {
    "accounts.set": _accounts,
    "prices.set": _prices,
    "period.closed": _closed,
    "credit.grant_asked": _granted,
    "credit.adjustment_asked": _granted,
    "credit.granted": _granted,
    "credit.adjusted": _adjusted,
    "credit.ask_refused": _refused,
    "credit.reserved": _reserved,
    "credit.renewed": _renewed,
    "credit.running_out": _running_out,
    "credit.committed": _committed,
    "credit.refunded": _refunded,
    "credit.usage_uncovered": _uncovered,
    "credit.usage_recorded": _used,
    "credit.account_closed": _closed,
}
