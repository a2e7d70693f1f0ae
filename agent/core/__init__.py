"""Agent core: the agent's decisions, free of input and output."""
