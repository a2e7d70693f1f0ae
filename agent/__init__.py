"""Node agent: runs ranks on a node and reports what happens to them."""
