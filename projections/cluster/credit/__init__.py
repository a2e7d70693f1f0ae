"""Credits: what a run will cost, how its use is counted, what accounts have. Pure; shared by deciders, tables and audits of people."""
