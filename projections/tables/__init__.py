"""Table projections: events folded into PostgreSQL tables."""
