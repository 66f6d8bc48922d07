"""The head of a model: which layer it is, what enters it, and errors that say what to do."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from mohs.heads import HEADS, create_head
from mohs.heads.find_head import find_head


def mlp() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(5, 8), nn.ReLU(), nn.Dropout(0.5), nn.Linear(8, 3))


class Parts(nn.Module):
    """Layers by name, and what to do with them."""

    def __init__(self, forward, **layers: nn.Module) -> None:
        super().__init__()
        self.steps = forward
        for name, layer in layers.items():
            self.add_module(name, layer)

    def forward(self, *args, **kwargs):
        return self.steps(self, *args, **kwargs)


@pytest.mark.parametrize(
    ("build", "name", "width", "options"),
    [
        ("alexnet", "classifier.6", 4096, {}),
        ("vgg19", "classifier.6", 4096, {}),
        ("resnet50", "fc", 2048, {}),
        ("densenet121", "classifier", 1024, {}),
        ("efficientnet_b0", "classifier.1", 1280, {}),
        ("vit_b_16", "heads.head", 768, {}),
        ("googlenet", "fc", 1024, {"init_weights": False}),
        ("inception_v3", "fc", 2048, {"init_weights": False}),
    ],
)
def test_torchvision_models(build: str, name: str, width: int, options: dict) -> None:
    models = pytest.importorskip("torchvision.models")
    size = 299 if build == "inception_v3" else 224
    with torch.device("meta"):
        model = models.get_model(build, weights=None, **options).eval()
        found = find_head(model)
        outputs, features = found.run(torch.empty(2, 3, size, size))
    assert (found.name, tuple(found.weight.shape), tuple(found.bias.shape)) == (name, (1000, width), (1000,))
    assert outputs.shape == (2, 1000)
    assert features.shape == (2, width)


def test_torchvision_features_give_the_logits() -> None:
    models = pytest.importorskip("torchvision.models")
    torch.manual_seed(0)
    model = models.resnet18(weights=None, num_classes=7).eval()
    found = find_head(model)
    with torch.no_grad():
        outputs, features = found.run(torch.randn(2, 3, 32, 32))
    torch.testing.assert_close(features @ found.weight.T + found.bias, outputs)


def test_squeezenet_has_no_linear_head() -> None:
    models = pytest.importorskip("torchvision.models")
    with torch.device("meta"):
        model = models.squeezenet1_1(weights=None)
    with pytest.raises(ValueError, match=r"SqueezeNet has no linear layer .*'classifier.1' Conv2d.*pass layer=.*score_features"):
        find_head(model)


def test_a_sequence_and_a_bare_layer() -> None:
    model, x = mlp().eval(), torch.randn(4, 5)
    found = find_head(model)
    outputs, features = found.run(x)
    assert found.name == "3"
    assert found.module is model[3]
    assert torch.equal(outputs, model(x))
    assert torch.equal(features, model[:3](x))
    layer = nn.Linear(5, 2, bias=False)
    found = find_head(layer)
    outputs, features = found.run(x)
    assert found.name == ""
    assert found.bias is None
    assert found.weight is layer.weight
    assert torch.equal(features, x)


@pytest.mark.parametrize("name", HEADS)
def test_heads_of_this_package(name: str) -> None:
    model = Parts(lambda self, x, labels: self.head(self.body(x), labels), body=nn.Linear(5, 6), head=create_head(name, 6, 3))
    found = find_head(model)
    x, labels = torch.randn(4, 5), torch.tensor([0, 1, 2, 0])
    outputs, features = found.run(x, labels=labels)
    assert found.name == "head"
    assert found.bias is None
    assert torch.equal(features, model.body(x))
    assert torch.equal(outputs, model(x, labels))


def test_weights_are_the_current_ones() -> None:
    model = mlp()
    found = find_head(model)
    model[3] = nn.Linear(8, 9)
    assert found.weight is model[3].weight


def test_the_model_state_is_restored() -> None:
    model = mlp().train()
    found = find_head(model)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    _, features = found.run(torch.randn(4, 5))
    assert all(module.training for module in model.modules())
    assert not model[3]._forward_hooks
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    features.sum().backward()
    assert model[0].weight.grad is not None
    assert model[3].weight.grad is None


def test_hook_is_removed_when_the_model_raises() -> None:
    model = mlp()
    with pytest.raises(RuntimeError, match="shape"):
        find_head(model).run(torch.randn(4, 6))
    assert not model[3]._forward_hooks


def test_auxiliary_classifiers_are_skipped() -> None:
    layers = {"fc": nn.Linear(4, 2), "aux1": nn.Linear(4, 2), "AuxLogits": nn.Linear(4, 2), "head_dist": nn.Linear(4, 2)}
    model = Parts(lambda self, x: (self.fc(x), self.aux1(x)), **layers)
    assert find_head(model).name == "fc"
    assert find_head(model, layer="aux1").name == "aux1"
    outputs, features = find_head(model).run(torch.ones(3, 4))
    assert [tuple(o.shape) for o in outputs] == [(3, 2), (3, 2)]
    assert features.shape == (3, 4)
    with pytest.raises(ValueError, match=r"has no linear layer that could be its head \(linear layers, the last first: 'aux'\)"):
        find_head(Parts(lambda self, x: self.aux(x), aux=nn.Linear(4, 2)))


def test_a_name_that_only_contains_the_letters_is_not_auxiliary() -> None:
    assert find_head(nn.Sequential(Parts(None, fauxmobile=nn.Linear(2, 2)))).name == "0.fauxmobile"


def test_features_of_many_dimensions_are_flattened_and_keyword_inputs_are_hooked() -> None:
    model = Parts(lambda self, x: self.fc(input=x), fc=nn.Linear(4, 2))
    x = torch.randn(3, 5, 4)
    outputs, features = find_head(model).run(x=x)
    assert outputs.shape == (3, 5, 2)
    assert torch.equal(features, x.reshape(15, 4))


@pytest.mark.parametrize(("times", "message"), [(0, "'fc' ran not at all in one"), (2, "'fc' ran 2 times in one")])
def test_a_head_that_does_not_run_once(times: int, message: str) -> None:
    model = Parts(lambda self, x: sum((self.fc(x) for _ in range(times)), self.body(x)), body=nn.Linear(4, 2), fc=nn.Linear(4, 2))
    with pytest.raises(ValueError, match=message):
        find_head(model).run(torch.ones(3, 4))


def test_named_layers() -> None:
    model = mlp()
    assert find_head(model, layer="0").module is model[0]
    with pytest.raises(ValueError, match=r"layer='fc' is not a layer in Sequential: .*the last first: '3', '0'"):
        find_head(model, layer="fc")
    with pytest.raises(ValueError, match=r"layer='1' is a ReLU in Sequential: pass the name of a linear layer .*'3', '0'"):
        find_head(model, layer="1")
    with pytest.raises(ValueError, match="layer='weight' is not a layer"):
        find_head(nn.Linear(2, 3), layer="weight")


@pytest.mark.filterwarnings("ignore:Lazy modules are a new feature:UserWarning")
def test_a_lazy_head_must_run_first() -> None:
    model = nn.Sequential(nn.LazyLinear(3))
    with pytest.raises(ValueError, match="layer '0' of Sequential is lazy"):
        find_head(model)
    model(torch.ones(1, 4))
    assert find_head(model).weight.shape == (3, 4)


def test_what_is_no_module_is_named() -> None:
    with pytest.raises(ValueError, match=r"model must be an nn\.Module, got function"):
        find_head(lambda x: x)  # type: ignore[arg-type]


def test_a_compiled_model_is_run_in_its_original_form() -> None:
    torch._dynamo.reset()
    model = mlp().eval()
    compiled = torch.compile(model, backend="eager")
    x = torch.randn(4, 5)
    compiled(x)
    outputs, features = find_head(compiled).run(x)
    assert torch.equal(outputs, model(x))
    assert torch.equal(features, model[:3](x))


def test_the_logits_of_one_of_several_heads() -> None:
    layers = {"body": nn.Linear(5, 6), "coarse": nn.Linear(6, 3), "fine": nn.Linear(6, 3)}
    x = torch.randn(4, 5)
    for outputs in (lambda a, b: (a, b), lambda a, b: {"coarse": a, "fine": b}, lambda a, b: {"logits": a, "more": b}):
        model = Parts(lambda self, x, outputs=outputs: outputs(self.coarse(self.body(x)), self.fine(self.body(x))), **layers)
        for name in ("coarse", "fine"):
            logits, features = find_head(model, layer=name).logits_and_features(x)
            assert torch.equal(logits, layers[name](layers["body"](x)))
            assert torch.equal(features, layers["body"](x))
    scaled = Parts(lambda self, x: (8 * self.fine(self.body(x)), x), **layers)
    assert torch.equal(find_head(scaled).logits_and_features(x)[0], scaled(x)[0])  # what the model makes of its head's outputs
