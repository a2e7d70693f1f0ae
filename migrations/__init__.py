"""Database migrations, as SQL files in the order of their names."""
