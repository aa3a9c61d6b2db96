"""The commands of `kourou`: thin, one file per family; expensive imports happen at first use."""
