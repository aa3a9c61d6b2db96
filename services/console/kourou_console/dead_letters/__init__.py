"""Dead letters: their selection, and the jobs that redeliver them."""
