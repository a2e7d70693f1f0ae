"""Runtime: clock, settings, logging, connections and embedded servers."""
