"""Projections: state folded from the events, held in memory or in tables."""
