"""Examining data: what an audit does with images and with features, up to the verdict."""
