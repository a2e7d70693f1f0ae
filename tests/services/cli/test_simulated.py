"""Documents of simulations as tables."""

from services.cli.simulated import shown, span, tables

KUEUE = {
    "name": "baseline", "jobs": 3, "unfinished": 0, "evictions": 1, "wall_ms": 67_000, "queue_usage_percent": 98.6,
    "time_to_admission_ms": {"large": 199.1}, "ideal": {"skip_what_does_not_fit": {"wall_ms": 66_000}},
    "published": {"wall_ms": 351_116, "time_to_admission_ms": {"large": 16_501}},
}  # fmt: skip


def test_our_figures_stand_beside_the_published_and_the_ideal_ones() -> None:
    """What they do not say is left empty."""
    [table] = tables(KUEUE)
    assert ["wall_ms", "67,000", "351,116", "66,000"] in table.rows
    assert ["time_to_admission_ms large", "199.1", "16,501", ""] in table.rows
    assert ["queue_usage_percent", "98.6", "", ""] in table.rows


def test_jobs_that_wait_are_listed_in_the_order_in_which_they_start() -> None:
    """Those that never do come last; those that run already are not listed."""
    job = {"team": "t", "gpus": 8, "wait_s": None, "ends_in_s": 7_200}
    jobs = [
        {"job_id": name, "waiting": name != "runs", "starts_in_s": starts_in_s, **job}
        for name, starts_in_s in (("never", None), ("later", 90), ("runs", None), ("soon", 2))
    ]
    *_, table = tables({"jobs": 4, "by_job": jobs})
    assert [row[0] for row in table.rows] == ["soon", "later", "never"]
    assert [row[3] for row in table.rows] == ["2s", "1m 30s", "never"]


def test_figures_are_for_people() -> None:
    """With units."""
    assert [span(s) for s in (0, 0.25, 59.9, 61, 90_000)] == ["0s", "0.2s", "59.9s", "1m 01s", "1d 1h"]
    assert (shown("utilisation", 0.5), shown("makespan_s", 60.0), shown("jobs", 1_000)) == ("50.0%", "1m 00s", "1,000")
    assert shown("name", "x") == "x"
    assert shown("at", "2026-01-31T14:30:05.687000+00:00") == "2026-01-31 14:30:05 UTC"
