"""mohs inside other training loops: Lightning, the Hugging Face Trainer and scikit-learn."""
