"""All orders of a small scenario with few deviations from plain order; what commutes is run only once."""
