"""Documents made from the types: docs/events.md, docs/asyncapi.json and docs/schemas/. `python -m events.docs` writes them."""
