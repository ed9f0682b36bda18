"""The command line: one file per verb, a frozen dataclass each."""
