"""`kourou bench`: what this machine does, measured from outside, with the counts checked."""
