"""Whole clusters in virtual time: laws over random teams, queues, jobs and policies."""
