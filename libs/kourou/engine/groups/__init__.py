"""Consumer groups, their members, subscriptions, locks and offsets."""
