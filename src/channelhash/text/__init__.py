"""Text: tokens, vocabularies, word vectors, and what the reader of hashtags makes of them."""
