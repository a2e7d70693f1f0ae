"""Health: decides which nodes may be used, from what they report."""
