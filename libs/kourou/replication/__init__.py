"""Who leads a log, who has how much of it, and when enough have it: pure, without hands."""
