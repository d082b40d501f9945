"""How a violation is told to people: names for ids, words for faults, one sentence, and a few entries."""
