"""The commands of `kourou`: thin, one file a family, everything heavy imported when it is used."""
