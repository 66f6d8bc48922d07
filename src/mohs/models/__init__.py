"""Models by name: `create_model("resnet20", shape=(3, 32, 32), num_classes=10)`; each gives logits and features."""
