"""One file for each revision; a released one is never edited."""
