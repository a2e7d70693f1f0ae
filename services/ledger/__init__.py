"""The ledger: answers what operators ask of accounts, settles runs that are over, and records what was used."""
