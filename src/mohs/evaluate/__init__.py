"""How good a trained model is beyond its accuracy: each file a question, each function usable alone."""
