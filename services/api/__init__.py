"""HTTP interface: commands in, projections out."""
