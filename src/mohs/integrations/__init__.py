"""mohs inside other people's training loops: thin shells, each of which needs its own extra."""
