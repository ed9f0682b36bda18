"""How good texts are: each metric gives a `Score`, a number with the signature that says how it was made."""
