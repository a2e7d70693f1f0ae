"""The log: a row of JetStream streams with positions, fenced appends, and two readers held to the same answers."""
