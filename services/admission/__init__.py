"""Admission: decides whether a submitted job may enter the queue."""
