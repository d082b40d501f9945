"""Making a failing scenario small: what could be less, and whether it still fails."""
