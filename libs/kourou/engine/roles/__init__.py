"""The roles of a broker: leader and follower, configured or elected."""
