"""Scheduler: decides which gangs run where, and when."""
