"""Worlds that nobody wrote: every choice about them is a draw of the tape."""
