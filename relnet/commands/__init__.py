"""The commands of relnet, one a file: each a dataclass whose fields are its options."""
