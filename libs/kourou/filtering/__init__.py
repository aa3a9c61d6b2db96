"""What a subscription means and which messages match it: pure, and bounded in time and memory."""
