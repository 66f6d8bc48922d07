"""mohs inside other training loops: Lightning, the Hugging Face Trainer, scikit-learn and skorch."""
