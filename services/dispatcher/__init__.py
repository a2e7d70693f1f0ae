"""Dispatcher: carries decided placements to the node agents."""
