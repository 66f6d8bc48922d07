"""Pretrained features: images and text as vectors, by networks that are installed, named or the user's own."""
