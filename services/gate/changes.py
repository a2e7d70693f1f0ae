"""What one document says otherwise than another, a line a thing in it."""

from collections.abc import Iterable, Mapping

Facts = Mapping[str, str]  # the fields of a thing that say something, by the names that people type


def lines(old: Mapping[str, Facts], new: Mapping[str, Facts], names: Iterable[str]) -> list[str]:
    """What differs, in the order of `names`: `+` what comes, `-` what goes, `~` what changes."""
    told: list[str] = []
    for name in names:
        was, now = old.get(name), new.get(name)
        if was is None and now is not None:
            told.append(f"+ {name}: " + ", ".join(f"{field} {value}" for field, value in now.items()))
        elif was is not None and now is None:
            told.append(f"- {name}")
        elif was is not None and now is not None and was != now:
            fields = [field for field in dict.fromkeys((*was, *now)) if was.get(field) != now.get(field)]
            parts = [f"{field} {was.get(field, 'none')} -> {now.get(field, 'none')}" for field in fields]
            told.append(f"~ {name}: " + ", ".join(parts))
    return told
