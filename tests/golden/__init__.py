"""The bytes of one event of every type, for ever."""
