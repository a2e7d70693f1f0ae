"""Rows that are not what the log says are named, the first few of each table and account; all of them are looked at."""

from projections.tables.misfits import MISFITS_MAX
from projections.tables.rebuild import rebuild
from projections.tables.reconcile import reconcile
from runtime.postgres import Pool
from tests.projections.cluster.audit.crediting import ALPHA, Paid, kept


async def test_tables_that_are_wrong_all_over_are_named_in_part(pool: Pool) -> None:
    """In order of the entries, as numbers; of the account that is wrong alone."""
    book = Paid()
    for number in range(MISFITS_MAX):
        book.grant(1, f"g{number}")
    log = await kept(book.records)
    await rebuild(log, pool)
    await pool.execute("UPDATE live.credit_entry SET amount_micro = amount_micro + 1")
    found = await reconcile(log, pool)

    assert [misfit.row for misfit in found.misfits] == [str(entry) for entry in range(1, MISFITS_MAX + 1)]
    assert {misfit.account for misfit in found.misfits} == {ALPHA}
    assert len(book.records) > MISFITS_MAX + 1
