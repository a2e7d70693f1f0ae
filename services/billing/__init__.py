"""What was used and granted, for billing systems: FOCUS datasets, and events for metering systems. Nothing here does I/O."""
