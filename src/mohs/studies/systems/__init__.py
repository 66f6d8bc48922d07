"""Systems of the papers that `mohs.train` does not train: graphs, translation, adaptation and generalization across domains."""
