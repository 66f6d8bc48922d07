"""The review: a local web app in which people decide on the labels of an audit, from ten examples to ten million."""
