"""All that crosses a process boundary: event families, their codec and subjects, asks, reports and desired state."""
