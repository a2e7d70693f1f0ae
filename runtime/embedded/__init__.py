"""Real servers that live and die with us: one NATS or a cluster of three, one PostgreSQL, and who may do what there."""
