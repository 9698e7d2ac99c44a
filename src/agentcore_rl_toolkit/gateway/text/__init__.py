"""Between messages and token ids: rendering, detokenising, taking answers apart."""
