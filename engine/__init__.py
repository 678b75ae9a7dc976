"""The inference engine: token ids in, tokens and text out."""
