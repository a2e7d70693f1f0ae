"""Control: runs the deciders and appends the events they decide on."""
